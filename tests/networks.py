"""Files of tiny networks with random weights."""

from schedopt.policies.network import Network, NetworkParameters, save_network
from torch import random

TINY = {"layers": 1, "width": 8, "heads": 1, "head_width": 4}


def write_weights(path, seed=0, **shape):
    """Write a network of this shape, by default a tiny one, and return the path."""
    with random.fork_rng():
        random.manual_seed(seed)
        save_network(path, Network(NetworkParameters(**(TINY | shape))))
    return path
