"""The computation graph."""
