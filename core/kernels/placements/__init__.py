"""Kernels of several devices: placements, transfers, decoders."""
