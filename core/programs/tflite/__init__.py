"""TFLite programs for microcontrollers: import, apply, measure."""
