"""Measure an ONNX program in its own order and in schedules' orders: memory, time, and equal results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...graph.graph import CostGraph
from ..fresh_process import ask
from ..measurement import PROGRAM_ORDER, Measurement, OnRun, measurements, run_rounds
from ..schedule_order import check_order, refuse_repeats
from .program import OnnxProgram


def measure_orders(
    program: OnnxProgram,
    graph: CostGraph,
    orders: Mapping[str, Sequence[int]],
    repeats: int,
    note: Callable[[str], None],
    on_run: OnRun = lambda number, total, order: None,
) -> list[Measurement]:
    """Measure a program in its file's order, and in each of `orders`: ops of its graph, which has measured costs.

    ONNX Runtime runs on one thread, in the given order, with optimisations off, and frees each tensor after its last
    reader. Constants are computed beforehand and held like initialisers. Memory is what initialisers, constants and
    inputs take by their shapes, and the most that glibc's allocator gave ONNX Runtime beside them: the runtime's Python
    interface tells nothing of its own allocator.

    Parameters
    ----------
    program, graph
        What to measure, and its graph with measured costs.
    orders
        Orders of the graph's ops by what to call them.
    repeats
        Rounds; in each every order runs in a process of its own.
    note, on_run
        Called with each remark worth showing; told before each run.

    Returns
    -------
    list
        Program order first, then the others; only what ran if Ctrl-C ended it.

    Raises
    ------
    ProgramError
        If ONNX Runtime cannot run the model.
    UsageError
        If an op runs several times.
    ScheduleError
        If an order is not one of this model.
    """
    for order in orders.values():
        refuse_repeats(program.path, graph, order)
        check_order(graph, order)
    every = {PROGRAM_ORDER: range(graph.num_ops), **orders}

    def run(order: str) -> Any:
        return ask("onnx.run", {**program.question, "order": [program.names[op] for op in every[order]]})

    reports = run_rounds(run, list(every), repeats, on_run)
    if not_run := reports[PROGRAM_ORDER][0]["not_run"]:
        more = f" and {len(not_run) - 1} others" if len(not_run) > 1 else ""
        note(
            f"{program.path}: ONNX Runtime has no kernel for node '{not_run[0]}'{more}: it runs the ops of its "
            "definition when no other node is ready, so that the order is not quite what was asked for"
        )
    return measurements(graph, every, reports, unmeasured=int(graph.persistent.sum()))
