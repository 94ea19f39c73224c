"""Noisy copies of graphs (REGAL A.1.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ..core.base.arrays import INT64_MAX, frozen
from ..core.base.errors import GraphError
from ..core.base.parallel import chunks, map_in_order
from ..core.files.costgraph import SUFFIXES, format_graph
from ..core.graph.graph import CostGraph

LOW, HIGH = 0.5, 1.5


def noisy_copy(graph: CostGraph, rng: np.random.Generator) -> CostGraph:
    """Multiply every tensor size and op runtime by its own sample of U(0.5, 1.5), rounded: first all sizes."""
    sizes = np.rint(graph.tensor_size * rng.uniform(LOW, HIGH, graph.num_tensors))
    runtime = np.rint(graph.runtime * rng.uniform(LOW, HIGH, graph.num_ops))
    others = int(graph.workspace.sum()) + int(graph.persistent.sum())
    if sizes.sum() + others >= INT64_MAX or runtime.sum() >= INT64_MAX:
        raise GraphError(f"{graph.name}: the costs of a noisy copy would exceed 2^63 - 1; scale the graph down")
    return replace(graph, tensor_size=frozen(sizes, np.int64), runtime=frozen(runtime, np.float64))


def copy_rng(seed: int, topology: str, number: int) -> np.random.Generator:
    """Return the random generator of one copy of a graph."""
    key = (int(topology[:8], 16), int(topology[8:], 16), number)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def encode_copy(graph: CostGraph, topology: str, number: int, seed: int, suffix: str) -> bytes:
    """Return one noisy copy as a file of this suffix."""
    return format_graph(noisy_copy(graph, copy_rng(seed, topology, number)), *SUFFIXES[suffix])


def _encode_copies(seed: int, suffix: str, copies: tuple[CostGraph, str, range]) -> list[tuple[str, int, bytes]]:
    graph, topology, numbers = copies
    return [(topology, number, encode_copy(graph, topology, number, seed, suffix)) for number in numbers]


def encoded_copies(
    graphs: Sequence[tuple[CostGraph, str]], copies: int, seed: int, suffix: str, jobs: int = 1
) -> Iterator[tuple[str, int, bytes]]:
    """Yield `(topology, number, bytes of the file)` of every copy, in order on any number of jobs."""
    items = (
        (graph, topology, range(part.start + 1, part.stop + 1))
        for graph, topology in graphs
        for part in chunks(copies, 25)
    )
    for encoded in map_in_order(partial(_encode_copies, seed, suffix), items, jobs):
        yield from encoded
