"""Kernels for sequences in which ops run again."""
