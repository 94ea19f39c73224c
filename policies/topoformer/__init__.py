"""Topoformer (NeurIPS 2022): priorities of ops by masked attention, orders decoded from them, and its training."""
