"""Graphs to train on: drawn afresh or from files, encoded, and with an order of a search to imitate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..core.graph import CostGraph, IndexArray
from ..core.kernels.priority_orders import price_orders
from ..core.problem import Problem
from ..core.search import Search
from ..core.solvers.approximate_dp import UNLIMITED, run_beam
from ..datasets.layered import LayeredParameters, layered_graph
from ..datasets.parallel import map_in_order
from .graph_batch import EncodedGraph, encode

VALIDATION = 2**31


@dataclass(frozen=True, eq=False)
class Example:
    """A graph to train on.

    Parameters
    ----------
    encoded
        What the network sees of it.
    order
        An order to imitate, shape `(ops,)`, and its peak in bytes, persistent ones left out; None if not asked for.
    """

    encoded: EncodedGraph
    order: IndexArray | None
    peak: int | None


@dataclass(frozen=True)
class Source:
    """Where graphs come from.

    Parameters
    ----------
    seed
        Of all random choices.
    nodes
        The least and the most ops of layered graphs, both included; each graph draws its own number.
    graphs, orders
        Given graphs, taken in a new random order in each epoch, instead of layered ones; and their orders to imitate.
    eigenvectors
        See `op_features`.
    teacher_width
        Width of the beam that finds the orders of layered graphs to imitate; 0 for none.
    """

    seed: int
    nodes: tuple[int, int]
    graphs: tuple[CostGraph, ...] = ()
    orders: tuple[IndexArray, ...] = ()
    eigenvectors: int = 20
    teacher_width: int = 0

    def example(self, epoch: int, index: int, offset: int = 0) -> Example:
        """Return a graph of an epoch: the same one for the same numbers, in any process."""
        rng = np.random.default_rng([self.seed, epoch, index + offset])
        if self.graphs:
            shuffled = np.random.default_rng([self.seed, epoch + index // len(self.graphs)]).permutation(
                len(self.graphs)
            )
            chosen = int(shuffled[index % len(self.graphs)])
            graph, order = self.graphs[chosen], self.orders[chosen] if self.orders else None
        else:
            ops = int(rng.integers(self.nodes[0], self.nodes[1] + 1))
            graph = layered_graph(LayeredParameters(nodes=ops), rng, f"layered-{epoch}-{index}")
            order = good_order(graph, self.teacher_width, rng) if self.teacher_width else None
        peak = None if order is None else int(price_orders(graph.buffers, order[None])[0])
        return Example(encode(graph, self.eigenvectors), order, peak)


def batches(
    source: Source, epoch: int, graphs: int, size: int, first: int = 0, jobs: int = 1
) -> Iterator[list[Example]]:
    """Yield the batches of an epoch from number `first` on, prepared ahead by worker processes if there are several.

    Parameters
    ----------
    source
        Of the graphs.
    epoch
        Its number, which decides its graphs.
    graphs, size
        Graphs of the epoch and of a batch; the last batch has what is left.
    first
        The first batch wanted.
    jobs
        Worker processes, on which the graphs do not depend; with 1 there are none.
    """
    numbers = range(first, (graphs + size - 1) // size)
    yield from map_in_order(partial(_batch, source, epoch, graphs, size), numbers, jobs)


def _batch(source: Source, epoch: int, graphs: int, size: int, number: int) -> list[Example]:
    return [source.example(epoch, index) for index in range(number * size, min(graphs, (number + 1) * size))]


def validation_examples(source: Source, graphs: int) -> Sequence[Example]:
    """Return graphs that no epoch trains on, for given graphs all of them."""
    count = len(source.graphs) or graphs
    return [source.example(0, index, 0 if source.graphs else VALIDATION) for index in range(count)]


def good_order(graph: CostGraph, width: int, rng: np.random.Generator) -> IndexArray:
    """Return an order of low peak: a backward beam over sets of last ops, with safe moves up to the largest op need.

    At 500 ops a width of 300 is about as good as approximate DP with K = 100,000, in a hundredth of its time.
    """
    b = graph.buffers
    search = Search(Problem(graph))
    search.rng = rng
    beam = run_beam(search, b, width, UNLIMITED, is_backward=True, floor=int((b.own + b.workspace).max()))
    assert beam.chosen is not None
    return np.ascontiguousarray(beam.chosen[::-1])
