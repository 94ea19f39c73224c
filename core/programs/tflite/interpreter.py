"""TensorFlow Lite for Microcontrollers in this process: the arena that a model takes, and a measured run."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import ProgramError
from ..fresh_process import digest
from ..system_allocator import standard_error, time_runs
from .planner import arena_for
from .program import TfliteProgram, load_program

_ROOM = 1 << 20
"""Bytes of a roomy arena beside tensors and weights, for what the runtime keeps of the model."""

_LARGEST = 1 << 31
_ALIGNMENT = 64
_PART = re.compile(r"Arena allocation (head|tail) (\d+) bytes")


class MicroInterpreter:
    """A model, allocated in an arena of some bytes."""

    def __init__(self, data: bytes, arena: int) -> None:
        from tflite_micro import runtime

        try:
            with standard_error() as said:
                self._interpreter = runtime.Interpreter.from_bytes(data, arena_size=arena)
        except (RuntimeError, ValueError, TypeError) as error:
            reason = next((line for line in said if line.strip()), str(error))
            raise ProgramError(f"tflite-micro refuses it: {reason.strip()}") from None

    @classmethod
    def roomy(cls, data: bytes, tensors: int) -> MicroInterpreter:
        """Allocate a model in more than enough for so many bytes of tensors."""
        if tensors > _LARGEST:
            raise ProgramError(f"tflite-micro has arenas of up to {_LARGEST:,} bytes; this one may need {tensors:,}")
        room = tensors + 10 * len(data) + _ROOM
        return cls(data, room + -room % _ALIGNMENT)  # else the tail, which begins at the end, takes a few bytes more

    def arena(self) -> dict[str, int]:
        """Return the bytes of the arena's `head` and `tail`, once it has started."""
        with standard_error() as said:
            self._interpreter.print_allocations()
        return {name: int(size) for name, size in _PART.findall("\n".join(said))}

    def invoke(self) -> None:
        """Run the model once."""
        try:
            with standard_error() as said:
                self._interpreter.invoke()
        except RuntimeError as error:
            raise ProgramError(f"tflite-micro fails: {next(iter(said), str(error))}") from None

    def invoke_quietly(self) -> None:
        """Run the model once, without looking at what the runtime says: to be timed."""
        self._interpreter.invoke()

    def set_inputs(self, given: Sequence[bool], rng: np.random.Generator) -> None:
        """Give those inputs random values that are said to be given; the others are constants."""
        for number in np.flatnonzero(given).tolist():
            details = self._interpreter.get_input_details(number)
            self._interpreter.set_input(_random(details["shape"], np.dtype(details["dtype"]), rng), number)

    def outputs(self, outputs: int) -> list[NDArray[Any]]:
        """Return the first `outputs` outputs."""
        return [np.array(self._interpreter.get_output(number)) for number in range(outputs)]


def _random(shape: Any, kind: np.dtype[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Return random values: all that a small integer can be, 0 and 1 of a large one, which may be an index."""
    values: NDArray[Any] = rng.integers(0, 2, shape)
    if kind.kind == "f":
        values = rng.standard_normal(shape)
    elif kind.kind in "iu" and kind.itemsize <= 2:
        limits = np.iinfo(kind)
        values = rng.integers(limits.min, limits.max, shape, endpoint=True)
    return values.astype(kind)


SEED = 0
INVOCATIONS = 3
"""Runs whose outputs are compared, each with other inputs: what a model keeps from run to run shows in the later."""


def run_file(path: str, times: bool) -> dict[str, Any]:
    """Run a file on random inputs under TensorFlow Lite for Microcontrollers."""
    program = load_program(path)
    interpreter = MicroInterpreter.roomy(program.data, arena_for(program))
    rng = np.random.default_rng(SEED)
    given = _given(program)
    digests = []
    for _ in range(INVOCATIONS):
        interpreter.set_inputs(given, rng)
        interpreter.invoke()
        for output in interpreter.outputs(len(program.main.outputs)):
            digests.append(digest(output.dtype, output.shape, output.tobytes()))
    arena = interpreter.arena()
    measured = {**time_runs(interpreter.invoke_quietly), "arena": least_arena(path)} if times else {}
    return {**arena, "peak": arena["head"], "digests": digests, **measured}


def least_arena(path: str) -> int:
    """Return the least bytes of an arena in which a file starts and runs, each size tried in a process of its own.

    While it starts, the runtime may need more than the head and the tail that it has then.
    """
    program = load_program(path)
    room = arena_for(program)
    high = sum(MicroInterpreter.roomy(program.data, room).arena().values())
    step = _ALIGNMENT
    low = high - step
    while not _runs_in(program, high):
        if high > room + 10 * len(program.data) + _ROOM:
            raise ProgramError("tflite-micro starts it and cannot run it")
        low, high, step = high, high + step, 2 * step
    return low + 1 + bisect_left(range(low + 1, high), True, key=lambda arena: _runs_in(program, arena))


def _runs_in(program: TfliteProgram, arena: int) -> bool:
    """Whether a program starts and runs in an arena, where it may crash."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        interpreter = MicroInterpreter(program.data, arena)
        interpreter.set_inputs(_given(program), np.random.default_rng(SEED))
        interpreter.invoke()
    except BaseException:
        os._exit(1)
    os._exit(0)


def _given(program: TfliteProgram) -> list[bool]:
    """Return which inputs the caller gives."""
    return [not program.main.tensors[tensor].is_constant for tensor in program.main.inputs]
