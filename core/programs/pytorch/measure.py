"""Measure a PyTorch program in its own order and in schedules' orders: memory, time, and equal results."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...base.units import format_bytes
from ...graph.graph import CostGraph
from ..fresh_process import ask
from ..measurement import PROGRAM_ORDER, Measurement, OnRun, measurements, run_rounds
from .apply import reorder
from .program import TorchProgram
from .run import ARGUMENTS, held_bytes


def measure_orders(
    program: TorchProgram,
    graph: CostGraph,
    orders: Mapping[str, Sequence[int]],
    repeats: int,
    device: str,
    note: Callable[[str], None],
    on_run: OnRun = lambda number, total, order: None,
) -> list[Measurement]:
    """Measure a program in program order, and in each of `orders`: ops of its graph, which has measured costs."""
    unread = held_bytes(program.arguments) - int(graph.persistent.sum())
    if unread:
        note(f"{program.name}: {format_bytes(unread)} of parameters, buffers and inputs that no op reads are held too")
    every = {PROGRAM_ORDER: graph.input_order.tolist(), **orders}
    with tempfile.TemporaryDirectory(prefix="schedopt-") as folder:
        torch.save((program.arguments, program.training != "none"), Path(folder) / ARGUMENTS)
        questions = {}
        for number, (label, order) in enumerate(every.items()):
            path = Path(folder) / f"{number}.py"
            path.write_text(reorder(program, graph, order).code, encoding="utf-8")
            questions[label] = {"path": str(path), "device": device, "threads": torch.get_num_threads()}

        def run(order: str) -> Any:
            return ask("pytorch.run", questions[order], f"{program.name}, {order}")

        reports = run_rounds(run, list(every), repeats, on_run)
    return measurements(graph, every, reports, unpredicted=unread)
