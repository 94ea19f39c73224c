"""Measure a PyTorch program in its own order and in schedules' orders: memory, time, and equal results."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from ...graph import CostGraph
from ...units import format_bytes
from ..fresh_process import ask
from ..measurement import PROGRAM_ORDER, Measurement, measurements
from ..options import ImportOptions
from ..schedule_order import read_order
from .apply import reorder
from .costs import measured_costs
from .importer import graph_of
from .program import TorchProgram, load_program
from .run import ARGUMENTS, held_bytes


def measure(
    model: str,
    schedules: Sequence[str],
    repeats: int,
    options: ImportOptions,
    note: Callable[[str], None],
    *,
    force: bool = False,
) -> list[Measurement]:
    """Measure a model in program order, and in the order of each schedule.

    Parameters
    ----------
    model
        A `.pt2` file, or `module:function`.
    schedules
        Schedule files of the model's graph.
    repeats
        Runs of each order, each in a process of its own.
    options
        As the model was imported; costs are measured whatever they say.
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
    ProgramError, FormatError, UsageError
        If the model or a schedule cannot be read, or a run fails.
    ScheduleError
        If a schedule is not one of this program.
    """
    program = load_program(model, options.training, options.shapes, note, options.device)
    graph = graph_of(program, measured=measured_costs(program, options.device))
    orders = {path: read_order(path, graph, force=force) for path in schedules}
    return measure_orders(program, graph, orders, repeats, options.device, note)


def measure_orders(
    program: TorchProgram,
    graph: CostGraph,
    orders: Mapping[str, Sequence[int]],
    repeats: int,
    device: str,
    note: Callable[[str], None],
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
        runs = [
            {label: ask("pytorch.run", question, f"{program.name}, {label}") for label, question in questions.items()}
            for _ in range(repeats)
        ]
    return measurements(graph, every, runs, unpredicted=unread)
