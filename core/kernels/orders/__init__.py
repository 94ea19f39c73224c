"""Kernels of one device: orders, sets of executed ops, proofs."""
