"""What may run where on a machine: times by device, pins, groups, and what stays at a home."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .arrays import BoolArray, FloatArray, IndexArray, frozen
from .errors import UsageError
from .graph import CostGraph
from .homes import GraphWithHomes, first_home
from .machine import Machine


@dataclass(frozen=True, eq=False)
class PlacementRules:
    """What each op takes on each device, and where it may run.

    Parameters
    ----------
    times
        Shape `(ops, devices)`: microseconds, infinite where an op cannot run.
    allowed
        Shape `(ops, devices)`: whether an op, and all that is on one device with it, may be there.
    group
        Shape `(ops,)`: the first op of those that are on one device with it, itself if there are none.
    """

    times: FloatArray
    allowed: BoolArray
    group: IndexArray

    @property
    def groups(self) -> dict[int, list[int]]:
        """The ops of each group of more than one, by the first."""
        members: dict[int, list[int]] = {}
        for op, first in enumerate(self.group.tolist()):
            members.setdefault(first, []).append(op)
        return {first: ops for first, ops in members.items() if len(ops) > 1}

    def whole_graph(self) -> list[int]:
        """Return the devices that all ops may share."""
        return [int(device) for device in np.flatnonzero(self.allowed.all(axis=0))]


def placement_rules(graph: CostGraph, machine: Machine) -> PlacementRules:
    """Return what may run where.

    Raises
    ------
    UsageError
        If a pattern matches nothing, an op cannot run anywhere, or what must be together cannot be.
    """
    times = _times(graph, machine)
    allowed = np.isfinite(times)
    _check_runnable(graph, machine, allowed)
    parent = list(range(graph.num_ops))
    for pattern, name in machine.pins:
        devices = np.zeros(len(machine.devices), bool)
        devices[machine.named(name)] = True
        where = machine.place(f"pin {pattern}")
        ops = _matching(graph, pattern, f"{where}{graph.name}: pin '{pattern}'")
        allowed[ops] &= devices
        if len(wrong := [op for op in ops if not allowed[op].any()]):
            raise UsageError(
                f"{where}{graph.name}: op {graph.op_label(wrong[0])} is pinned to '{name}', where it cannot run or "
                "which another pin rules out"
            )
    for number, patterns in enumerate(machine.together):
        where = machine.place(f"together {number}")
        found = [
            op
            for pattern in patterns
            for op in _matching(graph, pattern, f"{where}{graph.name}: '{pattern}' of together")
        ]
        _unite(parent, found)
    if isinstance(graph, GraphWithHomes):
        for resident in np.flatnonzero(graph.is_written).tolist():
            _unite(parent, [*graph.kept_at_home(resident), first_home(graph) + resident])
    group = np.array([_find(parent, op) for op in range(graph.num_ops)])
    shared = np.ones_like(allowed)
    np.logical_and.at(shared, group, allowed)
    if len(wrong := [op for op in range(graph.num_ops) if not shared[group[op]].any()]):
        where = machine.place("together 0") or machine.place(f"pin {machine.pins[0][0]}" if machine.pins else "")
        raise UsageError(
            f"{where}{graph.name}: op {graph.op_label(wrong[0])} and those that must be on one device with it have no "
            "device where all can be: pins, op times and groups contradict each other"
        )
    return PlacementRules(frozen(times, np.float64), frozen(shared[group], np.bool_), frozen(group, np.int32))


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
        why = "every device has speed 0" if not any(d.speed > 0 for d in machine.devices) else "it has no time for any"
        raise UsageError(f"{graph.name}: op {graph.op_label(int(stuck[0]))} can run on no device: {why}")


def _matching(graph: CostGraph, pattern: str, what: str) -> list[int]:
    found = [op for op, name in enumerate(graph.op_names) if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        raise UsageError(f"{what} matches no op and no resident tensor")
    return found


def _find(parent: list[int], op: int) -> int:
    while parent[op] != op:
        parent[op] = parent[parent[op]]
        op = parent[op]
    return op


def _unite(parent: list[int], ops: list[int]) -> None:
    """Put ops into one group, named after the smallest."""
    for one, two in pairwise(ops):
        first, second = sorted((_find(parent, one), _find(parent, two)))
        parent[second] = first
