"""Topoformer's shipped weights trained further: imitation of ops or of sets of ops, self-improvement, REINFORCE.

usage: python examples/experiments/topoformer/further_training.py [--runs orders sets rounds reinforce] [--minutes 4]
       [--cells 500:48 1000:24 2000:16] [--nodes 300 1200]

orders: imitates the ops of an order of two-way decoding. sets: any op that could run next instead, all others as in
that order, at no higher peak (set_labels.py). rounds: twice, the sets of the best of the policy's 64 samples, beam of
16 and tightened greedy order, then REINFORCE. These imitate for five eighths of their minutes; the rest is REINFORCE
with a leave-one-out baseline that is not below the peak so far, and so is all of reinforce. A moving average of the
weights is validated, on graphs of seeds that no training and no table has. A laptop hour: the default takes 25 minutes.
"""

import argparse
import copy
import math
import time

import numpy as np
import torch
from schedopt.core.kernels.orders.priority_orders import price_orders
from schedopt.core.problem.problem import Problem
from schedopt.core.search.search import Search
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.policies.networks.shipped import weights_file
from schedopt.policies.topoformer.decoding import decode_two_way, tightened
from schedopt.policies.topoformer.features import batch_of, encode
from schedopt.policies.topoformer.network import load_network
from schedopt.policies.topoformer.solve import Parameters, _decode
from schedopt.policies.topoformer.training import flipped, good_order
from set_labels import earliest_steps, log_sum_exp_of_stretches, memory_of, ready_steps

TRAINING, VALIDATION = 880_002, 771_022
DECODERS = [(decode, passes) for passes in (0, 400) for decode in ("greedy", "sample", "beam")]
PARTS = {
    "orders": ("orders", "reinforce"),
    "sets": ("sets", "reinforce"),
    "rounds": ("own", "reinforce") * 2,
    "reinforce": ("reinforce",),
}


def drawn(seed, index, ops):
    return layered_graph(LayeredParameters(nodes=ops), np.random.default_rng([seed, ops, index]))


def teacher_order(part, graph, policy, rng):
    found = [decode_two_way(graph.buffers, policy.of_ops(), 16)[0]]
    if part == "own":
        found = [*policy.sample(64, rng), *policy.beam(16)]
        found.append(tightened(graph.buffers, policy.greedy()[0], policy.of_ops(), most=400)[0])
    best = min(found, key=lambda decoded: decoded.peaks.min())
    return best.orders[best.peaks.argmin()]


def loss_of(part, graph, policy, rng):
    b = graph.buffers
    decoded = policy.sample(16, rng)[0] if part == "reinforce" else None
    orders = decoded.orders if decoded else np.ascontiguousarray(teacher_order(part, graph, policy, rng)[None])
    first, memory = ready_steps(graph.predecessors, orders), memory_of(b, orders)
    place = torch.from_numpy(np.argsort(orders, axis=1))
    values = policy.priorities.expand(len(orders), -1)
    every = log_sum_exp_of_stretches(values, torch.from_numpy(first.astype(np.int64)), place)
    if part in ("sets", "own"):
        low = torch.from_numpy(earliest_steps(b, orders[0], first[0])[None])
        return (every - log_sum_exp_of_stretches(values, low, place)).mean()
    log_probability = values.gather(1, torch.from_numpy(orders.astype(np.int64))) - every
    if part == "orders":
        return -log_probability.mean()
    so_far = np.maximum.accumulate(np.pad(memory[:, :-1], ((0, 0), (1, 0))), axis=1)
    peaks = decoded.peaks.astype(float)[:, None]
    others = (peaks.sum() - peaks) / (len(peaks) - 1)
    above = (peaks - np.maximum(others, so_far)) / others
    return (torch.from_numpy(above).float() * log_probability).sum(1).mean()


def train(network, part, minutes, nodes, rng, index):
    """Train for some minutes of CPU time; return the moving average of the weights, and the number of graphs so far."""
    average, optimiser = copy.deepcopy(network), torch.optim.Adam(network.parameters())
    start, step = time.process_time(), 0
    while (done := (time.process_time() - start) / 60 / minutes) < 1:
        for group in optimiser.param_groups:
            group["lr"] = 2e-4 * min(1, (step + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * done))
        for _ in range(8):
            graph = drawn(TRAINING, index, round(math.exp(rng.uniform(*np.log(nodes)))))
            encoded, index = encode(graph), index + 1
            policy = network([encoded], flipped(batch_of([encoded]), rng))
            (loss_of(part, graph, policy, rng) / 8).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step(), optimiser.zero_grad()
        step += 1
        for mean, value in zip(average.parameters(), network.parameters(), strict=True):
            mean.data.lerp_(value.data, 1 - min(0.98, (step + 1) / (step + 10)))
    return average, index


def validate(network, graphs, decoders):
    """Return the gaps of decoders above a backward beam of 200, in percent; shape `(graphs, decoders)`."""
    gaps = np.empty((len(graphs), len(decoders)))
    for at, (encoded, reference) in enumerate(graphs):
        with torch.inference_mode():
            policy = network([encoded])
        for column, (decode, passes) in enumerate(decoders):
            search = Search(Problem(encoded.graph))
            orders = _decode(search, Parameters(decode=decode, passes=passes), policy)
            gaps[at, column] = 100 * (price_orders(encoded.graph.buffers, orders).min() / reference - 1)
    return gaps


def main():
    """Print the gaps of the shipped weights, and what each run changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--cells", nargs="+", default=["500:48", "1000:24", "2000:16"])
    parser.add_argument("--nodes", nargs=2, type=int, default=(300, 1200))
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells, first = {}, {}
    for cell in options.cells:
        ops, count = map(int, cell.split(":"))
        graphs = [drawn(VALIDATION, index, ops) for index in range(count)]
        orders = [good_order(graph, 200, np.random.default_rng(0)) for graph in graphs]
        cells[ops] = [
            (encode(g), int(price_orders(g.buffers, order[None])[0])) for g, order in zip(graphs, orders, strict=True)
        ]
        first[ops] = validate(load_network(weights_file("topoformer-layered")), cells[ops], DECODERS)
        print(f"shipped, {count} graphs of {ops}: {first[ops].mean(0).round(2)}", flush=True)
    for run in options.runs:
        network, rng, index = load_network(weights_file("topoformer-layered")), np.random.default_rng(TRAINING), 0
        for number, part in enumerate(PARTS[run], start=1):
            share = 1.0 if run == "reinforce" else (0.375 if part == "reinforce" else 0.625) / (len(PARTS[run]) / 2)
            network, index = train(network, part, options.minutes * share, options.nodes, rng, index)
            for ops, graphs in cells.items():
                decoders = DECODERS if number == len(PARTS[run]) else DECODERS[:3]
                change = validate(network, graphs, decoders) - first[ops][:, : len(decoders)]
                half = 1.96 * change.std(0, ddof=1) / len(change) ** 0.5
                gaps = " ".join(f"{m:+.2f}±{h:.2f}" for m, h in zip(change.mean(0), half, strict=True))
                print(f"{run}, part {number}, {part}, {index} graphs so far; {ops} ops: {gaps}", flush=True)


if __name__ == "__main__":
    main()
