"""Order search for least peak on one device: beams both ways, tightened by proofs (`docs/methods/one-device.md`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ...base.arrays import IndexArray, IntArray
from ...base.speed import seconds_for
from ...bounds.bounds import min_cuts
from ...bounds.order_proofs import Precedences
from ...bounds.stretches import separators, stretch_of
from ...graph.graph import Buffers
from ...kernels.orders.order_memory import memory_of_steps
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from ...search import parameters as base
from ...search.search import Cancelled, Search
from .approximate_dp import Beam, run_beam, run_in_place

FIRST_BEAMS = (1, 10, 100)
FIRST_SIZE, LARGEST_SIZE = 400, 1_000_000
LARGEST_LEVEL = 4_000_000_000  # states times ops
FIRST_EFFORT = 2_000_000
LARGEST_RELATED = 10_000
CLOSE = 1e-4
PROOF_ARCS = 100_000_000
RELATED = 2.4e-5  # numbers sorted in the time of closing and reducing precedences, per cubed op
CUT_SHARE, PROOF_SHARE = 0.3, 0.3
SHORTEST_STRETCH, LONGEST_STRETCH = 20, 160  # steps around the peak, reordered by themselves
STRETCH_BEAMS = (8, 16, 32, 64)
LEAST_EVALUATIONS = 2  # a beam of one state, and the order that it finds


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """Whether orders alone are searched, or proofs as well."""

    proofs: int = base.parameter(
        1, "1 to tighten the search by proofs of what any better order must obey, 0 not to", low=0, high=1
    )


def solve(search: Search, parameters: Parameters) -> None:
    """Improve the stretch of largest peak until it is proven optimal, and with it the order, or the budget ends."""
    # Ops that are before or after every other cut the graph into stretches, which are solved apart and glued.
    if search.best is None:
        search.offer_order(search.problem.graph.input_order)
    if search.exhausted():  # a million ops take a second to be cut
        return
    stretches = _Stretches(search, is_proving=parameters.proofs > 0)
    with suppress(Cancelled):
        while not (stretch := stretches.of_largest_peak()).must_stop:
            if not stretch.improve():
                return


def seconds_to_relate(ops: int) -> float:
    """Return about how long the precedences of so many ops take to be closed and reduced."""
    return seconds_for(RELATED * float(ops) ** 3)


def warm_up(tiny: Problem) -> Problem:
    """Run every kernel once, which a search that ends early would not."""
    buffers, order = tiny.graph.buffers, tiny.graph.input_order.copy()
    precedences = Precedences(buffers, order, np.ones(len(order), np.int64))
    precedences.tighten(LARGEST_SIZE, lambda: False)
    for is_backward in (False, True):
        run_beam(Search(Problem(tiny.graph)), precedences.buffers_with_precedences(), 1, LARGEST_SIZE, is_backward, 0)
        run_in_place(Search(Problem(tiny.graph)), buffers, LARGEST_SIZE, is_backward)
    return tiny


class _Stretches:
    """The incumbent, cut at its separators; a stretch becomes a problem of its own once its peak is the largest."""

    def __init__(self, search: Search, is_proving: bool = True) -> None:
        assert search.best is not None and search.best_simulation is not None
        self.search, self.buffers, self.is_proving = search, search.problem.graph.buffers, is_proving
        self.order = search.best.op_order().copy()
        self.memory = search.best_simulation.step_memory.copy()
        self.ends = np.union1d(separators(self.buffers, self.order) + 1, [len(self.order)])
        self._known: dict[int, _Stretch] = {}

    def of_largest_peak(self) -> _Stretch:
        """Return the first stretch that holds the peak."""
        number = int(np.searchsorted(self.ends, np.argmax(self.memory), side="right"))
        if number not in self._known:
            first, last = int(self.ends[number - 1]) if number else 0, int(self.ends[number])
            place = np.argsort(self.order)
            buffers, throughout = stretch_of(self.buffers, self.order, place, self.memory, first, last, self._look)
            ops = self.order[first:last].copy()
            self._known[number] = _Stretch(
                self.search, buffers, throughout, self.is_proving, lambda order: self._glue(first, ops[order[1:] - 1])
            )
        return self._known[number]

    def _look(self) -> None:
        if self.search.exhausted():
            raise Cancelled

    def _glue(self, first: int, ops: IndexArray) -> None:
        """Put a better order of a stretch in its place."""
        self.order[first : first + len(ops)] = ops
        self.memory = self.search.offer(Schedule.single_device(self.order.copy())).step_memory


class _Stretch:
    """A stretch as a problem of its own, its best order, and how much has been tried."""

    def __init__(
        self, search: Search, b: Buffers, present: int, is_proving: bool, on_better: Callable[[IndexArray], None]
    ) -> None:
        self.search, self.buffers, self.present, self.on_better = search, b, present, on_better
        self.is_proving = is_proving
        self.order = np.arange(len(b.own), dtype=np.int32)
        self.memory = self._memory(self.order)
        self.effort, self.looked = 0, 0.0  # successors that a state of the last beam had in all
        self.sizes, self.largest_size = [1, 1], min(LARGEST_SIZE, LARGEST_LEVEL // len(b.own))
        self.proofs: _Proofs | None = None

    @property
    def peak(self) -> int:
        """Bytes that the best order takes at most."""
        return int(self.memory.max())

    @property
    def bound(self) -> int:
        """Bytes that the peak of no order of the whole graph is below."""
        return int(self.search.lower_bound)

    @property
    def must_stop(self) -> bool:
        """Whether the budget has ended, or the stretch has no larger peak than the bound."""
        return self.search.exhausted() or self.peak <= self.bound

    def improve(self) -> bool:
        """Spend some more effort, twice as much each time; False if there is nothing left to try."""
        # First come minimum cuts and, but for very large graphs, narrow backward beams. Then each round reorders short
        # stretches around the peak (large neighbourhood search), sends wider beams through the stretch as tightened by
        # proofs, and tries to prove a target halfway between bound and peak impossible.
        if not self.effort:
            while self._uncross():
                pass
            self.effort = FIRST_EFFORT
            ops = len(self.order)
            if ops <= LARGEST_RELATED:
                left = self.effort // 4
                for size in FIRST_BEAMS:
                    if left > 0 and not self.must_stop:
                        left -= self._run_beam(size, self.buffers, is_backward=True).priced
                self.sizes = [min(FIRST_SIZE, max(1, self.effort // (10 * ops)))] * 2
                if self.is_proving and self.search.has_time_for(seconds_to_relate(ops) / PROOF_SHARE):
                    self.proofs = _Proofs(self)
            return True
        if min(self.sizes) == self.largest_size or self.search.evaluations_left < LEAST_EVALUATIONS:
            return False
        self._reorder_short_stretches(self.effort // 4)
        for is_backward in (False, True):
            if not self.must_stop:
                self._run_beams(self.proofs.tightened() if self.proofs else self.buffers, is_backward)
        if self.proofs:
            self.proofs.prove()
        self.effort *= 2
        return True

    def _memory(self, order: IndexArray) -> IntArray:
        return memory_of_steps(self.buffers, order, self.present)

    def _accept(self, order: IndexArray, memory: IntArray) -> None:
        before = self.peak
        self.order, self.memory = order, memory
        if self.peak < before:
            self.on_better(order)

    def _price(self, order: IndexArray) -> IntArray:
        """Return the memory of each step, counting one evaluation."""
        self.search.spend(1)
        return self._memory(order)

    def _uncross(self) -> bool:
        """Raise the bound by minimum cuts, and try the order with each set run first; whether the peak fell."""
        before, sides = self.peak, []
        latest = self.search.share_of_time(CUT_SHARE)
        memory, floor = self.memory - self.present, self.bound - self.present
        stop, has_time_for = (lambda: self.must_stop or self.search.is_past(latest)), self.search.has_time_for
        for term, side in min_cuts(self.buffers, self.order, memory, floor, stop=stop, has_time_for=has_time_for):
            self.search.raise_lower_bound(self.present + term)
            sides.append(side)
        for side in sides:
            if self.must_stop or self.search.evaluations_left < 1:
                break
            first = side[self.order]
            order = np.concatenate((self.order[first], self.order[~first]))
            memory = self._price(order)
            if self._roughness(memory) <= self._roughness(self.memory):
                self._accept(order, memory)
        return self.peak < before

    def _roughness(self, memory: IntArray) -> tuple[int, float]:
        above = np.maximum(memory - self.bound, 0).astype(np.float64)
        return int(memory.max()), float(above @ above)

    def _run_beam(self, size: int, buffers: Buffers, is_backward: bool) -> Beam:
        """Run one beam below the peak, over the buffers or the same with more precedences."""
        limit, floor = self.peak - self.present, max(0, self.bound - self.present)
        beam = run_beam(self.search, buffers, size, limit, is_backward, floor)
        if beam.chosen is not None and beam.is_complete:
            order = (beam.chosen[::-1] if is_backward else beam.chosen).copy()
            self._accept(order, self._price(order))
        if beam.is_complete and beam.is_exact:
            self.search.raise_lower_bound(self.peak)
        return beam

    def _run_beams(self, buffers: Buffers, is_backward: bool) -> None:
        """Run beams of one direction until they have cost the effort; one that dies doubles the next."""
        left = self.effort
        while left > 0 and not self.must_stop:
            size = self.sizes[is_backward]
            if len(self.order) > LARGEST_RELATED and size * self.looked > left:  # the next round has more effort
                return
            beam = self._run_beam(size, buffers, is_backward)
            left -= beam.priced
            self.looked = beam.priced / size
            if not beam.is_complete:
                return
            if beam.chosen is None:
                self.sizes[is_backward] = min(2 * size, self.largest_size)
            if size == self.largest_size:
                return

    def _reorder_short_stretches(self, effort: int) -> None:
        """Reorder short stretches that hold large steps, as long as their own peak does not rise."""
        rng = self.search.rng
        place = np.argsort(self.order)
        while effort > 0 and not self.must_stop:
            large = self.memory >= self.peak - rng.random() * (self.peak - self.bound)
            centre = int(rng.choice(np.flatnonzero(large)))
            steps = int(rng.integers(SHORTEST_STRETCH, LONGEST_STRETCH + 1))
            first = max(0, centre - int(rng.integers(0, steps)))
            last = min(len(self.order), first + steps)
            buffers, throughout = stretch_of(self.buffers, self.order, place, self.memory, first, last)
            is_backward = bool(rng.integers(0, 2))
            limit = int(self.memory[first:last].max()) - throughout + 1
            size, floor = int(rng.choice(STRETCH_BEAMS)), max(0, self.bound - throughout)
            beam = run_beam(self.search, buffers, size, limit, is_backward, floor)
            effort -= beam.priced
            if not beam.is_complete or self.search.evaluations_left < 1:
                return
            if beam.chosen is None:
                continue
            run = np.ascontiguousarray(beam.chosen[:: -1 if is_backward else 1])
            order, memory = self.order.copy(), self.memory.copy()
            order[first:last] = order[first:last][run[1:] - 1]
            memory[first:last] = memory_of_steps(buffers, run, throughout)[1:]
            place[order[first:last]] = np.arange(first, last)
            self.search.spend(1)
            self._accept(order, memory)


class _Proofs:
    """Proofs with a growing allowance of work, and the stretch tightened below its best order."""

    def __init__(self, stretch: _Stretch) -> None:
        self.stretch = stretch
        self.precedences = Precedences(stretch.buffers, stretch.order, stretch.memory - stretch.present)
        self.allowance = max(1, PROOF_ARCS // len(self.precedences.network.heads))
        self.unproven = stretch.peak
        self._tightened: tuple[int, Buffers] | None = None

    def prove(self) -> None:
        """Bisect between the bound and the least target not proven impossible, within the allowance of work."""
        stretch, stop = self.stretch, self._stop()
        while not stop():
            self.unproven = min(self.unproven, stretch.peak)
            if self.unproven <= stretch.bound * (1 + CLOSE):  # all below has been tried: next time with more work
                self.unproven = stretch.peak
                self.allowance *= 2
                return
            target = (stretch.bound + self.unproven) // 2
            if self.precedences.tighten(target - stretch.present, stop) == "impossible":
                stretch.search.raise_lower_bound(target + 1)
            else:
                self.unproven = target

    def tightened(self) -> Buffers:
        """Return the buffers with the precedences of any order better than the best."""
        stretch = self.stretch
        if self._tightened is None or self._tightened[0] != stretch.peak:
            if self.precedences.tighten(stretch.peak - 1 - stretch.present, self._stop()) == "impossible":
                stretch.search.raise_lower_bound(stretch.peak)
            self._tightened = (stretch.peak, self.precedences.buffers_with_precedences())
        return self._tightened[1]

    def _stop(self) -> Callable[[], bool]:
        """Stop when a share of the time left or the allowance is used; with evaluations alone it is repeatable."""
        most_flows = self.precedences.flows + self.allowance
        stretch = self.stretch
        latest = stretch.search.share_of_time(PROOF_SHARE)
        return lambda: stretch.must_stop or self.precedences.flows >= most_flows or stretch.search.is_past(latest)
