"""PyTorch programs: import, apply, measure."""
