"""Price a schedule on a machine with the kernels of `kernels/machines`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..base.arrays import FloatArray, IntArray
from ..base.errors import ScheduleError
from ..kernels.placements.machine_model import NO_LINK, Steps, account_steps, machine_arrays, new_scratch, time_steps
from ..problem.problem import Problem
from ..problem.schedule import Schedule


class MachineCosts(NamedTuple):
    """What a schedule costs: bytes and clocks per device, memory, start and end of each step."""

    peak_per_device: IntArray
    clock_per_device: FloatArray
    step_memory: IntArray
    step_start: FloatArray
    step_end: FloatArray


def run_on_machine(problem: Problem, schedule: Schedule) -> MachineCosts:
    """Step through a schedule whose ops each run once, with the transfers that they need.

    Raises
    ------
    ScheduleError
        If an op runs where it cannot, apart from what must be with it, or before its inputs, or devices have no link.
    """
    graph, machine, rules = problem.graph, problem.hardware, problem.rules
    placement = schedule.placement(graph)
    ops = np.arange(graph.num_ops)
    wrong = np.flatnonzero(~rules.allowed[ops, placement] | (placement != placement[rules.group]))
    if len(wrong):
        op, device = int(wrong[0]), machine.devices[placement[wrong[0]]].name
        raise ScheduleError(f"{graph.name}: op {graph.op_label(op)} may not be on '{device}', or not apart from others")
    arrays, m = machine_arrays(problem)
    scratch = new_scratch(arrays, problem.devices)
    scratch.placement[:] = placement
    begun, ended = np.empty((2, len(schedule)))
    steps = Steps(schedule.items.copy(), schedule.targets.copy(), begun, ended)  # as those of searches: compiled once
    at, reason = time_steps(arrays, m, scratch, steps)
    if at >= 0:
        if reason == NO_LINK:
            names = [machine.devices[end[at]].name for end in (schedule.sources, schedule.targets)]
            raise ScheduleError(f"{graph.name}: step {at} sends from '{names[0]}' to '{names[1]}', which have no link")
        raise ScheduleError(f"{graph.name}: step {at} runs before its inputs are on its device")
    account_steps(arrays, m, scratch, steps)
    clock = np.zeros(problem.devices)
    for ends in (schedule.sources, schedule.targets):
        np.maximum.at(clock, ends, steps.end)
    return MachineCosts(scratch.peak.copy(), clock, scratch.memory[: len(schedule)].copy(), steps.start, steps.end)
