"""A TFLite file with its operators in the order of a schedule."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...base.errors import ScheduleError
from ...files.atomic import write_atomically
from ...graph.graph import CostGraph
from ..fresh_process import ask
from ..schedule_order import check_order
from .plan import Planned, planned
from .planner import Scratch
from .program import TfliteProgram


def write_in_order(
    program: TfliteProgram, graph: CostGraph, order: Sequence[int], scratch: Scratch, output: str
) -> Planned:
    """Write a TFLite file whose operators are in another order, with the offsets of its tensors.

    Before anything is written, the old and the new file run under TensorFlow Lite for Microcontrollers with the same
    random inputs, several times over, and give bitwise equal results; and the new one's arena is what was predicted.
    """
    check_order(graph, order)
    new = planned(program, graph, order, scratch)
    before = run_bytes(program.data, program.path)
    after = run_bytes(new.data, program.path)
    outputs = len(program.main.outputs)
    for number, (expected, found) in enumerate(zip(before["digests"], after["digests"], strict=True)):
        if expected != found:
            raise ScheduleError(f"{program.path}: output {number % outputs} would differ in the order of the schedule")
    if after["head"] != new.head:
        raise ScheduleError(
            f"{program.path}: the arena's head would be {after['head']:,} bytes, not {new.head:,} as planned"
        )
    write_atomically(output, new.data)
    return new


def run_bytes(data: bytes, about: str, *, times: bool = False) -> Any:
    """Run a file's bytes in a process of its own; see `run_file`. `about` is what errors call it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(data)
        return ask("tflite.run", {"path": str(path), "times": times}, about)
