"""`direct` at work: a network sees the graph once and gives keys, which are decoded once or 16 times; no search."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...core.base.speed import seconds_for
from ...core.problem.problem import Problem
from ...core.search.parameters import parameter
from ...core.search.search import Cancelled, Search
from ..networks.shipped import WithWeights, weights_file
from .keys import decode, has_types, rule_keys, seen

# A round of messages takes about two kilobytes per edge, and nothing interrupts it
MOST_EDGES = 200_000
OP = 50.0  # numbers sorted in the time of finding the features of an op, at least


@dataclass(frozen=True)
class Parameters(WithWeights):
    """How the network's keys are decoded."""

    method: ClassVar[str] = "direct"
    room: ClassVar[str] = "direct"
    needs: ClassVar[tuple[str, ...]] = ("task",)
    decoders: ClassVar[tuple[str, ...]] = ("greedy", "sample", "rule")
    decode: str = parameter(
        "sample",
        "greedy: the most likely keys; sample: the best of these, one device and some drawn; rule: without the network",
    )
    width: int = parameter(16, "keys that sample decodes, the most likely ones among them", low=1, high=4096)
    weights: str = parameter("", "a file of schedopt train direct, or a shipped name (default: one that fits)")

    def file(self, problem: Problem) -> Path:
        """Return the weights that are named, or else those that learned from such devices."""
        is_typed = not self.weights and problem.task == "runtime" and has_types(problem)
        return weights_file("direct-runtime-types") if is_typed else super().file(problem)


def solve(search: Search, parameters: Parameters) -> None:
    """Offer the schedules of the network's keys; else those of the rule that it corrects, with a note."""
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

    from ..networks.message_passing import using_threads
    from ..networks.network import heeding
    from .network import batch_of

    graph = search.problem.graph
    edges = len(graph.edges[0])
    why = "there was no time for direct's network"
    if edges > MOST_EDGES:
        why = f"{edges:,} edges are too many for direct's network, which takes {MOST_EDGES:,}"
    elif search.has_time_for(seconds_for(OP * graph.num_ops)):
        network = parameters.network(parameters.file(search.problem))
        with suppress(Cancelled), torch.inference_mode(), using_threads(1), heeding(search, network):
            policy = network(batch_of([seen(search.problem, search.exhausted)]))
            width = int(min(parameters.width, search.evaluations_left)) if parameters.decode == "sample" else 1
            (rows,) = policy.to_decode(max(1, width), search.rng)
            return rows
    search.note(f"{graph.name}: {why}; the rule that it corrects gives the keys")
    return None
