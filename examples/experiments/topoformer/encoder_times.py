"""Parameters and times of the encoders of Topoformer's table 3, with the heads of the ablation: 28 in all.

usage: python examples/experiments/topoformer/encoder_times.py [OPS..., default 500 1000] [--graphs 5] [--decode greedy]

Median CPU seconds of features, network and decoder on layered graphs, with one thread. Weights are random, since
times do not depend on them. Topoformer has 4 heads for each of seven relations, on edges alone 7 for each of four. The
MLP has none. The paper, greedy, 500 and 1000 ops on a V100: MLP 0.58 and 1.52 s,
transformer 0.69, 1.30, GAT 0.49, 1.24, GAT both ways 0.63, 1.37, Topoformer on edges 0.73, 1.62, Topoformer 1.04,
1.51. A minute on a laptop.
"""

import argparse
import time
from statistics import median

import numpy as np
import torch
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.policies.topoformer.features import encode
from schedopt.policies.topoformer.network import Network, NetworkParameters

HEADS = {"mlp": 1, "transformer": 28, "gat": 28, "gat-bidirectional": 28, "topoformer-edges": 7, "topoformer": 4}
"""In all, or for each relation."""
WIDTH = 16


def seconds(network, graph, decode):
    """Return the CPU seconds of one inference."""
    start = time.process_time()
    with torch.inference_mode():
        policy = network([encode(graph)])
        {
            "greedy": policy.greedy,
            "sample": lambda: policy.sample(WIDTH, np.random.default_rng(0)),
            "beam": lambda: policy.beam(WIDTH),
        }[decode]()
    return time.process_time() - start


def main():
    """Print a row per network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", type=int, default=[500, 1000])
    parser.add_argument("--graphs", type=int, default=5)
    parser.add_argument("--decode", choices=("greedy", "sample", "beam"), default="greedy")
    options = parser.parse_args()
    torch.set_num_threads(1)
    drawn = [np.random.default_rng(seed) for seed in range(options.graphs)]
    sizes = {n: [layered_graph(LayeredParameters(nodes=n), rng) for rng in drawn] for n in options.ops}
    for encoder, heads in HEADS.items():
        network = Network(NetworkParameters(encoder=encoder, heads=heads)).eval()
        seconds(network, next(iter(sizes.values()))[0], options.decode)  # compiles
        times = [median(seconds(network, graph, options.decode) for graph in graphs) for graphs in sizes.values()]
        count = sum(weights.numel() for weights in network.parameters())
        print(f"{encoder:18} {count:>9,} parameters" + "".join(f"  {t:.3f} s" for t in times))


if __name__ == "__main__":
    main()
