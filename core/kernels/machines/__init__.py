"""Kernels for machines: different devices, links, tensors with a home, transfers that block or run beside work."""
