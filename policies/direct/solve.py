"""`direct` at work: a network sees the graph once and gives keys, which are decoded once or 16 times; no search."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...core.base.errors import UsageError
from ...core.base.names import did_you_mean
from ...core.problem.problem import Problem
from ...core.search.parameters import parameter
from ...core.search.search import Cancelled, Search
from ..networks.shipped import WithWeights, described, network_of, weights_of
from .decoding import decode
from .features import rule_keys, seen

if TYPE_CHECKING:  # torch is loaded once there is something to decode
    from .network import DirectNetwork, DirectPolicy

DECODERS = ("greedy", "sample", "rule")
# Messages of a round take about two kilobytes and five microseconds per edge, which nothing interrupts
MOST_EDGES = 200_000
SECONDS_PER_OP = 4e-6  # what the network sees of an op takes so long to find, at least


@dataclass(frozen=True)
class Parameters(WithWeights):
    """Weights that cannot be read are refused before any run."""

    method: ClassVar[str] = "direct"
    decode: str = parameter(
        "sample",
        "greedy: the most likely keys; sample: the best of these, one device and some drawn; rule: without the network",
    )
    width: int = parameter(16, "keys that sample decodes, the most likely ones among them", low=1, high=4096)
    weights: str = parameter("", "a file of schedopt train direct, or a shipped one by name (default: what fits)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decode not in DECODERS:
            raise UsageError(
                f"decode must be greedy, sample or rule, not '{self.decode}'{did_you_mean(self.decode, DECODERS)}"
            )
        files = weights_of("direct", self.weights)
        if self.weights:
            _network(files[0])

    def check(self, problem: Problem) -> None:
        """Raise UsageError if there are no weights for this task."""
        self.file(problem)

    def file(self, problem: Problem) -> Path:
        """Return the weights for a problem: those that are named, or else the first shipped ones for its task."""
        files = weights_of("direct", self.weights)
        tasks = [described(file, ("task",))[0] for file in files]
        if problem.task in tasks:
            return files[tasks.index(problem.task)]
        remedy = f"schedopt train direct --task {problem.task} makes some"
        if self.weights:
            raise UsageError(f"{self.weights}: these weights are for {tasks[0]}, not for {problem.task}; {remedy}")
        raise UsageError(f"direct has no weights for {problem.task}, only for {' and '.join(tasks)}; {remedy}")


def _network(file: Path) -> DirectNetwork:
    from .network import load_network

    return network_of(file, load_network)


def solve(search: Search, parameters: Parameters) -> None:
    """Offer what the keys of the network decode to; else those of the rule that it corrects, with a note."""
    # On one thread the last bits of what the network gives do not depend on their number.
    if search.exhausted():
        return
    keys = None if parameters.decode == "rule" else _keys(search, parameters)
    if search.interrupt.is_set():
        return
    decode(search, rule_keys(search.problem)[None] if keys is None else keys)


def _keys(search: Search, parameters: Parameters) -> Any:
    """Return the rows of keys to decode, shape `(rows, ops + 1)`; None with a note."""
    import torch

    from ..networks.interrupts import heeding
    from ..networks.message_passing import using_threads
    from .network import batch_of

    graph = search.problem.graph
    edges = len(graph.edges[0])
    if edges > MOST_EDGES:
        why = f"{edges:,} edges are too many for direct's network, which takes {MOST_EDGES:,}"
        search.note(f"{graph.name}: {why}; the keys are those of the rule that it corrects")
        return None
    network = _network(parameters.file(search.problem))
    if search.has_time_for(SECONDS_PER_OP * graph.num_ops):
        with suppress(Cancelled), torch.inference_mode(), using_threads(1), heeding(search, network):
            return _rows(network(batch_of([seen(search.problem, search.exhausted)])), search, parameters)
    why = "there was no time for direct's network"
    search.note(f"{graph.name}: {why}; the keys are those of the rule that it corrects")
    return None


def _rows(policy: DirectPolicy, search: Search, parameters: Parameters) -> Any:
    width = int(min(parameters.width, search.evaluations_left)) if parameters.decode == "sample" else 1
    (rows,) = policy.to_decode(max(1, width), search.rng)
    return rows
