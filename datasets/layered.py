"""Layered graphs: random graphs built like neural networks (Topoformer, appendix A, Algorithms 1 to 3)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..core.base.arrays import FloatArray
from ..core.base.errors import UsageError
from ..core.graph.builder import GraphBuilder
from ..core.graph.graph import CostGraph
from ..core.search.parameters import Parameters, parameter

Edges = list[tuple[int, int]]


@dataclass(frozen=True)
class LayeredParameters(Parameters):
    """The parameters of a layered graph, by default the paper's: width by eq. 11, costs in units by eq. 16."""

    nodes: int = parameter(500, "ops per graph, |V|", low=1)
    width_low: float = parameter(0.25, "lower end of the width factor W", low=0.001, high=1)
    width_high: float = parameter(0.5, "upper end of the width factor W", low=0.001, high=1)
    node_variability: float = parameter(0.75, "variability of the ops per layer, sigma_N", low=0, high=0.999)
    edge_density: float = parameter(0.2, "density of edges between layers, rho_E", low=0, high=1)
    skip_density: float = parameter(0.14, "share of skip connections among edges, rho_S", low=0, high=0.999)
    cost_means: tuple[float, ...] = parameter((0.5, 1.0, 3.0, 5.0), "means of the mixture of costs, mu")
    cost_stds: tuple[float, ...] = parameter((0.5, 1.0, 1.0, 1.0), "standard deviations of that mixture, sigma")
    cost_weights: tuple[float, ...] = parameter((0.3, 0.3, 0.3, 0.1), "weights of that mixture, w")
    unit: int = parameter(2**20, "bytes per unit of cost", low=1, high=2**40)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width_low > self.width_high:
            raise UsageError(f"the range of the width begins above its end: {self.width_low} to {self.width_high}")
        if not len(self.cost_means) == len(self.cost_stds) == len(self.cost_weights) > 0:
            raise UsageError("cost_means, cost_stds and cost_weights must have equally many numbers")
        if not all(abs(mean) <= 1e4 for mean in self.cost_means):
            raise UsageError(f"cost_means must be from -10000 to 10000, not {self.cost_means}")
        if not all(0 <= std <= 1e4 for std in self.cost_stds):
            raise UsageError(f"cost_stds must be from 0 to 10000, not {self.cost_stds}")
        check_weights("cost_weights", self.cost_weights)
        if self._positive_share() < 0.01:
            raise UsageError("with these cost_means and cost_stds, costs are hardly ever positive")

    def _positive_share(self) -> float:
        """Return the probability that a draw from the mixture is positive."""
        share = 0.0
        for mean, std, weight in zip(self.cost_means, self.cost_stds, self.cost_weights, strict=True):
            share += weight * (0.5 * (1 + math.erf(mean / std / math.sqrt(2))) if std else float(mean > 0))
        return share / sum(self.cost_weights)

    @property
    def title(self) -> str:
        """The name of its graphs in a data set, before their number."""
        return f"layered-{self.nodes}"

    def draw(self, index: int, rng: np.random.Generator) -> CostGraph:
        """Draw the graph of this index in a data set."""
        return layered_graph(self, rng, f"layered-{index}")


def layered_graph(parameters: LayeredParameters, rng: np.random.Generator, name: str = "layered") -> CostGraph:
    """Draw a layered graph."""
    # Each op has its layer's output cost and, as workspace, its parameter cost, bytes; an edge drawn twice is one.
    layers = assign_nodes(parameters, rng)
    edges = assign_edges(layers, parameters.edge_density, rng)
    edges += assign_skip_connections(layers, len(edges), parameters.skip_density, rng)
    output = draw_costs(parameters, len(layers), rng).tolist()
    workspace = draw_costs(parameters, len(layers), rng).tolist()

    producers: list[set[int]] = [set() for _ in range(parameters.nodes)]
    for source, target in edges:
        producers[target].add(source)
    builder = GraphBuilder(name)
    for layer, ops in enumerate(layers):
        for op in ops:
            builder.add_op(
                f"layer{layer}/op{op}",
                inputs=[(producer, 0) for producer in sorted(producers[op])],
                outputs=[output[layer]],
                workspace=workspace[layer],
            )
    return builder.build()


def assign_nodes(parameters: LayeredParameters, rng: np.random.Generator) -> list[range]:
    """Algorithm 1: the ops of each layer; the last layer takes the rest."""
    nodes, variability = parameters.nodes, parameters.node_variability
    width = rng.uniform(parameters.width_low, parameters.width_high)
    target_layers = max(1, math.ceil(math.sqrt(nodes * (1 / width - 1))))  # eq. 11
    mean = nodes / target_layers
    fewest = max(1, math.ceil(round(mean * (1 - variability), 9)))
    most = max(fewest, math.floor(round(mean * (1 + variability), 9)))  # eq. 12
    layers: list[range] = []
    placed = 0
    while placed < nodes:
        size = min(int(rng.integers(fewest, most + 1)), nodes - placed)
        layers.append(range(placed, placed + size))
        placed += size
    return layers


def edge_budget(size: int, next_size: int, density: float) -> int:
    """Return the number of edges between two adjacent layers (eq. 13), rounded to the closest integer."""
    return math.floor(size * next_size * density + (1 - density) * max(size, next_size) + 0.5)


def assign_edges(layers: list[range], density: float, rng: np.random.Generator) -> Edges:
    """Algorithm 2: edges between adjacent layers, as `(producer, consumer)`."""
    # An edge goes to an op with the fewest so far, ties at random.
    edges: Edges = []
    for first, second in pairwise(layers):
        forward = len(first) >= len(second)
        large, small = (first, second) if forward else (second, first)
        base, extra = divmod(edge_budget(len(first), len(second), density), len(large))
        counts = np.full(len(large), base)
        counts[rng.permutation(len(large))[:extra]] += 1
        last = len(small) - 1
        for n, count in enumerate(counts.tolist()):
            center = math.floor(n * last / (len(large) - 1) + 0.5) if len(large) > 1 else 0
            start = min(max(center - (count - 1) // 2, 0), last + 1 - count)
            for other in small[start : start + count]:
                edges.append((large[n], other) if forward else (other, large[n]))
    return edges


def assign_skip_connections(layers: list[range], edges: int, density: float, rng: np.random.Generator) -> Edges:
    """Algorithm 3: edges that skip at least one layer, as `(producer, consumer)`; repeats are possible."""
    if len(layers) < 3:
        return []
    count = math.ceil(round(edges * density / (1 - density), 9))  # eq. 14
    source = rng.integers(0, len(layers) - 2, count)
    target = rng.integers(source + 2, len(layers))
    source_place = rng.random(count)
    target_place = np.minimum(source_place + 0.2 * rng.random(count), 0.999)
    columns = zip(*(a.tolist() for a in (source, target, source_place, target_place)), strict=True)
    return [(layers[s][int(x * len(layers[s]))], layers[t][int(y * len(layers[t]))]) for s, t, x, y in columns]


def draw_costs(parameters: LayeredParameters, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` costs in bytes from the mixture (eq. 16), each again until it is positive; at least 1."""
    weights = normalized(parameters.cost_weights)
    means, stds = np.array(parameters.cost_means), np.array(parameters.cost_stds)
    costs = np.zeros(count)
    while (open_ := np.flatnonzero(costs <= 0)).size:
        component = rng.choice(len(weights), len(open_), p=weights)
        costs[open_] = rng.normal(means[component], stds[component])
    return np.maximum(np.rint(costs * parameters.unit), 1).astype(np.int64)


def check_weights(name: str, weights: Sequence[float]) -> None:
    """Raise UsageError unless weights are finite, none is negative, and not all are 0."""
    if not (all(0 <= weight < math.inf for weight in weights) and sum(weights) > 0):
        raise UsageError(f"{name} must be at least 0 and not all 0, not {tuple(weights)}")


def normalized(weights: Sequence[float]) -> FloatArray:
    """Return the weights as probabilities."""
    return np.array(weights, np.float64) / sum(weights)
