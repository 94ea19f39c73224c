"""Batches of random graphs for the networks, made from plain graphs without the code that makes them elsewhere."""

import naive
import numpy as np
import torch
from schedopt.policies.networks.message_passing import MessageGraph
from schedopt.policies.topoformer.features import GraphBatch


def graph_batch(plains, inputs=6, padding=0, seed=0):
    """Stack plain graphs with random features; what is padded gets nonsense, which must not matter."""
    rng = np.random.default_rng(seed)
    ops = max(len(plain.ops) for plain in plains) + padding
    features = rng.normal(size=(len(plains), ops, inputs)).astype(np.float32)
    is_op, before = np.zeros((len(plains), ops), bool), np.zeros((len(plains), ops, ops), bool)
    kept, implied = [], []
    for at, plain in enumerate(plains):
        rng = np.random.default_rng([seed, len(plain.ops), *map(len, plain.before)])
        features[at, plain.ops] = rng.normal(size=(len(plain.ops), inputs))
        is_op[at, plain.ops] = True
        for op in plain.ops:
            ancestors = naive.reachable(plain.before, op) - {op}
            before[at, op, list(ancestors)] = True
            for other in plain.before[op]:
                longer = any(other in naive.reachable(plain.before, middle) for middle in plain.before[op] - {other})
                (implied if longer else kept).append((at * ops + other, at * ops + op))
    ends = (torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T for pairs in (kept, implied))
    edges = (MessageGraph(*pair, torch.full((len(plains),), ops)) for pair in ends)
    return GraphBatch(torch.from_numpy(features), torch.from_numpy(is_op), *edges, torch.from_numpy(before))


def random_plains(seed, *sizes):
    """Return random graphs of these sizes, as `(CostGraph, Plain)` pairs."""
    rng = np.random.default_rng(seed)
    return [naive.random_graph(rng, size) for size in sizes]
