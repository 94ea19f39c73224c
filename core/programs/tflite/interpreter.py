"""TensorFlow Lite for Microcontrollers in this process: the arena that a model takes, and a measured run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import ProgramError
from ..fresh_process import digest
from ..system_allocator import standard_error, time_runs
from .planner import arena_for
from .program import load_program

_ROOM = 1 << 20
"""Bytes of the arena beside tensors and weights, for what the runtime keeps of the model."""

_LARGEST = 1 << 31
_ALIGNMENT = 64
_PART = re.compile(r"Arena allocation (head|tail) (\d+) bytes")


class MicroInterpreter:
    """A model, allocated."""

    def __init__(self, data: bytes, arena: int) -> None:
        from tflite_micro import runtime

        if arena > _LARGEST:
            raise ProgramError(f"tflite-micro has arenas of up to {_LARGEST:,} bytes; this one may need {arena:,}")
        room = arena + 10 * len(data) + _ROOM
        room += -room % _ALIGNMENT  # else the tail, which begins at the end, takes a few bytes more
        try:
            with standard_error() as said:
                self._interpreter = runtime.Interpreter.from_bytes(data, arena_size=room)
        except (RuntimeError, ValueError, TypeError) as error:
            reason = next((line for line in said if line.strip()), str(error))
            raise ProgramError(f"tflite-micro refuses it: {reason.strip()}") from None

    def arena(self) -> dict[str, int]:
        """Return the bytes of the arena's `head` and `tail`."""
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
    interpreter = MicroInterpreter(program.data, arena_for(program))
    rng = np.random.default_rng(SEED)
    given = [not program.main.tensors[tensor].is_constant for tensor in program.main.inputs]
    digests = []
    for _ in range(INVOCATIONS):
        interpreter.set_inputs(given, rng)
        interpreter.invoke()
        for output in interpreter.outputs(len(program.main.outputs)):
            digests.append(digest(output.dtype, output.shape, output.tobytes()))
    arena = interpreter.arena()
    measured = time_runs(interpreter.invoke_quietly) if times else {}
    return {**arena, "peak": arena["head"], "digests": digests, **measured}
