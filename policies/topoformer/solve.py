"""Topoformer at work: a network sees a graph once, and orders are decoded from its output (Topoformer 4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...core.base.arrays import IndexArray
from ...core.base.errors import UsageError
from ...core.base.speed import seconds_for
from ...core.problem.schedule import Schedule
from ...core.search.parameters import parameter
from ...core.search.registry import INPUT_METHOD
from ...core.search.search import Cancelled, Search
from ...core.solvers.orders.baselines import reverse_postorder
from ...core.solvers.placements.peak_annealing import place
from ..networks.shipped import WithWeights, weights_file

if TYPE_CHECKING:  # torch is loaded once there is something to decode
    from .network import NetworkParameters, Policy

MOST_OPS = 20_000  # relations between all pairs of ops take their square in bytes, several times: about 3 GiB here
PAIR = 0.003  # numbers sorted in the time of one entry of a query of a pair of ops, on one core
NEXT_BEST = ("lpmf", "dfs-postorder")
# Ops up to which the last of these is made even when told to stop, in a few tenths of a second
LARGEST_ANYHOW = 200_000


@dataclass(frozen=True)
class Parameters(WithWeights):
    """How orders are decoded."""

    method: ClassVar[str] = "topoformer"
    room: ClassVar[str] = "topoformer"
    decoders: ClassVar[tuple[str, ...]] = ("greedy", "sample", "beam", "two-way")
    decode: str = parameter(
        "two-way",
        "greedy: the most urgent op; sample: the best of some draws; beam: beam search; "
        "two-way: beams from both ends in turn, each below the best peak so far",
    )
    width: int = parameter(16, "orders that are drawn, or partial orders in the first beam", low=1, high=4096)
    passes: int = parameter(
        400,
        "most passes over the orders of greedy, sample and beam, from both ends, that tighten them (peak memory on one "
        "device); paper 0",
        low=0,
    )
    weights: str = parameter("", "a file of schedopt train topoformer, or a shipped name (default: one that fits)")

    def __post_init__(self) -> None:
        super().__post_init__()
        decoder = self.network(weights_file(self.weights)).parameters_.decoder if self.weights else "priorities"
        if self.decode == "two-way" and decoder != "priorities":
            has = f"{self.weights} has an {decoder} decoder; decode by beam"
            raise UsageError(f"decode two-way needs a priority per op, and {has}")


def solve(search: Search, parameters: Parameters) -> None:
    """Offer the best of the decoded orders; on several devices, place them all."""
    # Greedy decoding counts one evaluation, sampling one per order, a beam one per partial order that it keeps; so does
    # an order in a pass that tightens it. On several devices at most half of the budget goes into the orders. The
    # number of torch's threads can change the last bits of the priorities, and so in rare cases an order.
    if search.exhausted():
        return
    if (orders := _orders_by_network(search, parameters)) is None:
        orders = _next_best(search)
    if search.problem.devices > 1:
        place(search, orders)


def _orders_by_network(search: Search, parameters: Parameters) -> IndexArray | None:
    """Offer the best order on one device and return all, the best first, shape `(rows, ops)`; None with a note."""
    import torch

    from ..networks.network import heeding, stop_if_due
    from .features import encode

    graph = search.problem.graph
    instead = f"this is the better order of {' and '.join(NEXT_BEST)}"
    if graph.num_ops > MOST_OPS:
        too_many = f"{graph.num_ops:,} ops are too many for topoformer, which takes {MOST_OPS:,}"
        search.note(f"{graph.name}: {too_many}; {instead}")
        return None

    network = parameters.network(parameters.file(search.problem))
    try:
        if search.has_time_for(seconds_for(_work(network.parameters_, graph.num_ops))):
            with torch.inference_mode(), heeding(search, network):
                policy = network([encode(graph, network.parameters_.eigenvectors, partial(stop_if_due, search))])
                return _decode(search, parameters, policy)
    except Cancelled:
        instead = f"this is the order of {NEXT_BEST[-1]}"
    search.note(f"{graph.name}: topoformer's network had no time to finish; {instead}")
    return None


def _work(p: NetworkParameters, ops: int) -> float:
    """Return about how much work a network is: nearly all of it goes into attention between all pairs of ops."""
    from .encoders import DENSE

    heads = p.heads if p.encoder.endswith("transformer") else 0
    if p.encoder.startswith("topoformer"):
        heads = sum(count for count, is_dense in zip(p.topological_heads, DENSE, strict=True) if is_dense)
    return PAIR * p.layers * heads * p.head_width * ops**2


def _decode(search: Search, parameters: Parameters, policy: Policy) -> IndexArray:
    from .decoding import decode_two_way, tightened
    from .network import PriorityPolicy

    is_one_device, graph = search.problem.devices == 1, search.problem.graph
    is_bounded = is_one_device and search.problem.task == "memory"
    bound = int(search.lower_bound) - int(graph.persistent.sum()) if is_bounded else 0
    most = max(1.0, (1.0 if is_one_device else 0.5) * search.evaluations_left)
    width = kept = 1 if parameters.decode == "greedy" else int(min(parameters.width, most))
    passes = min(parameters.passes, most - kept) if is_bounded else 0
    priorities = policy.of_ops() if isinstance(policy, PriorityPolicy) else None
    tighten = partial(tightened, graph.buffers, priorities=priorities, bound=bound, must_stop=search.exhausted)
    if parameters.decode == "greedy":
        (decoded,) = policy.greedy()
    elif parameters.decode == "sample":
        (decoded,) = policy.sample(width, search.rng)
    elif parameters.decode == "beam" and passes >= 1:  # below the greedy order, which counts as a pass
        first, done = tighten(policy.greedy()[0], most=passes - 1)
        (found,) = policy.beam(width, int(first.peaks[0]), search.exhausted)
        decoded, passes, kept = found, passes - 1 - done, kept + 1 + done
        if not len(found.orders):  # none is below it, and it is tightened already
            decoded, passes = first, 0
    elif parameters.decode == "beam":
        (decoded,) = policy.beam(width, must_stop=search.exhausted)
        if not len(decoded.orders):  # told to stop
            (decoded,) = policy.greedy()
    else:
        ends = partial(decode_two_way, graph.buffers, priorities, width)  # `Parameters` refuses others without any
        decoded, kept = ends(most=most, bound=bound, must_stop=search.exhausted)
        passes = 0
    decoded, done = tighten(decoded, most=passes)
    orders = decoded.orders[np.argsort(decoded.peaks, kind="stable")]
    search.spend(kept + done)
    search.offer(Schedule.single_device(orders[0]))
    return orders


def _next_best(search: Search) -> IndexArray:
    """Offer the better order of the methods that take the network's place; return it, shape `(1, ops)`."""
    for name in NEXT_BEST:
        if search.evaluations_left >= 1:
            search.run(name)
    graph = search.problem.graph
    if search.best is None and graph.num_ops <= LARGEST_ANYHOW:  # told to stop before either was made
        search.offer_order(reverse_postorder(graph), by=NEXT_BEST[-1])
    elif search.best is None:
        search.offer_order(graph.input_order, by=INPUT_METHOD)
        search.note(f"{graph.name}: there was no time for any of these; this is the order of the file")
    assert search.best is not None
    search.credit(search.found_by)
    return search.best.op_order()[None]
