"""Placement rules of a machine: times by device, pins, groups, and homes of residents."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from ..base.arrays import BoolArray, FloatArray, IndexArray, frozen
from ..base.errors import UsageError
from ..graph.graph import CostGraph
from .machine import Machine
from .residents import GraphWithHomes, first_home


@dataclass(frozen=True, eq=False)
class PlacementRules:
    """What each op takes on each device, and where it may run."""

    times: FloatArray  # shape `(ops, devices)`: microseconds, infinite where an op cannot run
    allowed: BoolArray  # shape `(ops, devices)`: whether an op, and all that is on one device with it, may be there
    group: IndexArray  # shape `(ops,)`: the first op of those that are on one device with it, itself if there are none

    @property
    def groups(self) -> dict[int, list[int]]:
        """The ops of each group of more than one, by the first."""
        members: dict[int, list[int]] = {}
        for op, first in enumerate(self.group.tolist()):
            members.setdefault(first, []).append(op)
        return {first: ops for first, ops in members.items() if len(ops) > 1}

    def kept(self, placement: IndexArray) -> IndexArray:
        """Return a placement that keeps the rules: each group is where its first op is, or where it may be."""
        placement = placement[self.group]
        is_there = self.allowed[np.arange(len(placement)), placement]
        kept: IndexArray = np.where(is_there, placement, self.allowed.argmax(axis=1)).astype(np.int32)
        return kept

    def drawn(self, rng: np.random.Generator) -> IndexArray:
        """Return a random placement that keeps the rules."""
        best = np.where(self.allowed, rng.random(self.allowed.shape), -1.0).argmax(axis=1)
        drawn: IndexArray = best[self.group].astype(np.int32)
        return drawn


def placement_rules(graph: CostGraph, machine: Machine) -> PlacementRules:
    """Return what may run where."""
    times = _times(graph, machine)
    allowed = np.isfinite(times)
    _check_runnable(graph, machine, allowed)
    for number, (pattern, name) in enumerate(machine.pins):
        devices = np.zeros(len(machine.devices), bool)
        devices[machine.named(name)] = True
        where = machine.place(f"pin {pattern}")
        ops = _matching(graph, pattern, f"{where}{graph.name}: pin '{pattern}'")
        allowed[ops] &= devices
        if len(wrong := [op for op in ops if not allowed[op].any()]):
            what = f"{where}{graph.name}: op {graph.op_label(wrong[0])} is pinned to '{name}'"
            raise UsageError(f"{what}, {_why_not_there(graph, machine, wrong[0], number, times[wrong[0]][devices])}")
    groups = _Groups(graph, allowed)
    for number, patterns in enumerate(machine.together):
        where = machine.place(f"together {number}")
        found = [_matching(graph, pattern, f"{where}{graph.name}: '{pattern}' of together") for pattern in patterns]
        groups.join(sorted(chain(*found)), where, "this group, joined with those that it overlaps, is on one device")
    if isinstance(graph, GraphWithHomes):
        for resident in np.flatnonzero(graph.is_written).tolist():
            kept = [*graph.states[resident].at_home, first_home(graph) + resident]
            why = f"what writes '{graph.held[resident].name}' in place, and who may read it meanwhile, run at its home"
            groups.join(kept, _first_pin(graph, machine, kept), why)
    group = groups.first()
    return PlacementRules(frozen(times, np.float64), frozen(groups.shared[group], np.bool_), frozen(group, np.int32))


class _Groups:
    """Ops that are to be on one device, and where they may be; groups with an op in common are one."""

    def __init__(self, graph: CostGraph, allowed: BoolArray) -> None:
        self.graph = graph
        self.shared = allowed.copy()
        self.parent: dict[int, int] = {}  # ops that are alone are left out

    def first(self) -> IndexArray:
        """Return the smallest op of the group of each op."""
        first: IndexArray = np.arange(self.graph.num_ops, dtype=np.int32)
        for op in self.parent:
            first[op] = self._find(op)
        return first

    def join(self, ops: list[int], where: str, why: str) -> None:
        """Make one group of ops and of all that is with any of them."""
        for one, two in pairwise(ops):
            first, second = sorted((self._find(one), self._find(two)))
            both = self.shared[first] & self.shared[second]
            if not both.any():
                one, two = sorted((one, two))
                label = self.graph.op_label
                raise UsageError(
                    f"{where}{self.graph.name}: {why}, but {label(one)} and {label(two)}, with what is joined to "
                    "either, can share none: pins, op times and groups contradict each other"
                )
            self.parent[second] = first
            self.shared[first] = both

    def _find(self, op: int) -> int:
        while (parent := self.parent.get(op, op)) != op:
            self.parent[op] = self.parent.get(parent, parent)
            op = self.parent[op]
        return op


def _times(graph: CostGraph, machine: Machine) -> FloatArray:
    speeds = np.array([device.speed for device in machine.devices])
    times = np.full((graph.num_ops, len(speeds)), np.inf)
    computes = speeds > 0
    times[:, computes] = graph.runtime[:, None] / speeds[computes]
    own = first_home(graph)
    if machine.op_times:
        if missing := next((name for name in graph.op_names[:own] if name not in machine.op_times), None):
            raise UsageError(f"{machine.place('op_times')}{graph.name}: the op times have none for op '{missing}'")
        for op, name in enumerate(graph.op_names[:own]):
            by_kind = machine.op_times[name]
            for device, what in enumerate(machine.devices):
                if what.kind in by_kind and what.speed > 0:
                    time = by_kind[what.kind]
                    times[op, device] = np.inf if time is None else time
    times[own:] = 0.0
    return times


def _check_runnable(graph: CostGraph, machine: Machine, allowed: BoolArray) -> None:
    stuck = np.flatnonzero(~allowed.any(axis=1))
    if len(stuck):
        computes = any(device.speed > 0 for device in machine.devices)
        why = "it has no time for any that computes" if computes else "every device has speed 0"
        where = machine.place("op_times" if computes else "devices")
        raise UsageError(f"{where}{graph.name}: op {graph.op_label(int(stuck[0]))} can run on no device: {why}")


def _why_not_there(graph: CostGraph, machine: Machine, op: int, pin: int, times: FloatArray) -> str:
    """Return why an op is not where a pin wants it, given what it takes there: it cannot run, or an earlier pin."""
    if not np.isfinite(times).any():
        return "where it cannot run: speed 0, or no op time"
    earlier = (pair for pair in machine.pins[:pin] if fnmatch.fnmatchcase(graph.op_names[op], pair[0]))
    return "but also " + " and ".join(f"by '{pattern}' to '{name}'" for pattern, name in earlier)


def _first_pin(graph: CostGraph, machine: Machine, ops: list[int]) -> str:
    """Return file and line of the first pin of any of some ops, nothing without one."""
    names = [graph.op_names[op] for op in ops]
    pins = (pattern for pattern, _ in machine.pins if fnmatch.filter(names, pattern))
    return next((machine.place(f"pin {pattern}") for pattern in pins), "")


def _matching(graph: CostGraph, pattern: str, what: str) -> list[int]:
    found = [op for op, name in enumerate(graph.op_names) if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        raise UsageError(f"{what} matches no op and no resident tensor")
    return found
