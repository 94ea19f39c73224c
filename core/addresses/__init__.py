"""Addresses: the place of each tensor in its device's arena, so that tensors of one moment never overlap."""
