"""Gains of Topoformer's decoders, and what of them the network gives: the same beams by constant and random priorities.

usage: python examples/experiments/topoformer/decoders.py [--nodes 500] [--graphs 18] [--width 16]

Layered graphs of seeds that no training and no table has. Gap of the peak above approximate DP with K = 100,000, in
percent, with its 95% confidence interval, and CPU time per graph. A laptop hour: the default takes five minutes.
"""

import argparse
import time

import numpy as np
import torch
from schedopt.core.kernels.orders.set_beam import beam
from schedopt.core.problem.problem import Problem
from schedopt.core.solve.solve import solve
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.policies.networks.shipped import weights_file
from schedopt.policies.topoformer.decoding import decode_two_way
from schedopt.policies.topoformer.features import encode
from schedopt.policies.topoformer.network import load_network

SEED = 424_242
ROWS = {
    "beam": lambda b, values, width: beam(b, values, width).peaks[0],
    "beam, four times as wide": lambda b, values, width: beam(b, values, 4 * width).peaks[0],
    "two-way": lambda b, values, width: decode_two_way(b, values, width)[0].peaks[0],
}


def main() -> None:
    """Print a row per decoder and kind of priorities."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--graphs", type=int, default=18)
    parser.add_argument("--width", type=int, default=16)
    options = parser.parse_args()
    torch.set_num_threads(1)
    network = load_network(weights_file("topoformer-layered")).eval()
    gaps: dict[tuple[str, str], list[float]] = {}
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(options.graphs):
        rng = np.random.default_rng([SEED, options.nodes, number])
        graph = layered_graph(LayeredParameters(nodes=options.nodes), rng, f"layered-{number}")
        reference = solve(Problem(graph), "approximate-dp:beam-size=100000", seed=0).value
        with torch.inference_mode():
            learned = network([encode(graph)]).priorities[0].double().numpy()
        priorities = {"network": learned, "constant": 0 * learned, "random": 5 * rng.standard_normal(len(learned))}
        for kind, values in priorities.items():
            for decoder, decode in ROWS.items():
                start = time.process_time()
                peak = int(decode(graph.buffers, values, options.width)) + int(graph.persistent.sum())
                times.setdefault((decoder, kind), []).append(time.process_time() - start)
                gaps.setdefault((decoder, kind), []).append(100 * (peak - reference) / reference)
    print(f"{options.graphs} graphs of {options.nodes} ops, width {options.width}: gap above K = 100,000, CPU time")
    for (decoder, kind), values in gaps.items():
        spread = 1.96 * np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
        seconds = np.median(times[decoder, kind])
        print(f"{decoder:25} {kind:9} {np.mean(values):+6.2f} ± {spread:.2f}%  {seconds:.3f} s")


if __name__ == "__main__":
    main()
