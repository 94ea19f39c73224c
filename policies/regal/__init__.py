"""REGAL (ICLR 2020): a network that chooses what BRKGA draws from, GAS and IDRS, and their training."""
