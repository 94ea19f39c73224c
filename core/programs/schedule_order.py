"""The order that a schedule file gives to the ops of a program."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from ..base.errors import OtherGraphError, UsageError
from ..files.schedule_json import LoadedSchedule, read_schedule
from ..graph.graph import CostGraph
from ..model.verifier import verify
from ..problem.problem import Problem
from ..problem.schedule import Schedule


def problem_of(graph: CostGraph, order: Sequence[int]) -> Problem:
    """Return the problem that an order of a program's ops is a schedule of: one in which ops run again if some do."""
    return Problem(graph, recompute=len(set(order)) < len(order))


def check_order(graph: CostGraph, order: Sequence[int]) -> None:
    """Have an order of a program's ops verified, in which some may run several times."""
    verify(problem_of(graph, order), Schedule.single_device(np.array(order)))


def read_order(path: str, graph: CostGraph, *, force: bool = False) -> list[int]:
    """Read a schedule of a program's graph: its ops in the order they run, some several times perhaps."""
    return one_device_order(path, read_program_schedule(path, graph, force=force), graph)


def one_device_order(path: str, loaded: LoadedSchedule, graph: CostGraph) -> list[int]:
    """Return the ops of a graph in the order of a schedule that was read."""
    used = len(used_devices(loaded.schedule))
    if used > 1:
        raise UsageError(
            f"{path}: the schedule uses {used} devices, and a program runs on one; solve with --devices 1, or write "
            "the modules of a PyTorch model with apply --format device-map"
        )
    return [op for op in loaded.schedule.op_order().tolist() if op < graph.num_ops]


def used_devices(schedule: Schedule) -> set[int]:
    """Return the devices that a schedule uses, be it for a transfer alone."""
    return set(chain(schedule.sources.tolist(), schedule.targets.tolist()))


def read_program_schedule(path: str, graph: CostGraph, *, force: bool = False) -> LoadedSchedule:
    """Read a schedule of a program's graph."""
    try:
        return read_schedule(path, graph, force=force)
    except OtherGraphError as error:
        remark = "it is of another model, or imported with other --training or --shape"
        raise type(error)(f"{error}: {remark}") from None
