"""Synthetic graphs from four random graph models (REGAL A.1.4 and table 2)."""

import bisect
import math
from dataclasses import dataclass
from typing import Literal, get_args

import networkx
import numpy as np
from numpy.typing import NDArray

from ..core.base.errors import UsageError
from ..core.graph.builder import GraphBuilder
from ..core.graph.graph import CostGraph
from ..core.search.parameters import Parameters, parameter
from .layered import check_weights, normalized

Model = Literal["erdos-renyi", "barabasi-albert", "watts-strogatz", "stochastic-block"]
Costs = Literal["inputs-outputs", "outputs"]
MODELS: tuple[Model, ...] = get_args(Model)
COSTS: tuple[Costs, ...] = get_args(Costs)
_MODELS_HELP = "models that take turns, commas between: erdos-renyi, barabasi-albert, watts-strogatz, stochastic-block"
_COSTS_HELP = "runtimes from the sizes of inputs-outputs (A.1.4), or of outputs (the example of the authors' README)"


@dataclass(frozen=True)
class SyntheticParameters(Parameters):
    """The paper's synthetic graphs; a runtime is the bytes that an op touches times 1 + r, r ~ N(0, noise_std)."""

    nodes_low: int = parameter(50, "fewest ops, source and sink not counted", low=1)
    nodes_high: int = parameter(200, "most ops, source and sink not counted", low=1)
    models: tuple[Model, ...] = parameter(MODELS, _MODELS_HELP)
    erdos_renyi_p: float = parameter(0.05, "edge probability p of erdos-renyi", low=0, high=1)
    barabasi_albert_m: int = parameter(2, "previous nodes each is connected to, m of barabasi-albert", low=1)
    watts_strogatz_k: int = parameter(4, "neighbours k of watts-strogatz", low=2)
    watts_strogatz_p: float = parameter(0.3, "swap probability p of watts-strogatz", low=0, high=1)
    blocks: int = parameter(4, "blocks k of stochastic-block", low=1)
    block_within: float = parameter(0.3, "edge probability p within a block", low=0, high=1)
    block_across: float = parameter(0.01, "edge probability q across blocks", low=0, high=1)
    output_weights: tuple[float, ...] = parameter((0.1, 0.8, 0.1), "probabilities of 0, 1 and 2 outputs")
    control_probability: float = parameter(0.2, "share of control edges after ops with outputs", low=0, high=1)
    size_mean: float = parameter(50.0, "mean of the tensor sizes, bytes", low=1, high=2**40)
    size_std: float = parameter(10.0, "their standard deviation, bytes", low=0, high=2**40)
    noise_std: float = parameter(0.1, "standard deviation of the runtimes' noise r", low=0, high=10)
    costs: Costs = parameter("inputs-outputs", _COSTS_HELP)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.models:
            raise UsageError("models must name at least one")
        if self.nodes_low > self.nodes_high:
            raise UsageError(f"the range of the nodes begins above its end: {self.nodes_low} to {self.nodes_high}")
        for model, least in (
            ("barabasi-albert", self.barabasi_albert_m + 1),
            ("watts-strogatz", self.watts_strogatz_k),
            ("stochastic-block", self.blocks),
        ):
            if model in self.models and self.nodes_low < least:
                raise UsageError(f"{model} needs at least {least} nodes, not {self.nodes_low}")
        if len(self.output_weights) != 3:
            raise UsageError(f"output_weights must be three numbers, not {self.output_weights}")
        check_weights("output_weights", self.output_weights)

    @property
    def title(self) -> str:
        """The name of its graphs in a data set, before their number."""
        return "synthetic"

    def draw(self, index: int, rng: np.random.Generator) -> CostGraph:
        """Draw the graph of this index in a data set, from the model whose turn it is."""
        model = self.models[index % len(self.models)]
        return synthetic_graph(self, model, rng, f"{model}-{index}")


def synthetic_graph(
    parameters: SyntheticParameters, model: Model, rng: np.random.Generator, name: str = "synthetic"
) -> CostGraph:
    """Draw a synthetic graph with one source and one sink, which have no costs."""
    # Control edges lead from the source, which has no outputs. Ops are in the random ordering that directed the edges.
    nodes = int(rng.integers(parameters.nodes_low, parameters.nodes_high + 1))
    undirected = _undirected(parameters, model, nodes, int(rng.integers(2**31)))
    place: NDArray[np.int64] = rng.permutation(nodes)
    producers: list[list[int]] = [[] for _ in range(nodes)]
    for edge in undirected.edges():
        before, after = sorted(int(place[node]) for node in edge)
        bisect.insort(producers[after], before)
    outputs = rng.choice(3, nodes, p=normalized(parameters.output_weights))
    drawn = [rng.normal(parameters.size_mean, parameters.size_std, int(count)).tolist() for count in outputs]
    sizes = [[max(1, math.floor(size + 0.5)) for size in of_op] for of_op in drawn]
    has_successor = {producer for before in producers for producer in before}
    tails = [op for op in range(nodes) if op not in has_successor]

    builder = GraphBuilder(name)
    source, first = 0, 1
    builder.add_op("_SOURCE")
    for op in range(nodes):
        inputs, control = _dependencies(parameters, producers[op], sizes, rng)
        touched = sum(sizes[op])
        if parameters.costs == "inputs-outputs":
            touched += sum(sizes[producer][port] for producer, port in inputs)
        builder.add_op(
            f"op{op}",
            inputs=[(first + producer, port) for producer, port in inputs],
            control=[first + c for c in control] if producers[op] else [source],
            outputs=sizes[op],
            runtime=max(0.0, math.floor(touched * (1 + rng.normal(0, parameters.noise_std)) + 0.5)),
        )
    inputs, control = _dependencies(parameters, tails, sizes, rng)
    builder.add_op(
        "_SINK", inputs=[(first + producer, port) for producer, port in inputs], control=[first + c for c in control]
    )
    return builder.build()


def _undirected(parameters: SyntheticParameters, model: Model, nodes: int, seed: int) -> networkx.Graph:
    """Sample the undirected graph of table 2 on nodes 0 to `nodes` - 1."""
    if model == "erdos-renyi":
        return networkx.gnp_random_graph(nodes, parameters.erdos_renyi_p, seed=seed)
    if model == "barabasi-albert":
        return networkx.barabasi_albert_graph(nodes, parameters.barabasi_albert_m, seed=seed)
    if model == "watts-strogatz":
        k, p = parameters.watts_strogatz_k, parameters.watts_strogatz_p
        return networkx.watts_strogatz_graph(nodes, k, p, seed=seed)
    blocks, within, across = parameters.blocks, parameters.block_within, parameters.block_across
    sizes = [(nodes + block) // blocks for block in range(blocks)]
    probabilities = [[within if a == b else across for b in range(blocks)] for a in range(blocks)]
    return networkx.stochastic_block_model(sizes, probabilities, seed=seed)


def _dependencies(
    parameters: SyntheticParameters, producers: list[int], sizes: list[list[int]], rng: np.random.Generator
) -> tuple[list[tuple[int, int]], list[int]]:
    """Make each dependency a data one, `(producer, port)`, or a control one."""
    inputs: list[tuple[int, int]] = []
    control: list[int] = []
    for producer in producers:
        if not sizes[producer] or rng.random() < parameters.control_probability:
            control.append(producer)
        else:
            inputs.append((producer, int(rng.integers(len(sizes[producer])))))
    return inputs, control
