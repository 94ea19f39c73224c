"""Measure a TFLite program in its own order and in schedules' orders: arena, time, and equal results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...graph.graph import CostGraph
from ..measurement import PROGRAM_ORDER, Measurement, OnRun, measurements, run_rounds
from ..schedule_order import check_order
from .apply import run_bytes
from .plan import planned
from .planner import Scratch, head_of
from .program import TfliteProgram


def measure_orders(
    program: TfliteProgram,
    graph: CostGraph,
    orders: Mapping[str, Sequence[int]],
    scratch: Scratch,
    repeats: int,
    note: Callable[[str], None],
    on_run: OnRun = lambda number, total, order: None,
) -> list[Measurement]:
    """Measure a program as its file is, and as `apply` writes it in each of `orders`.

    Memory is the head of the arena, and the variable tensors in its tail; what is predicted is where the planner of
    TensorFlow Lite for Microcontrollers puts the last byte, and these.
    """
    files, heads = {PROGRAM_ORDER: program.data}, {PROGRAM_ORDER: head_of(program, scratch)}
    for label, order in orders.items():
        check_order(graph, order)
        new = planned(program, graph, order, scratch)
        files[label], heads[label] = new.data, new.head

    def run(order: str) -> Any:
        report = run_bytes(files[order], program.path, times=True)
        return {**report, "peak": report["head"]}

    reports = run_rounds(run, list(files), repeats, on_run)
    for label, rounds in reports.items():
        if rounds:
            note(arena_sentence(label, rounds[0]))
    resident = int(graph.persistent.sum())
    every = {PROGRAM_ORDER: range(graph.num_ops), **orders}
    rows = measurements(graph, every, reports, unmeasured=resident)
    return [replace(row, predicted_peak=heads[row.order] + resident) for row in rows]


def arena_sentence(label: str, report: Mapping[str, int]) -> str:
    """Say what a run's arena is made of."""
    total = report["head"] + report["tail"]
    return (
        f"arena of {label}: {total:,} bytes; the head (tensors, scratch buffers) has {report['head']:,}, the tail "
        f"{report['tail']:,} here, where pointers have 64 bits"
    )
