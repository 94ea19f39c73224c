"""Plans on a machine for methods: an order of the ops, a device for each, and how early its inputs are sent."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from ..base.arrays import FloatArray, IndexArray
from ..base.errors import UsageError
from ..graph.graph import CostGraph
from ..kernels.cost_model import NO_LIMIT, machine_arrays, new_scratch, new_timed_steps
from ..kernels.placements.plans import Cost, Greedy, Plan, begin_list, list_ops, price_plan, sort_steps
from ..kernels.placements.sequences import Groups, Objective, Places, places_of
from ..problem.machine import distinct_devices
from ..problem.problem import Problem
from ..problem.residents import first_home
from ..problem.schedule import Schedule

EXCESS_WEIGHT = 10.0
CHUNK = 20_000
"""Ops that are placed between two looks at the clock."""


class Plans:
    """The kernels' scratch for plans of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.graph = problem, problem.graph
        self.ops, self.devices = problem.graph.num_ops, problem.devices
        self.arrays, self.machine = machine_arrays(problem)
        self.scratch = new_scratch(self.arrays, self.devices)
        self.steps = new_timed_steps(self.arrays, self.devices), new_timed_steps(self.arrays, self.devices)
        self.own = first_home(self.graph)
        self.may_exceed = may_exceed(problem)
        self.aim = objective_of(problem)
        self._listed = 0

    def places(self, groups: Groups) -> Places:
        """Return where ops may be, with groups of them that moves take elsewhere together."""
        return places_of(self.problem.rules.group, self.problem.rules.allowed, groups)

    @cached_property
    def greedy(self) -> Greedy:
        """The scratch of list scheduling, nothing added to when an op ends."""
        rules, devices = self.problem.rules, self.devices
        return Greedy(
            allowed=rules.allowed,
            group=rules.group,
            ahead=np.empty((0, devices)),
            is_quick=False,
            is_limited=self.problem.is_limited,
            chosen=np.empty(self.ops, np.int32),
            clock=np.empty(devices),
            link=np.empty(devices),
            room=np.empty(devices, np.int64),
            held=np.empty(devices, np.int64),
        )

    def homes_first(self, order: Any) -> IndexArray:
        """Return an order of all ops: those that hold residents, then the model's own in the order given."""
        order = np.asarray(order, np.int32)
        homes: IndexArray = np.arange(self.own, self.ops, dtype=np.int32)
        complete: IndexArray = np.concatenate((homes, order[order < self.own]))
        return complete

    def plan(self, order: Any, lead: Any = None) -> Plan:
        """Return a plan of an order, each op sent its missing inputs as early as can be by default."""
        order = self.homes_first(order)
        position = np.empty(self.ops, np.int32)
        position[order] = np.arange(self.ops)
        return Plan(order, position, np.zeros(self.ops, np.int32) if lead is None else np.array(lead, np.int32))

    def price(self, plan: Plan, placement: Any) -> tuple[int, Cost]:
        """Return how many steps a plan has, which `steps[1]` then holds, and its cost."""
        self.scratch.placement[:] = placement
        count, cost = price_plan(self.arrays, self.machine, self.scratch, plan, self.steps, self.aim)
        return count, Cost(*cost)

    def schedule(self, plan: Plan, placement: Any) -> Schedule | None:
        """Return the schedule of a plan; None if it sends something where no link is."""
        count, cost = self.price(plan, placement)
        if not np.isfinite(cost.runtime):
            return None
        return as_schedule(self.arrays.producer, self.scratch.placement, self.steps[1], count)

    def listed_schedule(self) -> Schedule:
        """Return the schedule of the ops that `place_along` placed last, each sent its inputs as early as can be."""
        steps, homes, placement = self.steps[0], self.ops - self.own, self.scratch.placement
        steps.items[:homes], steps.targets[:homes] = np.arange(self.own, self.ops), placement[self.own :]
        steps.start[:homes] = steps.end[:homes] = 0.0
        sort_steps(self.machine, self.scratch, steps, self._listed, self.steps[1])
        return as_schedule(self.arrays.producer, self.scratch.placement, self.steps[1], self._listed)

    def place_along(
        self,
        order: Any,
        ahead: FloatArray | None = None,
        *,
        is_quick: bool = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> IndexArray | None:
        """Return where each op ends first, plus `ahead`, shape `(ops, devices)`; None if stopped or without a link."""
        greedy = self.greedy._replace(is_quick=is_quick)
        if ahead is not None:
            greedy = greedy._replace(ahead=np.ascontiguousarray(ahead))
        order = np.asarray(order, np.int32)
        order = order[order < self.own]
        scratch = self.arrays, self.machine, self.scratch, greedy
        begin_list(self.machine, self.scratch, greedy)
        count = self.ops - self.own  # those that hold residents come first
        for first in range(0, len(order), CHUNK):
            count = -1 if stop() else list_ops(*scratch, order[first : first + CHUNK], self.steps[0], count)
            if count < 0:
                return None
        self._listed = count
        placement: IndexArray = self.scratch.placement.copy()
        return placement

    def place_homes(self, placement: Any) -> IndexArray:
        """Return a placement of the model's own ops with each resident where it is read first, if it may be there."""
        settled: IndexArray = np.array(placement, np.int32)
        rules = self.problem.rules
        chosen = {int(rules.group[op]): int(settled[op]) for op in range(self.own)}
        room = self.machine.limits - np.bincount(
            settled[: self.own], self.graph.persistent[: self.own], minlength=self.devices
        ).astype(np.int64)
        for op in range(self.own, self.ops):
            reader = self.arrays.consumers[self.arrays.consumer_ptr[self.graph.output_ptr[op]]]
            wanted = chosen.get(int(rules.group[op]), int(settled[reader]))
            size = int(self.graph.persistent[op])
            if int(rules.group[op]) not in chosen and (not rules.allowed[op, wanted] or room[wanted] < size):
                linked = rules.allowed[op] & (self.problem.machine.has_link[:, settled[reader]])
                wanted = int(np.where(linked if linked.any() else rules.allowed[op], room, -(2**63)).argmax())
            settled[op] = chosen.setdefault(int(rules.group[op]), wanted)
            room[wanted] -= size
        return settled

    def placements_of_one_device(self) -> list[IndexArray]:
        """Return one placement per sort of device that computes all; pinned residents are elsewhere."""
        allowed, found = self.problem.rules.allowed, []
        for device in distinct_devices(self.problem.machine):
            if allowed[: self.own, device].all():
                found.append(np.where(allowed[:, device], device, allowed.argmax(axis=1)).astype(np.int32))
        return found

    def schedules_along(self, order: Any) -> list[Schedule]:
        """Return the schedules along an order: on each sort of device alone, or else each op where it ends first."""
        plan, machine = self.plan(order), self.problem.machine
        for place in (self.placements_of_one_device, lambda: [self.place_along(order)]):
            schedules = [self.schedule(plan, placement) for placement in place() if placement is not None]
            if found := [schedule for schedule in schedules if schedule is not None]:
                return found
        one, two = (machine.devices[int(at)].name for at in np.argwhere(~machine.has_link)[0])
        raise UsageError(
            f"{machine.place('links')}{self.graph.name}: no plan was found on the links that the machine has; "
            f"there is no link from '{one}' to '{two}', for example: add it, or a default_link"
        )


def as_schedule(producer: IndexArray, placement: Any, steps: Any, count: int) -> Schedule:
    """Build a schedule from so many recorded steps."""
    items, targets = steps.items[:count].copy(), steps.targets[:count].copy()
    sources, sent = targets.copy(), items < 0
    sources[sent] = placement[producer[~items[sent]]]
    return Schedule.from_steps(items, sources, targets)


def may_exceed(problem: Problem) -> bool:
    """Whether some plan could exceed a limit: not where all bytes together fit on every device that has one."""
    graph = problem.graph
    total = int(graph.tensor_size.sum() + graph.workspace.sum() + graph.persistent.sum())
    return any(limit is not None and limit < total for limit in problem.memory_limits)


def objective_of(problem: Problem, size: float = 1.0, bound: float = 1.0) -> Objective:
    """Return the kernels' objective for a problem, a makespan against a bound, with the transfers that suit it."""
    is_peak = problem.task == "memory"
    limits = np.array([NO_LIMIT if limit is None else limit for limit in problem.memory_limits], np.float64)
    if is_peak:
        sizes = size / problem.byte_weights
        limits = sizes if len({*limits}) == 1 else np.minimum(limits, sizes)
    return Objective(
        is_peak=is_peak,
        size=limits,
        scale=0.0 if is_peak else 1.0 / max(bound, 1e-9),
        weight=EXCESS_WEIGHT,
        memory=is_peak or problem.memory_limit is not None or may_exceed(problem),
        together=not is_peak,
    )


def topological(graph: CostGraph, wanted: Any) -> IndexArray:
    """Return the nearest order to a wanted one in which no op comes before its inputs."""
    place = np.empty(graph.num_ops)
    place[wanted] = np.arange(graph.num_ops)
    pointers, before = graph.predecessors
    if (place[before] > np.repeat(place, np.diff(pointers))).any():
        begin, ops = pointers.tolist(), before.tolist()
        for op in graph.input_order.tolist():
            place[op] = max([place[op], *(place[p] + 1e-6 for p in ops[begin[op] : begin[op + 1]])])
    order: IndexArray = np.argsort(place, kind="stable").astype(np.int32)
    return order
