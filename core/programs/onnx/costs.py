"""Costs of the nodes of an ONNX program on this machine, and sizes that only a run tells."""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from ...base.errors import ProgramError
from ..fresh_process import ask
from ..options import Size
from ..system_allocator import SystemAllocator
from .nodes import reads
from .program import OnnxProgram, read_program
from .session import (
    constant_tensors,
    kernel_times,
    one_node,
    ordered_session,
    random_inputs,
    session_of,
    session_options,
)

REPEATS = 5
Values = dict[str, NDArray[Any]]


def measured_costs(program: OnnxProgram) -> dict[str, tuple[float, int]]:
    """Measure each node under ONNX Runtime in a process of its own; return microseconds and bytes by its name.

    The time is the median of `REPEATS` runs of the whole program by ONNX Runtime's profiler, on one thread with its
    default memory; a node alone would find its weights in the cache. A node without a kernel of its own is timed alone.
    The workspace is the most that the node, run alone, holds beyond its results, by glibc's allocator.
    """
    return {name: (cost[0], cost[1]) for name, cost in ask("onnx.costs:run_each", program.question).items()}


def run_each(
    path: str, shapes: Mapping[str, Size], observed: Mapping[str, Any] | None = None
) -> dict[str, tuple[float, int]]:
    """Measure in this process, all times first: counting memory makes allocation slow."""
    program = read_program(path, shapes, observed)
    times = _kernel_medians(program)
    if set(times) != set(program.names):
        alone = for_each_node(program, lambda _, session, inputs: _time(session, inputs), has_profile=True)
        times = {name: times.get(name, alone[name]) for name in program.names}
    allocator = SystemAllocator()
    workspaces = for_each_node(program, lambda _, session, inputs: workspace_of(allocator, session, inputs))
    return {name: (times[name], workspaces[name]) for name in program.names}


def _kernel_medians(program: OnnxProgram) -> dict[str, float]:
    """Return the median time of each node that has a kernel, in runs of the whole program after the first."""
    inputs = random_inputs(program)
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as profiles:
        constants = constant_tensors(program)
        fast = partial(session_options, profiles, keeps_memory=True)
        session = ordered_session(program, range(len(program.nodes)), constants, fast)
        for _ in range(1 + REPEATS):
            session.run(None, inputs)
        for name, microseconds in kernel_times(session):
            times.setdefault(name, []).append(microseconds)
    return {name: statistics.median(times[name][1:]) for name in program.names if name in times}


def for_each_node(
    program: OnnxProgram,
    measure: Callable[[str, Any, Values], tuple[Any, list[NDArray[Any]]]],
    keep: Callable[[str, NDArray[Any]], None] = lambda name, value: None,
    *,
    has_profile: bool = False,
) -> dict[str, Any]:
    """Run each node in a session of its own, on what it gets when the program runs; return what `measure` says of it.

    `measure` is told the node's name, session and inputs, and returns its outputs, too; `keep` is told each value.
    """
    constants = constant_tensors(program)
    values: Values = random_inputs(program)
    uses = Counter(name for node in program.nodes for name in dict.fromkeys(reads(node)))
    measured = {}
    with tempfile.TemporaryDirectory() as profiles:
        for node, name in zip(program.nodes, program.names, strict=True):
            inputs = {value: values[value] for value in dict.fromkeys(reads(node)) if value not in constants}
            options = session_options(profiles if has_profile else None, keeps_memory=has_profile)
            session = session_of(one_node(program, name, constants, inputs), Path(program.path).parent, options)
            measured[name], outputs = measure(name, session, inputs)
            given = dict(zip(filter(None, node.output), outputs, strict=True))
            for value, array in given.items():
                keep(value, array)
            values.update(given)
            del outputs, given, session
            for value in inputs:
                uses[value] -= 1
                if not uses[value]:
                    del values[value]
    return measured


def workspace_of(allocator: SystemAllocator, session: Any, inputs: Values) -> tuple[int, list[NDArray[Any]]]:
    """Return what a session holds at most beyond its results, in bytes, and these."""
    allocator.restart()
    before = allocator.held()
    outputs = session.run(None, inputs)
    results = allocator.held() - before
    return max(0, allocator.peak() - results), outputs


def _time(session: Any, inputs: Values) -> tuple[float, list[NDArray[Any]]]:
    """Return the median time of a run after the first; a node may be a function, which runs several kernels."""
    for _ in range(1 + REPEATS):
        outputs = session.run(None, inputs)
    times = [microseconds for _, microseconds in kernel_times(session)]
    kernels = len(times) // (1 + REPEATS)
    runs = [sum(times[run * kernels : (run + 1) * kernels]) for run in range(1, 1 + REPEATS)]
    return statistics.median(runs), outputs


SECONDS = 300.0
"""A run takes no longer, for a damaged loop may have no end."""


def observe(program: OnnxProgram) -> dict[str, Any]:
    """Run a program once in another process; return the `types` that were missing, and opaque nodes' `workspaces`."""
    observed: dict[str, Any] = ask("onnx.costs:run_once", program.question, seconds=SECONDS)
    return observed


def run_once(path: str, shapes: Mapping[str, Size], observed: Mapping[str, Any]) -> dict[str, Any]:
    """Run the program in this process; see `observe`."""
    program = read_program(path, shapes, observed)
    allocator = SystemAllocator()
    types: dict[str, Any] = {}

    def look(name: str, session: Any, inputs: Values) -> tuple[int, Any]:
        is_opaque = name in program.opaque
        return workspace_of(allocator, session, inputs) if is_opaque else (0, session.run(None, inputs))

    def keep(name: str, value: NDArray[Any]) -> None:
        if name not in program.types:
            if not isinstance(value, np.ndarray):
                raise ProgramError(f"'{name}' is no tensor")
            types[name] = [onnx.helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)]

    for name, tensor in constant_tensors(program).items():
        if name not in program.types:
            types[name] = [tensor.data_type, list(tensor.dims)]
    workspaces = for_each_node(program, look, keep)
    return {"types": types, "workspaces": {name: workspaces[name] for name in sorted(program.opaque)}}
