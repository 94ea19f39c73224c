"""REGAL at work: a network sees a short search's result, and chooses a longer one's distributions (REGAL 4)."""

from dataclasses import dataclass
from typing import ClassVar, Literal, cast, get_args

from ...core.base.errors import UsageError
from ...core.problem.problem import Problem
from ...core.search.parameters import parameter
from ...core.search.search import Cancelled, Search
from ...core.solvers.placements import brkga
from ...core.solvers.placements.brkga import GeneDistribution, evolve
from ...core.solvers.placements.chromosomes import Chromosomes
from ..networks.shipped import WithWeights, described, weights_file
from .actions import Taken

MOST_DEVICES = 8
MOST_ROWS = 100  # of chromosomes that random search draws at once
MOST_EDGES = 1_000_000  # the messages of a round take about two kilobytes per edge


@dataclass(frozen=True)
class Parameters(WithWeights):
    """How the policy is used; BRKGA has its defaults."""

    method: ClassVar[str] = "regal"
    room: ClassVar[str] = "regal"
    needs: ClassVar[tuple[str, ...]] = ("task", "devices")
    encoder: ClassVar[str] = "gnn"

    weights: str = parameter("", "a file of schedopt train, or a shipped name (default: one that fits)")
    actions: str = parameter(
        "", "expected (mean levels, rounded), most-likely, or sample (drawn, the paper's); default: the weights'"
    )
    features: int = parameter(400, "evaluations of plain brkga whose results the network sees; paper 400", low=1)
    search: Literal["brkga", "random"] = parameter(
        "brkga", "brkga; random: one generation, as large as the budget left (IDRS)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.actions not in ("", *get_args(Taken)):
            raise UsageError(f"actions must be one of {', '.join(get_args(Taken))}, not '{self.actions}'")
        if self.weights and described(weights_file(self.weights), ("encoder",)) != (self.encoder,):
            other = {"regal": "gas", "gas": "regal"}[self.method]
            made_by = f"schedopt train {other}, not of schedopt train {self.method}"
            raise UsageError(f"{self.weights}: these weights are of {made_by}")

    def remedy(self, problem: Problem) -> str:
        """See `WithWeights`."""
        if problem.devices > MOST_DEVICES:
            return f"there can be some for 2 to {MOST_DEVICES} devices"
        return super().remedy(problem)


def solve(search: Search, parameters: Parameters) -> None:
    """Run plain BRKGA for the features, then BRKGA, or random search, with the network's choices."""
    # On one thread the last bits of what the network gives do not depend on their number.
    distribution = propose(search, parameters)
    if distribution is None:
        return
    if parameters.search == "brkga":
        evolve(search, brkga.Parameters(), distribution)
        return
    with Chromosomes(search) as chromosomes:
        while not search.exhausted():
            rows = int(min(MOST_ROWS, search.evaluations_left))
            chromosomes.price(distribution.sample(search.rng, rows, chromosomes.genes))


def propose(search: Search, parameters: Parameters) -> GeneDistribution | None:
    """Spend some evaluations on the features, and return the policy's choices; None if the search must stop."""
    # The features take at most half of the evaluations, and the generations in which half of the time passes.
    import torch

    from ..networks.message_passing import using_threads
    from ..networks.network import heeding
    from .actions import dequantise
    from .features import searched_graph
    from .network import multigraph_batch, taken_actions

    if search.exhausted():
        return None
    network = parameters.network(parameters.file(search.problem))
    evaluations = max(1.0, min(parameters.features, search.evaluations_left / 2))
    try:
        graph = searched_graph(search, int(evaluations), search.share_of_time(0.5))
    except Cancelled:
        return None
    name, edges = search.problem.graph.name, len(graph.edges)
    no_time = f"{name}: there was no time for {parameters.method}'s network; this is what plain brkga found"
    if search.exhausted():
        if search.timed_out:
            search.note(no_time)
        return None
    if edges > MOST_EDGES:
        too_many = f"{edges:,} edges are too many for {parameters.method}'s network, which takes {MOST_EDGES:,}"
        search.note(f"{name}: {too_many}; all genes are drawn as plain brkga draws them")
        return GeneDistribution()
    try:
        with torch.inference_mode(), using_threads(1), heeding(search, network):
            policy = network(multigraph_batch([graph], ratios=network.parameters_.ratios))
            taken = cast("Taken", parameters.actions or network.parameters_.taken)
            actions = taken_actions(policy, taken, lambda: int(search.rng.integers(2**62)))
    except Cancelled:
        search.note(no_time)
        return None
    levels = network.parameters_.actions
    return dequantise(actions.numpy(), search.problem.graph, search.problem.devices, levels)
