"""What every order below a peak has in common, and proofs that there is none (one device)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from ..base.arrays import IndexArray, IntArray, csr
from ..graph.buffers import Buffers
from ..kernels.orders.max_flow import network_of
from ..kernels.orders.order_proofs import Known, arrive, largest_rise, new_trials, reduce, tighten
from ..kernels.orders.partial_order import close
from .partial_order import dense

Verdict = Literal["impossible", "closed", "stopped"]
LARGEST = 2**63 - 1
ARCS_PER_CALL = 1_000_000
OPS_COMPARED = 5  # ops of least room among which the pair to branch on is chosen


class Precedences:
    """Which op must come before which in every order whose peak stays at a target.

    An op finds resident at least the minimum cut between all that comes before it and after it (see `ArrivalCut`). If
    another op on one side raises that cut above what the target leaves, the other side is forced: then cuts grow and
    force more. When one exceeds the target on every side, no order has such a peak.
    """

    def __init__(self, b: Buffers, order: IndexArray, memory: IntArray) -> None:
        self.buffers = b
        self.network = network_of(b)
        ops = len(b.own)
        self._trials = new_trials(self.network, ops)
        self._flows_per_call = max(1, ARCS_PER_CALL // max(1, len(self.network.heads)))
        words = (ops + 63) // 64
        self._known = np.zeros((2, ops, words), np.int64)
        close(b.predecessor_ptr, b.predecessors, order, self._known[0])
        close(b.successor_ptr, b.successors, order[::-1].copy(), self._known[1])
        self._found = self._known[0]
        self.need = b.own + b.workspace
        self._likely = np.empty(ops, np.int64)
        self._likely[order] = memory
        self._is_measured = np.zeros(ops, bool)
        self.flows = 0

    def tighten(self, target: int, stop: Callable[[], bool]) -> Verdict:
        """Start again from the graph's own precedences, and find more until there are none."""
        known = self.given()
        self._found = known.before
        return self.propagate(known, target, stop)

    def given(self) -> Known:
        """Return what the graph alone says, nothing of which has been looked at: a copy to add to."""
        before, after = self._known.copy()
        return Known(before, after, np.ones(len(self.need), bool))

    def propagate(self, known: Known, target: int, stop: Callable[[], bool]) -> Verdict:
        """Add to what is known of the orders whose peak stays at a target, until nothing more follows."""
        limits = target - self.need
        if limits.min() < 0:
            return "impossible"
        stale = known.stale
        given = Known(self._known[0], self._known[1], stale)
        most = self._flows_per_call
        pending = np.zeros(len(self.need), bool)
        while stale.any():
            if not pending.any():
                pending[:] = stale
            if stop():
                return "stopped"
            op = int(np.argmax(np.where(pending, self._likely, -LARGEST)))
            if not self._is_measured[op]:
                self._is_measured[op] = True
                least = arrive(self.network, self._trials.flow, given, op, LARGEST)
                self._likely[op] = self.need[op] + least
                self.flows += 1
                continue
            start = 0
            while start < len(limits):
                if start and stop():
                    return "stopped"
                found, flows, start = tighten(
                    self.network, self.buffers, self._trials, known, op, int(limits[op]), start, most
                )
                self.flows += flows
                if found < 0:
                    return "impossible"
            pending[op] = stale[op] = False
        return "closed"

    def closest_pair(self, known: Known, target: int, stop: Callable[[], bool]) -> tuple[int, int] | None:
        """Return the ops `(first, second)` whose relation nearly exceeds the target, or None if all are related."""
        # Of the ops with least room between their cut and the target, the pair that leaves least of it, as a share.
        room = np.empty(len(self.need), np.int64)
        for op in range(len(room)):
            if stop():
                return None
            room[op] = target - self.need[op] - arrive(self.network, self._trials.flow, known, op, LARGEST)
            self.flows += 1
        best, pair, compared = -1.0, None, 0
        for op in np.argsort(room, kind="stable").tolist():
            if compared == OPS_COMPARED:
                break
            start, is_open = 0, False
            while start < len(room):
                if stop():
                    return None
                rise, other, is_before, flows, start = largest_rise(
                    self.network, self._trials, known, op, start, self._flows_per_call
                )
                self.flows += flows
                is_open |= other >= 0
                if other >= 0 and rise / (room[op] + 1) > best:
                    best, pair = rise / (room[op] + 1), (other, op) if is_before else (op, other)
            compared += is_open
        return pair

    def buffers_with_precedences(self) -> Buffers:
        """Return the buffers with all precedences found, reduced transitively."""
        ops = len(self.buffers.own)
        direct = self._found.copy()
        reduce(self._found, direct)
        waiting, awaited = dense(direct, ops).nonzero()
        predecessor_ptr, predecessors = csr(waiting, awaited, ops)
        successor_ptr, successors = csr(awaited, waiting, ops)
        return self.buffers._replace(
            predecessor_ptr=predecessor_ptr,
            predecessors=predecessors,
            successor_ptr=successor_ptr,
            successors=successors,
        )
