"""REGAL (ICLR 2020): a network that chooses BRKGA's distributions, GAS and IDRS, and their training."""
