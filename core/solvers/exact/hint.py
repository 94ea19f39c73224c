"""A hint for the solver: the best schedule known, and the time at which each of its steps starts."""

from __future__ import annotations

from ...problem.schedule import Schedule
from ...search.search import Search
from .units import Units

EDITS_AS_ONE = 20


def improve(search: Search, evaluations: int, method: str) -> None:
    """Let `auto`, or another method, improve the best schedule known."""
    with search.part(evaluations=evaluations * (EDITS_AS_ONE if search.problem.recompute else 1)):
        if not search.exhausted():
            search.run(method)


class HintedTimes:
    """Device and start of each step of a known schedule, each as early as it can."""

    def __init__(self, schedule: Schedule, ops: int, devices: int, units: Units) -> None:
        self.device, self.op_start = [0] * ops, [0] * ops
        self.transfer_start: dict[tuple[int, int], int] = {}
        clock = [0] * devices
        columns = (schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist())
        for item, source, target in zip(*columns, strict=True):
            start = max(clock[source], clock[target])
            if item >= 0:
                self.device[item], self.op_start[item] = target, start
                clock[target] = start + units.op[item]
            else:
                self.transfer_start[~item, target] = start
                clock[source] = clock[target] = start + units.transfer[~item]
        self.makespan = max(clock)

    def number_devices(self, ranked: list[int]) -> None:
        """Give the devices numbers, in the order in which the ops of a list use them first."""
        used = list(dict.fromkeys(self.device[op] for op in ranked))
        new = {device: number for number, device in enumerate(used)}
        self.device = [new[device] for device in self.device]
        self.transfer_start = {(t, new[device]): start for (t, device), start in self.transfer_start.items()}
