"""ONNX programs: import, apply, measure."""
