"""Measure an ONNX program in its own order and in schedules' orders: memory, time, and equal results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..problem import Problem
from ..schedule import Schedule
from ..simulator import simulate
from ..verifier import verify
from .fresh_process import ask
from .measurement import PROGRAM_ORDER, Measurement
from .onnx_costs import measured_costs
from .onnx_import import graph_of
from .onnx_program import load_program
from .options import ImportOptions
from .schedule_order import read_order


def measure(
    model: str, schedules: Sequence[str], repeats: int, options: ImportOptions, note: Callable[[str], None]
) -> list[Measurement]:
    """Measure a model in the file's order, and in the order of each schedule.

    ONNX Runtime runs on one thread, in the given order, with optimisations off, and frees each tensor after its last
    reader. Constants are computed beforehand and held like initialisers. Memory is what initialisers, constants and
    inputs take by their shapes, and the most that glibc's allocator gave ONNX Runtime beside them: the runtime's Python
    interface tells nothing of its own allocator.

    Parameters
    ----------
    model
        The `.onnx` file.
    schedules
        Schedule JSON files of the model's graph.
    repeats
        Runs of each order, each in a process of its own.
    options
        `shapes` is used; costs are measured whatever they say.
    note
        Called with each remark worth showing.

    Returns
    -------
    list
        Program order first, then the schedules.

    Raises
    ------
    FormatError, ProgramError, UsageError
        If the model or a schedule cannot be read, or ONNX Runtime cannot run the model.
    ScheduleError
        If a schedule is not one of this model.
    """
    program = load_program(model, options.shapes, note)
    graph = graph_of(program, measured=measured_costs(program), note=note)
    orders = {PROGRAM_ORDER: list(range(graph.num_ops)), **{path: read_order(path, graph) for path in schedules}}
    predicted = {}
    for label, order in orders.items():
        problem, schedule = Problem(graph), Schedule.single_device(np.array(order))
        verify(problem, schedule)
        predicted[label] = simulate(problem, schedule).peak
    question = {"path": model, "shapes": dict(options.shapes)}
    runs = [
        {
            label: ask("onnx_run", {**question, "order": [program.names[op] for op in order]})
            for label, order in orders.items()
        }
        for _ in range(repeats)
    ]
    held = int(graph.persistent.sum())
    expected = runs[0][PROGRAM_ORDER]["digests"]
    return [
        Measurement(
            order=label,
            predicted_peak=predicted[label],
            measured_peaks=tuple(held + run[label]["peak"] for run in runs),
            microseconds=tuple(run[label]["microseconds"] for run in runs),
            is_equal=all(run[label]["digests"] == expected for run in runs),
        )
        for label in orders
    ]
