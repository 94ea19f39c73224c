"""TensorFlow Lite for Microcontrollers in this process: arenas, measured runs, and costs that the file does not say."""

from __future__ import annotations

import os
import re
import statistics
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import ProgramError
from ..fresh_process import ask, digest, standard_error, time_runs
from .planner import ALIGNMENT, aligned, arena_for
from .program import ONLINE, TfliteProgram, load_program
from .writing import Edit, Run, edited

_ROOM = 1 << 20  # bytes of a roomy arena beside tensors and weights, for what the runtime keeps of the model
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
        self.invoke_quietly = self._interpreter.invoke  # without looking at what the runtime says: to be timed

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

    def set_inputs(self, given: Sequence[bool], rng: np.random.Generator) -> None:
        """Give those inputs random values that are said to be given; the others are constants."""
        for number in np.flatnonzero(given).tolist():
            details = self._interpreter.get_input_details(number)
            self._interpreter.set_input(_random(details["shape"], np.dtype(details["dtype"]), rng), number)

    def output(self, number: int) -> NDArray[Any]:
        """Return an output."""
        return np.array(self._interpreter.get_output(number))


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
"""Runs whose outputs are compared, each with other inputs: state kept from run to run shows in the later."""


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
        for output in map(interpreter.output, range(len(program.main.outputs))):
            digests.append(digest(output.dtype, output.shape, output.tobytes()))
    arena = interpreter.arena()
    measured = {**time_runs(interpreter.invoke_quietly), "arena": least_arena(path)} if times else {}
    return {**arena, "peak": arena["head"], "digests": digests, **measured}


def least_arena(path: str) -> int:
    """Return the least bytes of an arena in which a file starts and runs, each size tried in a process of its own."""
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


REPEATS = 5
_WITHOUT_SCRATCH = {"ASSIGN_VARIABLE", "CALL_ONCE", "IF", "READ_VARIABLE", "VAR_HANDLE", "WHILE"}
"""Kinds that do not run alone, and whose kernels ask for none."""

_LONGEST = 600.0
_MOST_BUFFERS = 12  # scratch buffers that an operator may ask for


@dataclass(frozen=True)
class Costs:
    """The costs found by running a model."""

    # bytes of the arena in program order; None where the model does not run here
    head: int | None = None
    tail: int | None = None
    reason: str = ""
    # (subgraph, place of the operator) -> bytes of each of its scratch buffers, the largest first
    scratch: Mapping[tuple[int, int], Sequence[int]] = field(default_factory=dict)
    unknown: Sequence[str] = ()  # operators that do not run alone
    # by operator of the model, if times were asked for
    microseconds: Mapping[int, float] = field(default_factory=dict)


def measured_costs(program: TfliteProgram, times: bool) -> Costs:
    """Run a model, and each of its operators alone, in another process; times are the median of `REPEATS` runs."""
    if find_spec("tflite_micro") is None:
        return Costs(reason="tflite-micro is not installed (pip install 'schedopt[tflite]')")
    try:
        found = ask("tflite.interpreter:run_each", {"path": program.path, "times": times}, seconds=_LONGEST)
    except ProgramError as error:
        return Costs(reason=str(error).removeprefix(f"{program.path}: "))
    scratch = {(subgraph, at): sizes for subgraph, at, sizes in found["scratch"]}
    return Costs(**{**found, "scratch": scratch, "microseconds": dict(found["microseconds"])})


def run_each(path: str, times: bool) -> dict[str, Any]:
    """Run the model and its operators in this process; returns the fields of `Costs`, keys as items of lists."""
    program = load_program(path)
    found: dict[str, Any] = {"head": None, "tail": None, "reason": "", "scratch": [], "unknown": [], "microseconds": []}
    room = arena_for(program)
    try:
        arena = MicroInterpreter.roomy(program.data, room).arena()
    except ProgramError as error:
        return {**found, "reason": str(error)}
    for number, subgraph in enumerate(program.subgraphs):
        for at, operator in enumerate(subgraph.operators):
            if operator.kind in _WITHOUT_SCRATCH:
                continue
            try:
                alone = _Alone(program, number, at, room)
                if sizes := alone.scratch():
                    found["scratch"].append([number, at, sizes])
                if times and not number:
                    found["microseconds"].append([at, alone.microseconds()])
            except ProgramError:
                found["unknown"].append(f"operator {at} ({operator.kind}) of subgraph {number}")
    return {**found, "head": arena["head"], "tail": arena["tail"]}


class _Alone:
    """One operator of a subgraph, in a file of its own."""

    def __init__(self, program: TfliteProgram, subgraph: int, at: int, room: int) -> None:
        self._program, self._subgraph, self._room = program, subgraph, room
        own = program.subgraphs[subgraph]
        operator, self._count = own.operators[at], len(own.tensors)
        named = dict.fromkeys((*operator.reads, *operator.outputs))
        held = {n: own.tensors[n] for n in named if not (own.tensors[n].is_constant or own.tensors[n].is_variable)}
        given, run = [n for n in held if n in operator.reads], Run(at, operator.inputs, operator.outputs)
        self._edit = Edit([run], given=given, taken=operator.outputs)
        self._sizes = {n: aligned(tensor.bytes) for n, tensor in held.items() if tensor.bytes}

    def scratch(self) -> list[int]:
        """Return the bytes of each scratch buffer, the largest first; the head holds them and the tensors.

        An offline plan leaves gaps between blocks; the runtime puts the largest buffer first, into the lowest gap.
        """
        total = self._head(None) - sum(self._sizes.values())
        sizes: list[int] = []
        while sum(sizes) < total:
            known = sum(sizes)
            gaps = range(ALIGNMENT, (total - known) // ALIGNMENT * ALIGNMENT, ALIGNMENT)  # or the smallest fills all
            first = bisect_left(gaps, True, key=lambda gap: self._fit([*sizes, gap], total) > known)
            size = (first + 1) * ALIGNMENT
            count = (self._fit([*sizes, *[size] * (_MOST_BUFFERS - len(sizes))], total) - known) // size
            sizes += [size] * max(1, count)
        return sizes[::-1]

    def _fit(self, gaps: Sequence[int], total: int) -> int:
        """Return the bytes of scratch buffers that find a place in gaps, the lowest first, of `total` bytes."""
        return sum(gaps) + len(gaps) * ALIGNMENT + sum(self._sizes.values()) + total - self._head(gaps)

    def _head(self, gaps: Sequence[int] | None) -> int:
        """Return the head of the arena with gaps at its beginning, each before a block; None lets the runtime plan."""
        edit = self._edit
        if gaps is not None:
            ends = list(accumulate(gap + ALIGNMENT for gap in gaps))
            places = accumulate(self._sizes.values(), initial=ends[-1])
            place = dict(zip(self._sizes, places, strict=False))
            offsets = [place.get(n, ONLINE) for n in range(self._count)] + [end - ALIGNMENT for end in ends]
            edit = replace(edit, blocks=[ALIGNMENT] * len(gaps), offsets=offsets)
        data = edited(self._program, edit, self._subgraph)
        return MicroInterpreter.roomy(data, self._room + 2 * sum(gaps or ())).arena()["head"]

    def microseconds(self) -> float:
        """Return the median time of the operator on random inputs."""
        interpreter = MicroInterpreter.roomy(edited(self._program, self._edit, self._subgraph), self._room)
        interpreter.set_inputs([True] * len(self._edit.given or ()), np.random.default_rng(0))
        interpreter.invoke()
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter_ns()
            interpreter.invoke_quietly()
            times.append((time.perf_counter_ns() - start) / 1000)
        return statistics.median(times)
