"""`direct` at work: a rule or a network gives keys, which are decoded once or with draws around them; no search."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from ...core.base.errors import UsageError
from ...core.base.speed import seconds_for
from ...core.problem.problem import Problem
from ...core.search.parameters import parameter
from ...core.search.search import Cancelled, Search
from ..networks.shipped import WithWeights
from .keys import decode, has_types, rule_keys, seen, to_decode

# A round of messages takes about two kilobytes per edge, and nothing interrupts it
MOST_EDGES = 200_000
OP = 50.0  # numbers sorted in the time of finding the features of an op, at least


@dataclass(frozen=True)
class Parameters(WithWeights):
    """Where keys come from, and how they are decoded."""

    method: ClassVar[str] = "direct"
    room: ClassVar[str] = "direct"
    decoders: ClassVar[tuple[str, ...]] = ("greedy", "sample", "rule")
    decode: str = parameter(
        "sample",
        "greedy: the most likely keys; sample: the best of these, one device and some drawn; rule: without the network",
    )
    width: int = parameter(16, "keys that sample decodes, the most likely ones among them", low=1, high=4096)
    weights: str = parameter("", "a file of schedopt train direct, or a shipped name (default: one that fits)")

    def check(self, problem: Problem) -> None:
        """See `WithWeights`."""
        if self.weights and not has_types(problem):
            only = "for makespans where transfers are free and some op cannot run on some device"
            raise UsageError(f"{self.weights}: weights of direct are {only}; leave them out")


def solve(search: Search, parameters: Parameters) -> None:
    """Offer the schedules of the network's keys, or else of the rule that it corrects, and of draws around them."""
    if search.exhausted():
        return
    problem, keys = search.problem, None
    if parameters.decode != "rule" and has_types(problem):
        keys = _keys(search, parameters.network(parameters.file(problem)))
    if search.interrupt.is_set():
        return
    width = int(min(parameters.width, search.evaluations_left)) if parameters.decode == "sample" else 1
    decode(search, to_decode(rule_keys(problem) if keys is None else keys, max(1, width), search.rng))


def _keys(search: Search, network: Any) -> Any:
    """Return the most likely keys, shape `(ops + 1,)`; None with a note."""
    # On one thread the last bits of what the network gives do not depend on their number.
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
        with suppress(Cancelled), torch.inference_mode(), using_threads(1), heeding(search, network):
            return network(batch_of([seen(search.problem, search.exhausted)])).most_likely()[0]
    search.note(f"{graph.name}: {why}; the rule that it corrects gives the keys")
    return None
