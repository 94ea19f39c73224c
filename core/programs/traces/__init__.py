"""PyTorch's execution traces: what a program really ran, with the storage behind every tensor."""
