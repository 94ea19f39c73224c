"""Measure an ONNX program in its own order and in schedules' orders: memory, time, and equal results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...costs.verifier import verify
from ...graph import CostGraph
from ...problem import Problem
from ...schedule import Schedule
from ..fresh_process import ask
from ..importers import check_options
from ..measurement import PROGRAM_ORDER, Measurement, measurements
from ..options import ImportOptions
from ..schedule_order import read_order
from .costs import measured_costs
from .importer import graph_of
from .program import OnnxProgram, load_program


def measure(
    model: str,
    schedules: Sequence[str],
    repeats: int,
    options: ImportOptions,
    note: Callable[[str], None],
    *,
    force: bool = False,
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
        Schedule files of the model's graph.
    repeats
        Runs of each order, each in a process of its own.
    options
        `shapes` is used; costs are measured whatever they say.
    note
        Called with each remark worth showing.
    force
        Whether to take schedules that say that they were made for another graph.

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
    check_options(model, options)
    program = load_program(model, options.shapes, note)
    graph = graph_of(program, note=note)
    orders = {path: read_order(path, graph, force=force) for path in schedules}
    for order in orders.values():
        verify(Problem(graph), Schedule.single_device(np.array(order)))
    return measure_orders(program, graph_of(program, measured=measured_costs(program)), orders, repeats, note)


def measure_orders(
    program: OnnxProgram,
    graph: CostGraph,
    orders: Mapping[str, Sequence[int]],
    repeats: int,
    note: Callable[[str], None],
) -> list[Measurement]:
    """Measure a program in its file's order, and in each of `orders`: ops of its graph, which has measured costs."""
    every = {PROGRAM_ORDER: range(graph.num_ops), **orders}
    question = {"path": program.path, "shapes": dict(program.sizes)}
    runs = [
        {
            label: ask("onnx.run", {**question, "order": [program.names[op] for op in order]})
            for label, order in every.items()
        }
        for _ in range(repeats)
    ]
    if not_run := runs[0][PROGRAM_ORDER]["not_run"]:
        more = f" and {len(not_run) - 1} others" if len(not_run) > 1 else ""
        note(
            f"{program.path}: ONNX Runtime has no kernel for node '{not_run[0]}'{more}: it runs the ops of its "
            "definition when no other node is ready, so that the order is not quite what was asked for"
        )
    return measurements(graph, every, runs, unmeasured=int(graph.persistent.sum()))
