"""Graphs to train on: drawn afresh or from files, encoded, and with an order of a search to imitate."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ...core.base.arrays import IndexArray
from ...core.base.parallel import map_in_order
from ...core.files.costgraph import graph_hash
from ...core.graph.graph import CostGraph
from ...core.kernels.orders.priority_orders import price_orders
from ...core.problem.problem import Problem
from ...core.search.search import Search
from ...core.solve.solve import solve
from ...core.solvers.orders.approximate_dp import UNLIMITED, run_beam
from ...datasets.layered import LayeredParameters, layered_graph
from ..training.kept_orders import kept_orders
from .batch import EncodedGraph, encode

VALIDATION = 2**31
# Ops of the largest graph to train on: attention among all of them takes memory in their square, per layer
MOST_OPS = 10_000


@dataclass(frozen=True, eq=False)
class Example:
    """A graph to train on."""

    encoded: EncodedGraph  # what the network sees of the graph
    # an order to imitate, shape `(ops,)`, and its peak in bytes, persistent ones left out; None if not asked for
    order: IndexArray | None
    peak: int | None


@dataclass(frozen=True)
class Source:
    """Layered graphs, each drawn afresh."""

    seed: int  # seed of all random choices
    nodes: tuple[int, int]  # the least and the most ops, both included; each graph draws its own number
    eigenvectors: int = 20  # number of eigenvectors among the features, see `op_features`; 20 by default
    teacher_width: int = 0  # width of the beam that finds orders to imitate; by default 0, for none

    def example(self, epoch: int, index: int) -> Example:
        """Return a graph of an epoch: the same one for the same numbers, in any process."""
        rng = np.random.default_rng([self.seed, epoch, index])
        ops = int(rng.integers(self.nodes[0], self.nodes[1] + 1))
        graph = layered_graph(LayeredParameters(nodes=ops), rng, f"layered-{epoch}-{index}")
        order = good_order(graph, self.teacher_width, rng) if self.teacher_width else None
        return make_example(self.eigenvectors, (graph, order))

    def examples(self, epoch: int, graphs: range) -> list[Example]:
        """Return several graphs of an epoch."""
        return [self.example(epoch, index) for index in graphs]


def make_example(eigenvectors: int, pair: tuple[CostGraph, IndexArray | None]) -> Example:
    """Encode a graph, and price the order to imitate if there is one."""
    graph, order = pair
    peak = None if order is None else int(price_orders(graph.buffers, order[None])[0])
    return Example(encode(graph, eigenvectors), order, peak)


def layered_batches(
    source: Source, epoch: int, ranges: Sequence[range], jobs: int = 1
) -> Generator[list[Example], None, None]:
    """Yield batches of layered graphs."""
    yield from map_in_order(partial(source.examples, epoch), ranges, jobs)


def validation_examples(source: Source, graphs: int, jobs: int = 1) -> Iterator[Example]:
    """Yield layered graphs that no epoch trains on."""
    return map_in_order(partial(source.example, 0), range(VALIDATION, VALIDATION + graphs), jobs)


def encoded_examples(
    graphs: Sequence[CostGraph], orders: Sequence[IndexArray], eigenvectors: int, jobs: int = 1
) -> list[Example]:
    """Encode given graphs, with an order of each or none at all."""
    known: Sequence[IndexArray | None] = orders or [None] * len(graphs)
    pairs = zip(graphs, known, strict=True)
    return list(map_in_order(partial(make_example, eigenvectors), pairs, jobs))


def good_order(graph: CostGraph, width: int, rng: np.random.Generator) -> IndexArray:
    """Return an order of low peak: a backward beam over sets of last ops, with safe moves up to the largest op need."""
    b = graph.buffers
    search = Search(Problem(graph), seed=rng)
    beam = run_beam(search, b, width, UNLIMITED, is_backward=True, floor=int((b.own + b.workspace).max()))
    assert beam.chosen is not None
    return np.ascontiguousarray(beam.chosen[::-1])


def searched_orders(
    graphs: Sequence[CostGraph],
    path: str | Path,
    *,
    evaluations: int,
    seed: int,
    jobs: int = 1,
    on_order: Callable[[int], None] = lambda count: None,
    must_stop: Callable[[], bool] = lambda: False,
) -> list[IndexArray] | None:
    """Return an order of low peak for each graph, or None if told to stop; see `kept_orders`."""
    keys = [f"{graph_hash(graph)}-{evaluations}-{seed}" for graph in graphs]
    problems = dict(zip(keys, map(Problem, graphs), strict=True))
    orders = kept_orders(problems, path, "order", partial(_search, evaluations, seed), jobs, on_order, must_stop)
    return None if orders is None else [orders[key] for key in keys]


def _search(evaluations: int, seed: int, problem: Problem) -> IndexArray:
    return solve(problem, "order-search", evaluations=evaluations, seed=seed).schedule.op_order()
