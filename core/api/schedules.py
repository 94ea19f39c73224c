"""Schedules as users give them: built, solved, in files, or as an order of ops."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias, Union

import numpy as np

from ..base.errors import UnknownNameError, UsageError
from ..files.schedule_json import LoadedSchedule, read_schedule
from ..graph.graph import CostGraph
from ..model.verifier import StepClaim
from ..problem.problem import Problem
from ..problem.residents import model_of
from ..problem.schedule import Schedule
from ..report.result import Result

ScheduleLike: TypeAlias = Union[Schedule, Result, str, "os.PathLike[str]", Sequence[str]]


def loaded_schedule(given: ScheduleLike, graph: CostGraph) -> LoadedSchedule:
    """Return the schedule that is given, the problem it was made for, and the values claimed."""
    if isinstance(given, (str, os.PathLike)):
        return read_schedule(os.fspath(given), graph)
    if isinstance(given, Result):
        return _loaded_result(given, graph)
    schedule = given if isinstance(given, Schedule) else _in_order(given, graph)
    devices = 1 + max(0, int(schedule.targets.max(initial=0)))
    return LoadedSchedule(Problem(graph, devices=devices), schedule, "feasible", None, None, None, _no_claims(schedule))


def _loaded_result(result: Result, graph: CostGraph) -> LoadedSchedule:
    if model_of(result.problem.graph) != model_of(graph):
        raise UsageError(f"the result is of another graph, '{result.problem.graph.name}', not of '{graph.name}'")
    return LoadedSchedule(
        result.problem,
        result.schedule,
        "feasible" if result.is_feasible else "limit-not-met",
        result.peak_memory,
        result.simulation.peak_per_device.tolist(),
        result.runtime,
        _no_claims(result.schedule),
    )


def _in_order(names: Sequence[str], graph: CostGraph) -> Schedule:
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise UsageError(
            "a schedule is a Schedule, a Result, the path of a schedule file, or a list of op names, "
            f"not {type(names).__name__}"
        )
    ops = {name: op for op, name in enumerate(graph.op_names)}
    for name in names:
        if name not in ops:
            raise UnknownNameError(f"the schedule names the op '{name}', which {graph.name} does not have")
    return Schedule.single_device(np.array([ops[name] for name in names], np.int64))


def _no_claims(schedule: Schedule) -> tuple[StepClaim, ...]:
    return (StepClaim(),) * len(schedule)
