"""Relief of devices that exceed their limits: groups of ops leave, those that free most for the least time.

One device alone, and list schedulers, give plans that are fast and too large. What is held on the fullest device at
its peak is freed if its maker leaves, or all who read it later: of the groups of ops for which that frees most bytes
per microsecond that moving them should take, some are priced, and the best one goes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from ...bounds.machine_bounds import possible_times
from ...kernels.placements.plans import Plan
from ...search.plans import Plans
from ...search.search import Search
from .op_groups import Hierarchy

PRICED = 12
LEAST_SHARE = 1 / 24
"""Of the excess: what a group frees, unless none does; smaller ones take as long to try."""
LEAST_LONGER = 1e-6
"""Of the makespan: moves that take less, or that make it shorter, differ by what they free."""
NEARLY = 0.5
MOST_PAIRS = 20_000_000
NOBODY = -1


class _Priced(NamedTuple):
    """What a placement costs: bytes above the limits, makespan, and the peak of each device.

    Those bytes are of the peaks of all devices and, so that of two equal peaks either may go first, of the mean step.
    """

    excess: float
    runtime: float
    peaks: IntArray


class _Held(NamedTuple):
    """What is held on a device at its peak.

    Shape `(buffers,)` each: bytes, and the places in the hierarchy's order of who made it there, of the first and of
    the last who reads it there later; `NOBODY` if it was sent, if nobody does, and if it is to stay.
    """

    size: FloatArray
    maker: IntArray
    first: IntArray
    last: IntArray


class Relief:
    """Moves groups of ops until a placement keeps the memory limits."""

    def __init__(self, search: Search, plans: Plans, groups: Hierarchy) -> None:
        self.search, self.plans = search, plans
        self.problem, self.graph = search.problem, search.problem.graph
        self.groups = groups
        self.place = np.empty(self.graph.num_ops, np.int64)
        self.place[self.groups.ops] = np.arange(self.graph.num_ops)
        self.limits = np.array([np.inf if limit is None else limit for limit in self.problem.memory_limits])
        self.times = possible_times(self.problem)
        self.count = 0
        self.reads = np.repeat(np.arange(self.graph.num_tensors), np.diff(self.graph.consumers[0]))

    def relieved(self, plan: Plan, placement: IndexArray) -> IndexArray:
        """Return a placement that exceeds the limits less, not at all if that is found, for the order of a plan."""
        present = self._price(plan, placement)
        while present.excess and not self.search.exhausted():
            self._price(plan, placement)  # for its steps, which those tried since have overwritten
            device = int((present.peaks / self.limits).argmax())
            freed = self._freed(self._held_on(device, placement), placement == device)
            over = float(present.peaks[device] - self.limits[device])
            for least in (LEAST_SHARE * over, 1.0):
                moves = self._promising(np.where(freed >= least, freed, 0.0), over, device, placement, present.peaks)
                found = self._best_of(moves, plan, placement, present)
                if found is not None:
                    break
            else:
                return placement
            placement, present = found
        return placement

    def _best_of(
        self, moves: list[IndexArray], plan: Plan, placement: IndexArray, present: _Priced
    ) -> tuple[IndexArray, _Priced] | None:
        """Make the one of some moves that takes least time for what it frees, then those that are nearly as good."""
        values = [0.0 if self.search.exhausted() else self._value(present, self._price(plan, m)) for m in moves]
        ranked = sorted(range(len(moves)), key=lambda n: (-values[n], n))
        if not ranked or values[ranked[0]] == 0.0:
            return None
        least, found = NEARLY * values[ranked[0]], None
        for at in ranked:
            if values[at] < least or self.search.exhausted():
                break
            moved = np.where(moves[at] != placement, moves[at], placement if found is None else found[0])
            priced = self._price(plan, moved)
            if self._value(present if found is None else found[1], priced) >= least:
                found = moved, priced
                if not priced.excess:
                    break
        return found

    def _value(self, before: _Priced, after: _Priced) -> float:
        """Return the bytes that a move frees per microsecond by which it makes a plan longer; 0 if it frees none."""
        longer = max(after.runtime - before.runtime, LEAST_LONGER * before.runtime, 1e-9)
        return max(0.0, before.excess - after.excess) / longer

    def _price(self, plan: Plan, placement: IndexArray) -> _Priced:
        self.search.spend(1)
        self.count, cost = self.plans.price(plan, placement)
        if not np.isfinite(cost.runtime):
            return _Priced(np.inf, np.inf, np.zeros_like(self.plans.scratch.peak))
        peaks, memory = self.plans.scratch.peak.copy(), self.plans.scratch.memory[: self.count]
        over = np.maximum(0.0, peaks - self.limits).sum()
        lasting = np.maximum(0.0, memory - self.limits[self.plans.steps[1].targets[: self.count]]).mean()
        return _Priced(float(over + lasting), cost.runtime, peaks)

    def _held_on(self, device: int, placement: IndexArray) -> _Held:
        """Return what the plan that was priced last holds on a device when that is fullest."""
        graph, arrays = self.graph, self.plans.arrays
        began, ends, now = self._times_on(device)
        here = placement[graph.tensor_producer] == device
        there = (began <= now) & ~graph.is_control
        root = np.where(here, graph.root, np.arange(graph.num_tensors))
        readers = graph.consumers[1]
        later = ends[readers] >= now
        by_here = later & (placement[readers] == device)
        first, last = np.full(graph.num_tensors, NOBODY), np.full(graph.num_tensors, NOBODY)
        np.maximum.at(last, root[self.reads[by_here]], self.place[readers[by_here]])
        first[last >= 0] = graph.num_ops
        np.minimum.at(first, root[self.reads[by_here]], self.place[readers[by_here]])
        stays = _any_of(root, graph.is_final & here)
        first[stays] = NOBODY
        is_read = _any_of(root, np.bincount(self.reads[later & (by_here | here[self.reads])], minlength=len(root)) > 0)
        is_held = there & (is_read | stays) & (root == np.arange(len(root)))
        buffers = np.flatnonzero(is_held & (np.arange(graph.num_tensors) < self.plans.machine.first_resident))
        buffers = buffers[np.argsort(-arrays.tensor_size[buffers], kind="stable")]
        buffers = buffers[: MOST_PAIRS // len(self.groups.first)]
        maker = np.where(here[buffers], self.place[graph.tensor_producer[buffers]], NOBODY)
        return _Held(graph.tensor_size[buffers].astype(np.float64), maker, first[buffers], last[buffers])

    def _times_on(self, device: int) -> tuple[FloatArray, FloatArray, float]:
        """Return since when each tensor is on a device, when each op ends, and when the device is fullest."""
        graph, steps, scratch = self.graph, self.plans.steps[1], self.plans.scratch
        items, targets = steps.items[: self.count], steps.targets[: self.count]
        start, end = steps.start[: self.count], steps.end[: self.count]
        is_op, is_here = items >= 0, targets == device
        ends = np.zeros(graph.num_ops)
        ends[items[is_op]] = end[is_op]
        op_start = np.full(graph.num_ops, np.inf)
        op_start[items[is_op & is_here]] = start[is_op & is_here]
        began = op_start[graph.tensor_producer]
        sent = ~is_op & is_here
        began[~items[sent]] = start[sent]
        memory = np.where(is_here, scratch.memory[: self.count], -1)
        return began, ends, float(start[int(memory.argmax())])

    def _freed(self, held: _Held, here: BoolArray) -> FloatArray:
        """Return the bytes that are freed if a group leaves, shape `(groups,)`."""
        groups = self.groups
        first, last = groups.first[:, None], groups.last[:, None]
        leaves = (held.maker >= first) & (held.maker < last) | (held.first >= first) & (held.last < last)
        stays = _summed(np.where(here, self.graph.persistent, 0)[groups.ops])
        freed: FloatArray = leaves @ held.size + stays[groups.last] - stays[groups.first]
        return freed

    def _promising(
        self, freed: FloatArray, over: float, device: int, placement: IndexArray, peaks: IntArray
    ) -> list[IndexArray]:
        """Return placements in which a group has left a device, those first that should free most for their time."""
        groups, found = self.groups, []
        here = (placement == device)[groups.ops]
        inside = _summed(here)
        freed = np.where(inside[groups.last] > inside[groups.first], freed, 0.0)
        for other in np.flatnonzero(np.isfinite(self.times).any(axis=0)).tolist():
            if other == device:
                continue
            longer = self.times[groups.ops, other] - np.where(here, self.times[groups.ops, device], 0.0)
            total = _summed(np.where(here & np.isfinite(longer), longer, 0.0))
            takes = np.maximum(0.0, total[groups.last] - total[groups.first]) + groups.exchange
            fits = (freed > 0) & (freed <= self.limits[other] - peaks[other])
            value = np.where(fits, np.minimum(freed, over) / np.maximum(takes, 1e-9), 0.0)
            best = np.argpartition(-value, min(PRICED, len(value) - 1))[:PRICED]
            found += [(float(value[group]), int(group), other) for group in best if value[group] > 0]
        found.sort(key=lambda move: (-move[0], move[1:]))
        return [self._moved(placement, device, group, other) for _, group, other in found[:PRICED]]

    def _moved(self, placement: IndexArray, device: int, group: int, other: int) -> IndexArray:
        """Return a placement with the ops of a group elsewhere, of those on a device that may be there."""
        rules, ops = self.problem.rules, self.groups.ops[self.groups.first[group] : self.groups.last[group]]
        leaders = np.unique(rules.group[ops[placement[ops] == device]])
        moves = np.zeros(self.graph.num_ops, bool)
        moves[leaders[rules.allowed[leaders, other]]] = True
        moved: IndexArray = np.where(moves[rules.group], other, placement).astype(np.int32)
        return moved


def _any_of(root: IndexArray, chosen: BoolArray) -> BoolArray:
    """Return whether any tensor of those that share a buffer is chosen, at the place of the one that they share."""
    found = np.zeros(len(root), bool)
    found[root[chosen]] = True
    return found


def _summed(values: NDArray[Any]) -> FloatArray:
    """Return the sums up to each place, 0 first."""
    return np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
