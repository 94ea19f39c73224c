"""One run of an ONNX program in a process of its own; asks and answers are JSON, see `run_order`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import ProgramError
from ..fresh_process import digest
from ..options import Size
from ..system_allocator import SystemAllocator, time_runs
from .nodes import has_subgraphs
from .program import OnnxProgram, read_program
from .session import constant_tensors, kernel_times, random_inputs, runnable, session_of, session_options

if TYPE_CHECKING:
    import onnxruntime
    from onnx import TensorProto

PEAK_REPEATS = 2


def run_order(
    path: str,
    shapes: Mapping[str, Size],
    order: Sequence[str] | None,
    observed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run the program in a file on random inputs: with a profile, to warm up, for time, and for memory.

    `order` has names of nodes; None is the file's. `peak` is the most beside constants and inputs in `PEAK_REPEATS`
    runs; `not_run` are nodes without a kernel, for which others ran.
    """
    program = read_program(path, shapes, observed)
    inputs = random_inputs(program)
    with tempfile.TemporaryDirectory() as profiles:
        session = ordered_session(
            program, order or program.names, constant_tensors(program), lambda: session_options(profiles)
        )
        expected = digests(session.run(None, inputs))
        ran = {name for name, _ in kernel_times(session)}
    times = time_runs(lambda: session.run(None, inputs))
    allocator = SystemAllocator()
    peak = 0
    for _ in range(PEAK_REPEATS):
        allocator.restart()
        outputs = session.run(None, inputs)
        peak = max(peak, allocator.peak())
        del outputs
    not_run = [name for name in program.names if name not in ran]
    return {"peak": peak, **times, "digests": expected, "not_run": not_run}


def ordered_session(
    program: OnnxProgram,
    order: Sequence[str],
    constants: Mapping[str, TensorProto],
    options: Callable[[], onnxruntime.SessionOptions],
) -> Any:
    """Load the program in an order, with sizes declared if it can be loaded so."""
    folder = Path(program.path).parent
    try:
        return session_of(runnable(program, order, constants), folder, options())
    except ProgramError:
        if not any(map(has_subgraphs, program.nodes)):
            raise
    return session_of(runnable(program, order, constants, has_sizes=False), folder, options())


def digests(values: Sequence[NDArray[Any]]) -> list[str]:
    """Return what tells arrays apart: type, shape and all bits of each."""
    return [digest(value.dtype, value.shape, np.ascontiguousarray(value).tobytes()) for value in values]
