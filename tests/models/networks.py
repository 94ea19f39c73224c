"""Files of tiny networks with random weights."""

from schedopt.policies.direct.network import DirectNetwork, DirectNetworkParameters
from schedopt.policies.networks.network import write_network
from schedopt.policies.regal.network import RegalNetwork, RegalNetworkParameters
from schedopt.policies.topoformer.network import Network, NetworkParameters
from torch import random

TINY = {"layers": 1, "width": 8, "heads": 1, "head_width": 4}
TINY_REGAL = {"width": 4, "rounds": 1}
TINY_DIRECT = {"width": 4, "rounds": 1}


def write_weights(path, seed=0, **shape):
    """Write a network of this shape, by default a tiny one, and return the path."""
    with random.fork_rng():
        random.manual_seed(seed)
        write_network(path, Network(NetworkParameters(**(TINY | shape))))
    return path


def write_regal_weights(path, seed=0, **shape):
    """Write a network of `regal`, or of `gas` for an LSTM, and return the path."""
    with random.fork_rng():
        random.manual_seed(seed)
        network = RegalNetwork(RegalNetworkParameters(**(TINY_REGAL | shape)))
        write_network(path, network)
    return path


def write_direct_weights(path, seed=0, **shape):
    """Write a network of `direct` whose corrections are not zero, and return the path."""
    with random.fork_rng():
        random.manual_seed(seed)
        network = DirectNetwork(DirectNetworkParameters(**(TINY_DIRECT | shape)))
        network.of_op[-1].reset_parameters()
        write_network(path, network)
    return path
