"""What every order below a peak has in common, and proofs that there is none (one device)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from .buffers import Buffers
from .graph import CostGraph, IndexArray, csr
from .kernels.flow import network_of, new_flow
from .kernels.relations import close, reduce, tighten

Verdict = Literal["impossible", "closed", "stopped"]


class Relations:
    """Which op must come before which in every order whose peak stays at a target.

    At its step an op finds resident at least the minimum cut between all that comes before it and all that
    comes after (see `ArrivalCut`). If putting another op on the wrong side raises that cut above what the
    target leaves, the other side is forced. Forced relations enlarge what comes before and after, so cuts grow
    and force more; when one exceeds the target on every side, no order has such a peak.

    Parameters
    ----------
    graph
        The graph.
    """

    def __init__(self, graph: CostGraph) -> None:
        b = graph.buffers
        self.buffers = b
        self.persistent = int(graph.persistent.sum())
        self.network = network_of(b)
        self._flow, self._trial = new_flow(self.network), new_flow(self.network)
        ops = len(b.own)
        words = (ops + 63) // 64
        self._known = np.zeros((2, ops, words), np.int64)
        close(b.predecessor_ptr, b.predecessors, graph.input_order, self._known[0])
        close(b.successor_ptr, b.successors, graph.input_order[::-1].copy(), self._known[1])
        self._now = self._known.copy()
        self._scratch = np.empty(ops, bool), np.empty(ops, bool), np.empty(len(self.network.pointers) - 1, bool)
        self.flows = 0

    def tighten(self, target: int, order: IndexArray, stop: Callable[[], bool]) -> Verdict:
        """Start again from the graph's edges, and find relations until there are no more.

        Parameters
        ----------
        target
            Bytes that the peak must not exceed.
        order
            Ops in the order to try them; those that are likely to exceed the target first.
        stop
            Asked before each op.

        Returns
        -------
        str
            `impossible` if no order has such a peak, `closed` if nothing more was found, `stopped` if `stop`
            said so: what was found holds, but there may be more.
        """
        b = self.buffers
        self._now = self._known.copy()
        before, after = self._now
        stale = np.ones(len(b.own), bool)
        while stale.any():
            for op in order[stale[order]]:
                if stop():
                    return "stopped"
                stale[op] = False
                limit = target - self.persistent - int(b.own[op] + b.workspace[op])
                if limit < 0:
                    return "impossible"
                found, flows = tighten(
                    self.network, self._flow, self._trial, before, after, int(op), limit, *self._scratch
                )
                self.flows += flows
                if found < 0:
                    return "impossible"
                if found:
                    stale[:] = True
        return "closed"

    def buffers_with_relations(self) -> Buffers:
        """Return the graph's buffers with all relations found as precedences, reduced transitively."""
        ops = len(self.buffers.own)
        direct = self._now[0].copy()
        reduce(self._now[0], direct)
        waiting, awaited = np.unpackbits(direct.view(np.uint8), axis=1, bitorder="little")[:, :ops].nonzero()
        predecessor_ptr, predecessors = csr(waiting, awaited, ops)
        successor_ptr, successors = csr(awaited, waiting, ops)
        return self.buffers._replace(
            predecessor_ptr=predecessor_ptr,
            predecessors=predecessors,
            successor_ptr=successor_ptr,
            successors=successors,
        )
