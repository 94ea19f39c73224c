"""The partial order of a graph's ops, the precedences of all orders below a peak, and proofs that there is none."""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import INT64_MAX, BoolArray, IndexArray, IntArray, csr, frozen
from ..graph.graph import Buffers, CostGraph
from ..kernels.orders import order_proofs as kernel
from ..kernels.orders.max_flow import network_of

Bits = NDArray[np.uint64]
Verdict = Literal["impossible", "possible", "closed", "stopped"]
ARCS_PER_CALL = 1_000_000
OPS_COMPARED = 5  # ops of least room among which the pair to branch on is chosen
FIRST_CASES, MORE_CASES = 8, 4
SHARE_OF_GAP, FIRST_STEP = 32, 8
MOST_BYTES = 2**26  # of all cases that are put off


class PartialOrder(NamedTuple):
    """Which op must come before which; a set of ops is a row of 64-bit words, op `j` bit `j % 64` of word `j // 64`."""

    # The seven graphs of Topoformer 4.1 are `reduction`, `other_edges`, the pairs of `before` beyond the edges, the
    # reverses of these three, and `incomparable`.

    before: Bits  # shape `(ops, words)`: the strict ancestors of each op, and its strict descendants
    after: Bits
    reduction: kernel.Edges  # `(sources, targets)`, sorted by target: the edges of the transitive reduction
    other_edges: kernel.Edges  # the same for all other edges between ops; longer paths imply them


def partial_order(graph: CostGraph) -> PartialOrder:
    """Return the order that data and control edges put on the ops of a graph."""
    pointers, sources = graph.predecessors
    bits = kernel.closures(graph.predecessors, graph.successors, graph.input_order)
    is_implied = np.empty(len(sources), bool)
    kernel.mark_implied(pointers, sources, bits[0], np.empty_like(bits[0, 0]), is_implied)
    targets = np.repeat(np.arange(graph.num_ops), np.diff(pointers))

    def edges(chosen: BoolArray) -> kernel.Edges:
        return frozen(sources[chosen], np.int32), frozen(targets[chosen], np.int32)

    bits.setflags(write=False)
    before, after = bits.view(np.uint64)
    return PartialOrder(before, after, edges(~is_implied), edges(is_implied))


def incomparable(order: PartialOrder) -> Bits:
    """Return per op the others that may come before it as well as after it, shape `(ops, words)`."""
    ops = np.arange(len(order.before))
    one = np.uint64(1)
    others = ~(order.before | order.after)
    others[ops, ops >> 6] &= ~(one << (ops & 63).astype(np.uint64))
    if len(ops) % 64:
        others[:, -1] &= (one << np.uint64(len(ops) % 64)) - one
    return others


def dense(bits: NDArray[np.uint64] | NDArray[np.int64], ops: int) -> BoolArray:
    """Turn rows of words, shape `(rows, words)`, into a matrix of truth values, shape `(rows, ops)`."""
    return np.unpackbits(bits.view(np.uint8), axis=1, count=ops, bitorder="little").view(np.bool_)


class Precedences:
    """Which op must come before which in every order whose peak stays at a target."""

    # An op finds resident at least the minimum cut between all that comes before it and after it (see `min_cuts`). If
    # another op on one side raises that cut above the target's room, the other side is forced: then cuts grow and force
    # more. When one exceeds the target on every side, no order has such a peak.

    def __init__(self, b: Buffers, order: IndexArray, memory: IntArray) -> None:
        self.buffers = b
        self.network = network_of(b)
        ops = len(b.own)
        self._trials = kernel.new_trials(self.network, ops)
        self._flows_per_call = max(1, ARCS_PER_CALL // max(1, len(self.network.heads)))
        self._known = kernel.closures((b.predecessor_ptr, b.predecessors), (b.successor_ptr, b.successors), order)
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

    def given(self) -> kernel.Known:
        """Return the precedences of the graph alone, none of which has been looked at: a copy to add to."""
        before, after = self._known.copy()
        return kernel.Known(before, after, np.ones(len(self.need), bool))

    def propagate(self, known: kernel.Known, target: int, stop: Callable[[], bool]) -> Verdict:
        """Add precedences of the orders whose peak stays at a target, until nothing more follows."""
        limits = target - self.need
        if limits.min() < 0:
            return "impossible"
        stale = known.stale
        given = kernel.Known(self._known[0], self._known[1], stale)
        most = self._flows_per_call
        pending = np.zeros(len(self.need), bool)
        while stale.any():
            if not pending.any():
                pending[:] = stale
            if stop():
                return "stopped"
            op = int(np.argmax(np.where(pending, self._likely, -INT64_MAX)))
            if not self._is_measured[op]:
                self._is_measured[op] = True
                least = kernel.arrive(self.network, self._trials.flow, given, op, INT64_MAX)
                self._likely[op] = self.need[op] + least
                self.flows += 1
                continue
            start = 0
            while start < len(limits):
                if start and stop():
                    return "stopped"
                found, flows, start = kernel.tighten(
                    self.network, self.buffers, self._trials, known, op, int(limits[op]), start, most
                )
                self.flows += flows
                if found < 0:
                    return "impossible"
            pending[op] = stale[op] = False
        return "closed"

    def closest_pair(self, known: kernel.Known, target: int, stop: Callable[[], bool]) -> tuple[int, int] | None:
        """Return the ops `(first, second)` whose relation nearly exceeds the target, or None if all are related."""
        # Of the ops with least room between their cut and the target, the pair that leaves least of it, as a share.
        room = np.empty(len(self.need), np.int64)
        for op in range(len(room)):
            if stop():
                return None
            room[op] = target - self.need[op] - kernel.arrive(self.network, self._trials.flow, known, op, INT64_MAX)
            self.flows += 1
        best, pair, compared = -1.0, None, 0
        for op in np.argsort(room, kind="stable").tolist():
            if compared == OPS_COMPARED:
                break
            start, is_open = 0, False
            while start < len(room):
                if stop():
                    return None
                rise, other, is_before, flows, start = kernel.largest_rise(
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
        kernel.reduce(self._found, direct)
        waiting, awaited = dense(direct, ops).nonzero()
        return Buffers(*self.buffers[:-4], *csr(waiting, awaited, ops), *csr(awaited, waiting, ops))

    def refute(self, target: int, most_cases: int, stop: Callable[[], bool]) -> Verdict:
        """Try to refute a target: branch and bound over which of two ops comes first, where nothing more follows."""
        open_cases: list[tuple[kernel.Known, tuple[int, int]]] = []
        known, cases = self.given(), 0
        most_open = max(1, MOST_BYTES // (known.before.nbytes + known.after.nbytes))
        while True:
            verdict = self.propagate(known, target, stop)
            if verdict == "stopped":
                return "stopped"
            if verdict == "impossible":
                if not open_cases:
                    return "impossible"
                known, (first, second) = open_cases.pop()
            else:
                if cases >= most_cases or len(open_cases) >= most_open:
                    return "stopped"
                pair = self.closest_pair(known, target, stop)
                if pair is None:
                    ops, related = len(self.need), int(np.unpackbits(known.before.view(np.uint8)).sum())
                    return "possible" if related == ops * (ops - 1) // 2 else "stopped"
                cases += 1
                first, second = pair
                open_cases.append((kernel.Known(*map(np.copy, known)), (second, first)))
            kernel.relate(known, first, second)

    def bounds(self, low: int, high: int, stop: Callable[[], bool]) -> Iterator[int]:
        """Yield bytes, rising, that the peak of no order is below, until nothing is left between `low` and `high`."""
        # What could not be refuted is tried again, with more cases, once the bound has come near.
        cases, step = 0, (high - low) // 2
        while low < high and not stop():
            target = min(low + step, high - 1)
            verdict = self.refute(target, cases, stop)
            if verdict == "impossible":
                low, step = target + 1, 2 * step
                yield low
            else:
                high, step = target if verdict == "possible" else high, step // 2
            if step <= (high - low) // SHARE_OF_GAP:
                cases, step = max(FIRST_CASES, MORE_CASES * cases), (high - low) // FIRST_STEP
