"""Methods on machines: list schedulers of the field, and annealing over plans."""
