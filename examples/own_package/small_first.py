"""A method and a generator for schedopt, in a package of their own.

usage: pip install examples/own_package
       schedopt gen ladder ladder.pb.gz --nodes 40
       schedopt solve ladder.pb.gz --method small-first:noise=0.5
"""

import heapq
from dataclasses import dataclass

import numpy as np
import schedopt


@dataclass(frozen=True)
class Parameters(schedopt.Parameters):
    """The parameters of small-first."""

    noise: float = schedopt.parameter(0.3, "standard deviation of the logarithm of each weight", low=0)


def solve(search: schedopt.Search, parameters: Parameters) -> None:
    """Offer orders that run the ready op with the smallest outputs first, weighed anew each time."""
    graph = search.problem.graph
    sizes = np.add.reduceat(np.append(graph.tensor_size, 0), graph.output_ptr[:-1])
    sizes[np.diff(graph.output_ptr) == 0] = 0
    while not search.exhausted():
        weights = sizes * search.rng.lognormal(0.0, parameters.noise, graph.num_ops)
        search.offer_order(order_by(graph, weights.tolist()))


def order_by(graph: schedopt.CostGraph, weights: list[float]) -> list[int]:
    """Return the order that always takes the ready op of least weight."""
    first, successors = graph.successors
    waiting = np.diff(graph.predecessors[0])
    ready = [(weights[op], op) for op in range(graph.num_ops) if waiting[op] == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        order.append(heapq.heappop(ready)[1])
        for successor in successors[first[order[-1]] : first[order[-1] + 1]].tolist():
            waiting[successor] -= 1
            if waiting[successor] == 0:
                heapq.heappush(ready, (weights[successor], successor))
    return order


METHOD = schedopt.Method(
    solve, "The ready op with the smallest outputs first, with noise", "an example", default_evaluations=100
)


@dataclass(frozen=True)
class Ladder(schedopt.Parameters):
    """Generate ladders: two chains of ops with a rung between each two of them."""

    nodes: int = schedopt.parameter(20, "ops per graph", low=2)
    largest: int = schedopt.parameter(1024, "largest tensor, bytes", low=1)

    @property
    def title(self) -> str:
        """The name of a graph, before its number."""
        return f"ladder-{self.nodes}"

    def draw(self, index: int, rng: np.random.Generator) -> schedopt.CostGraph:
        """Draw a ladder whose rungs lead left or right; sizes and runtimes are random."""
        builder = schedopt.GraphBuilder(f"{self.title}-{index}")
        for op in range(self.nodes):
            inputs = [(op - 2, 0)] if op >= 2 else []
            if op % 2 and rng.random() < 0.5:
                inputs.append((op - 1, 0))
            size = int(rng.integers(1, self.largest + 1))
            builder.add_op(f"op{op}", inputs=inputs, outputs=[size], runtime=float(rng.integers(1, 10)))
        return builder.build()
