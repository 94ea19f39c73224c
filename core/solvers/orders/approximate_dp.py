"""Approximate dynamic programming over executed-op sets (Topoformer C.3), peak memory on one device."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...base.arrays import IndexArray
from ...graph.graph import Buffers
from ...kernels.orders import set_beam as beam
from ...search import parameters as base
from ...search.parameters import parameter
from ...search.search import Search

UNLIMITED = 2**62
# Ready ops of a state from which on all states of a level have no more than so many: nothing interrupts a level
WIDE, MOST_READY = 5_000, 20_000_000
LARGEST_COPIED = 10_000  # ops: in larger graphs a beam of one state is extended in place, and ties go by bytes


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


class Beam(NamedTuple):
    """How a beam ended."""

    chosen: IndexArray | None  # the ops chosen, the last first if backward, or None if every state reached the limit
    is_complete: bool  # whether these are all ops, or there is no way to choose all
    is_exact: bool  # whether no state was cut for want of room
    priced: int  # successor states looked at, to which the time is about proportional


def solve(search: Search, parameters: Parameters) -> None:
    """Offer the best order in the beam; if none was cut it is optimal, and the lower bound says so."""
    cutoff = None if search.best is None else int(search.best_value)
    result = beam_search(search, parameters.beam_size, cutoff=cutoff)
    if result.chosen is not None:
        search.offer_order(result.chosen)
    if result.is_exact:
        search.raise_lower_bound(search.best_value)


def beam_search(search: Search, beam_size: int, cutoff: int | None = None) -> Beam:
    """Run the beam over the whole graph, from the first op on; the order is complete, and none if nothing is below."""
    graph = search.problem.graph
    limit = UNLIMITED if cutoff is None else cutoff - int(graph.persistent.sum())
    beam = run_beam(search, graph.buffers, beam_size, limit)
    if beam.chosen is None:
        return beam
    missing = np.ones(graph.num_ops, bool)
    missing[beam.chosen] = False
    chosen = np.append(beam.chosen, graph.input_order[missing[graph.input_order]]).astype(np.int32)
    return beam._replace(chosen=chosen, is_exact=beam.is_exact and beam.is_complete)


def run_beam(
    search: Search, b: Buffers, beam_size: int, limit: int, is_backward: bool = False, floor: int = -1
) -> Beam:
    """Run the beam over the levels of executed-op sets of any buffers, which may be a part of the graph's."""
    # Of equal states the one of least peak is kept (state collapsing), of the others the `beam_size` of least peak,
    # ties at random. Sets are told apart by a 64-bit Zobrist hash.
    ops = len(b.own)
    if beam_size == 1 and ops > LARGEST_COPIED:
        return run_in_place(search, b, limit, is_backward)
    walk = beam.backward_walk(b) if is_backward else beam.forward_walk(b)
    zobrist = search.rng.integers(0, 2**64, ops, dtype=np.uint64)
    level = beam.first_level(walk)
    back = _Backpointers()
    is_exact, priced = True, 0
    for _ in range(ops):
        cost = len(level.hash) / search.problem.graph.num_ops
        if search.exhausted() or search.evaluations_left < cost + 1:  # the order found is priced too
            chosen = back.order(int(np.argmin(level.peak))) if back.ops else np.empty(0, np.int32)
            return Beam(chosen, False, is_exact, priced)
        salt = search.rng.integers(0, 2**63, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        ready = len(level.ready) // len(level.hash)
        size = beam_size if ready <= WIDE else max(1, min(beam_size, MOST_READY // ready))
        candidates = beam.new_candidates(size, len(level.ready))
        count, truncated = beam.expand(level, b, walk, candidates, zobrist, size, limit, salt)
        search.spend(cost)
        priced += len(level.ready)
        is_exact = is_exact and not truncated
        if count == 0:
            return Beam(None, True, is_exact, priced)
        level = beam.materialise(level, b, walk, candidates, count, floor)
        back.add(candidates.parent[:count], candidates.op[:count])
        if back.entries > 64 * beam_size + 10_000_000:
            back.prune()
    return Beam(back.order(0), True, is_exact, priced)


def run_in_place(search: Search, b: Buffers, limit: int, is_backward: bool) -> Beam:
    """Run a beam of one state, in which the next op is that of least peak, then of least resident bytes."""
    walk = beam.backward_walk(b) if is_backward else beam.forward_walk(b)
    state, ops = beam.new_state(b, walk), len(b.own)
    for start in range(0, ops, beam.STATES_AT_ONCE):
        end = min(ops, start + beam.STATES_AT_ONCE)
        cost = (end - start) / search.problem.graph.num_ops
        if search.exhausted() or search.evaluations_left < cost + 1:
            return Beam(state.chosen[:start], False, False, int(state.totals[3]))
        search.spend(cost)
        if not beam.extend_in_place(b, walk, state, limit, start, end):
            return Beam(None, True, False, int(state.totals[3]))
    return Beam(state.chosen, True, False, int(state.totals[3]))
