"""Approximate dynamic programming over executed-op sets (Topoformer C.3), peak memory on one device."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .. import parameters as base
from ..buffers import Buffers
from ..graph import CostGraph, IndexArray
from ..kernels.beam import backward_walk, expand, first_level, forward_walk, materialise, new_candidates
from ..parameters import parameter
from ..search import Search

UNLIMITED = 2**62


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """K of the paper, which takes 100,000."""

    beam_size: int = parameter(10_000, "states kept per step, K", low=1, high=10_000_000)


@dataclass
class _Backpointers:
    """How each state of each level was reached; levels that all survivors share shrink to one entry."""

    parents: list[IndexArray] = field(default_factory=list)
    ops: list[IndexArray] = field(default_factory=list)
    entries: int = 0

    def add(self, parents: IndexArray, ops: IndexArray) -> None:
        self.parents.append(parents.copy())
        self.ops.append(ops.copy())
        self.entries += len(ops)

    def prune(self) -> None:
        """Drop the states that no state of the last level descends from."""
        used = np.arange(len(self.ops[-1]))
        for level in range(len(self.ops) - 1, -1, -1):
            if len(used) == len(self.ops[level]) == 1:
                break
            self.ops[level] = self.ops[level][used]
            used, renumbered = np.unique(self.parents[level][used], return_inverse=True)
            self.parents[level] = renumbered.astype(np.int32)
        self.entries = sum(len(ops) for ops in self.ops)

    def order(self, state: int) -> IndexArray:
        """Return the ops that lead to a state of the last level."""
        order = np.empty(len(self.ops), np.int32)
        for level in range(len(self.ops) - 1, -1, -1):
            order[level] = self.ops[level][state]
            state = int(self.parents[level][state])
        return order


@dataclass(frozen=True)
class BeamResult:
    """What a beam found.

    Parameters
    ----------
    order
        A complete order, or None if every state reached the cutoff.
    is_exact
        Whether no state was cut for want of room: then nothing below the cutoff was missed.
    """

    order: IndexArray | None
    is_exact: bool


def solve(search: Search, parameters: Parameters) -> None:
    """Offer the best order in the beam; if none was cut it is optimal, and the lower bound says so.

    A schedule known before cuts what cannot be better.
    """
    cutoff = None if search.best is None else int(search.best_value)
    result = beam_search(search, parameters.beam_size, cutoff=cutoff)
    if result.order is not None:
        search.offer_order(result.order)
    if result.is_exact:
        search.raise_lower_bound(search.best_value)


def beam_search(
    search: Search,
    beam_size: int,
    *,
    cutoff: int | None = None,
    buffers: Buffers | None = None,
    is_backward: bool = False,
) -> BeamResult:
    """Run the beam over the levels of executed-op sets of the whole graph.

    Parameters
    ----------
    search
        Gives the graph and the random numbers, counts expanded states as 1 / ops evaluations each, and says
        when to stop; a stopped beam returns its best state completed in input order.
    beam_size
        K.
    cutoff
        Orders whose peak reaches these bytes are not wanted.
    buffers
        The graph's, by default; or the same with more precedences, which then hold for the order.
    is_backward
        Whether to build the order from its end.
    """
    graph = search.problem.graph
    b = graph.buffers if buffers is None else buffers
    limit = UNLIMITED if cutoff is None else cutoff - int(graph.persistent.sum())
    chosen, is_complete, is_exact = run_beam(search, b, beam_size, limit, is_backward)
    if chosen is None:
        return BeamResult(None, is_exact)
    return BeamResult(_complete(graph, chosen, is_backward), is_exact and is_complete)


def run_beam(
    search: Search, b: Buffers, beam_size: int, limit: int, is_backward: bool
) -> tuple[IndexArray | None, bool, bool]:
    """Run the beam over the levels of executed-op sets of any buffers, which may be a part of the graph's.

    The state after a set of ops is the set alone: of equal states the one of least peak is kept (state
    collapsing), of the others the `beam_size` of least peak, ties at random. Sets are told apart by a 64-bit
    Zobrist hash.

    Parameters
    ----------
    search, beam_size, is_backward
        As for `beam_search`.
    b
        What to order.
    limit
        Orders whose peak, persistent bytes left out, reaches these bytes are not wanted.

    Returns
    -------
    tuple
        The ops chosen, the last first if backward, or None if every state reached the limit; whether these
        are all ops; whether no state was cut for want of room.
    """
    ops = len(b.own)
    walk = backward_walk(b) if is_backward else forward_walk(b)
    zobrist = search.rng.integers(0, 2**64, ops, dtype=np.uint64)
    level = first_level(walk)
    back = _Backpointers()
    is_exact = True
    for _ in range(ops):
        cost = len(level.hash) / search.problem.graph.num_ops
        if search.must_stop() or search.evaluations_left < cost + 1:  # the order found is priced too
            return back.order(int(np.argmin(level.peak))) if back.ops else np.empty(0, np.int32), False, is_exact
        salt = search.rng.integers(0, 2**63, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        candidates = new_candidates(beam_size, len(level.ready))
        count, truncated = expand(level, b, walk, candidates, zobrist, beam_size, limit, salt)
        search.evaluations += cost
        is_exact = is_exact and not truncated
        if count == 0:
            return None, True, is_exact
        level = materialise(level, b, walk, candidates, count)
        back.add(candidates.parent[:count], candidates.op[:count])
        if back.entries > 64 * beam_size + 10_000_000:
            back.prune()
    return back.order(0), True, is_exact


def _complete(graph: CostGraph, chosen: NDArray[np.int32], is_backward: bool) -> IndexArray:
    """Return the ops chosen so far and the others in input order, after them or, backward, before them."""
    missing = np.ones(graph.num_ops, bool)
    missing[chosen] = False
    others = graph.input_order[missing[graph.input_order]]
    parts = (others, chosen[::-1]) if is_backward else (chosen, others)
    return np.concatenate(parts).astype(np.int32)
