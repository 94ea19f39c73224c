"""Peak memory of ONNX models by the statistics of ONNX Runtime's own allocator, in the order of the file.

usage: python tests/bench/onnx_statistics.py MODEL.onnx...

The Python package does not tell these statistics. The C library beside it does (Linux, 1.23 and later), but has no
function for two settings that keep the file's order and each tensor's own memory, so they are written into its object
of settings, and what it then says of itself is checked. That is no way for `schedopt measure`, which asks glibc's
allocator: this shows that both count the same. Constants and inputs are not in the number.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from schedopt.core.base.errors import ProgramError
from schedopt.core.programs.onnx.loading import load_program
from schedopt.core.programs.onnx.session import constant_tensors, random_inputs, runnable

VERSION = 23
POSITIONS = {
    "GetErrorMessage": 2,
    "CreateEnvWithCustomLogger": 4,
    "CreateSessionFromArray": 8,
    "Run": 9,
    "CreateSessionOptions": 10,
    "SetSessionExecutionMode": 13,
    "EnableMemPattern": 16,
    "DisableMemPattern": 17,
    "EnableCpuMemArena": 18,
    "DisableCpuMemArena": 19,
    "SetSessionLogSeverityLevel": 22,
    "SetSessionGraphOptimizationLevel": 23,
    "SetIntraOpNumThreads": 24,
    "CreateTensorWithDataAsOrtValue": 49,
    "CreateCpuMemoryInfo": 69,
    "ReleaseEnv": 92,
    "ReleaseMemoryInfo": 94,
    "ReleaseSession": 95,
    "ReleaseValue": 96,
    "ReleaseSessionOptions": 100,
    "AddSessionConfigEntry": 130,
    "CreateAllocator": 131,
    "ReleaseAllocator": 132,
    "CreateAndRegisterAllocator": 144,
    "ReleaseArenaCfg": 157,
    "CreateArenaCfgV2": 164,
    "GetKeyValue": 297,
    "ReleaseKeyValuePairs": 300,
    "AllocatorGetStats": 319,
}
"""Places in the table `OrtApi` of onnxruntime_c_api.h, which only ever grows at its end."""
ARENA = {"arena_extend_strategy": 1, "max_dead_bytes_per_chunk": 1}
"""Grow by what is asked for, and give out no piece with a byte more than was asked for, rounded."""

_SEARCHED = 96
_INFO, _SEQUENTIAL, _PARALLEL, _NO_OPTIMISATION, _ARENA, _DEFAULT_MEMORY = 1, 0, 1, 0, 1, 0
_CONFIRMED = ("execution_mode:0", "execution_order:PRIORITY_BASED", "enable_mem_pattern:0", "enable_mem_reuse:0")
_Log = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p
)


class Statistics(NamedTuple):
    """What the allocator counts, in bytes: what is given out now, and the most that ever was."""

    in_use: int
    most: int


def peak_by_statistics(model: bytes, folder: Path, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str]) -> int:
    """Run a model once, with the settings of `session_options` but an arena; return the most that it held, in bytes.

    Constants and inputs are not in it. The arena gives out multiples of 256 bytes, and splits each free piece that is
    too large, so that what it counts is what was asked for.

    Parameters
    ----------
    model
        The serialised model, its nodes in the order to run.
    folder
        Where its external data are.
    inputs, outputs
        The values to give, and the names to ask for.

    Raises
    ------
    ProgramError
        If this ONNX Runtime cannot tell, with the reason.
    """
    interface = _Interface(_library())
    arrays = {name: np.ascontiguousarray(value) for name, value in inputs.items()}
    messages: list[str] = []
    log = _Log(lambda *said: messages.append(said[-1].decode(errors="replace")))
    with ExitStack() as stack:

        def new(kind: str, function: str, *arguments: Any) -> ctypes.c_void_p:
            return stack.enter_context(interface.made(kind, function, *arguments))

        environment = new("Env", "CreateEnvWithCustomLogger", log, None, _INFO, b"schedopt")
        cpu = new("MemoryInfo", "CreateCpuMemoryInfo", _ARENA, _DEFAULT_MEMORY)
        sizes = (ctypes.c_size_t * len(ARENA))(*ARENA.values())
        arena = new("ArenaCfg", "CreateArenaCfgV2", _names(ARENA), sizes, ctypes.c_size_t(len(ARENA)))
        interface.do("CreateAndRegisterAllocator", environment, cpu, arena)
        options = new("SessionOptions", "CreateSessionOptions")
        _set_options(interface, options, folder)
        session = new("Session", "CreateSessionFromArray", environment, model, ctypes.c_size_t(len(model)), options)
        said = next((message for message in messages if message.startswith("Session Options")), "")
        if missing := [setting for setting in _CONFIRMED if setting not in said]:
            raise ProgramError(f"it does not confirm {missing[0]}")
        allocator = new("Allocator", "CreateAllocator", session, cpu)
        values = [new("Value", "CreateTensorWithDataAsOrtValue", cpu, *_tensor(array)) for array in arrays.values()]
        before = interface.statistics(allocator)
        results = (ctypes.c_void_p * len(outputs))()
        interface.do(
            *("Run", session, None, _names(arrays), (ctypes.c_void_p * len(values))(*(item.value for item in values))),
            *(ctypes.c_size_t(len(values)), _names(outputs), ctypes.c_size_t(len(outputs)), results),
        )
        after = interface.statistics(allocator)
        for result in results:
            interface.call(None, "ReleaseValue", ctypes.c_void_p(result))
    if after.most == before.most > before.in_use:
        raise ProgramError("loading the model takes more than running it, so that the run leaves no mark")
    return after.most - before.in_use


class _Interface:
    """The functions of `POSITIONS` in a library."""

    def __init__(self, library: Path) -> None:
        base = ctypes.CDLL(str(library)).OrtGetApiBase
        base.restype = ctypes.POINTER(ctypes.c_void_p)
        get = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint32)(base()[0])
        self._table = get(VERSION)

    def call(self, result: Any, function: str, *arguments: Any) -> Any:
        """Call a function whose result is of a C type."""
        return ctypes.CFUNCTYPE(result)(self._table[POSITIONS[function]])(*arguments)

    def do(self, function: str, *arguments: Any) -> None:
        """Call a function that returns an error or nothing."""
        if status := self.call(ctypes.c_void_p, function, *arguments):
            reason = self.call(ctypes.c_char_p, "GetErrorMessage", ctypes.c_void_p(status)).decode(errors="replace")
            raise ProgramError(f"{function} says: {(reason.strip().splitlines() or [''])[0]}")

    @contextmanager
    def made(self, kind: str, function: str, *arguments: Any) -> Iterator[ctypes.c_void_p]:
        """Call a function that makes an object, and release that at the end."""
        made = ctypes.c_void_p()
        self.do(function, *arguments, ctypes.byref(made))
        try:
            yield made
        finally:
            self.call(None, f"Release{kind}", made)

    def statistics(self, allocator: ctypes.c_void_p) -> Statistics:
        """Ask an allocator."""
        with self.made("KeyValuePairs", "AllocatorGetStats", allocator) as pairs:
            counts = [self.call(ctypes.c_char_p, "GetKeyValue", pairs, key) for key in (b"InUse", b"MaxInUse")]
        if None in counts:
            raise ProgramError("its allocator counts nothing")
        return Statistics(*map(int, counts))


def _library() -> Path:
    """Return the C library of the Python package: of the same version, and new enough to have statistics."""
    library = Path(onnxruntime.__file__).parent / "capi" / f"libonnxruntime.so.{onnxruntime.__version__}"
    if not library.exists():
        raise ProgramError(f"the package of ONNX Runtime {onnxruntime.__version__} has no {library.name}")
    if int(re.findall(r"\d+", onnxruntime.__version__)[1]) < VERSION:
        raise ProgramError(f"ONNX Runtime {onnxruntime.__version__} has no statistics; 1.{VERSION} has")
    return library


def _set_options(interface: _Interface, options: ctypes.c_void_p, folder: Path) -> None:
    """Set what `session_options` sets. Two of its settings have no function in C: they are written into the object.

    The order of execution is the word after the mode of execution, and the reuse of dead tensors the byte between
    memory patterns and the arena: the calls show where those are. ONNX Runtime writes down what it understood when it
    makes a session, which the caller is to check.
    """
    content = (ctypes.c_uint8 * _SEARCHED).from_address(options.value or 0)

    def place(function: str, *argument: Any, back: tuple[Any, ...]) -> int:
        before = bytes(content)
        interface.do(function, options, *argument)
        changed = [index for index in range(_SEARCHED) if content[index] != before[index]]
        interface.do(back[0], options, *back[1:])
        return changed[0] if len(changed) == 1 else -1

    mode = place("SetSessionExecutionMode", _PARALLEL, back=("SetSessionExecutionMode", _SEQUENTIAL))
    arena = place("DisableCpuMemArena", back=("EnableCpuMemArena",))
    pattern = place("DisableMemPattern", back=("EnableMemPattern",))
    order, reuse = mode + ctypes.sizeof(ctypes.c_int), pattern + 1
    if mode != 0 or pattern < 0 or arena != pattern + 2 or content[order] != 0 or content[reuse] != 1:
        raise ProgramError("its settings are not where they are known to be")
    content[order], content[reuse] = 1, 0
    interface.do("DisableMemPattern", options)
    interface.do("SetSessionGraphOptimizationLevel", options, _NO_OPTIMISATION)
    interface.do("SetIntraOpNumThreads", options, 1)
    interface.do("SetSessionLogSeverityLevel", options, _INFO)
    entries = {
        "session.disable_prepacking": "1",
        "session.use_env_allocators": "1",
        "session.model_external_initializers_file_folder_path": str(folder.absolute()),
    }
    for key, value in entries.items():
        interface.do("AddSessionConfigEntry", options, key.encode(), value.encode())


def _tensor(array: NDArray[Any]) -> tuple[Any, ...]:
    """Return what `CreateTensorWithDataAsOrtValue` wants of an array: its place, bytes, shape, rank and type."""
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    element = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    place = ctypes.c_void_p(array.ctypes.data)
    return place, ctypes.c_size_t(array.nbytes), shape, ctypes.c_size_t(array.ndim), element


def _names(names: Mapping[str, Any] | Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(names))(*(name.encode() for name in names))


if __name__ == "__main__":
    for path in sys.argv[1:]:
        program = load_program(path, {})
        model = runnable(program, program.names, constant_tensors(program)).SerializeToString()
        held = sum(program.types[name].bytes for name in (*program.constants, *program.inputs))
        peak = peak_by_statistics(model, Path(path).parent, random_inputs(program), program.outputs)
        print(f"{path}: {peak / 2**20:.2f} MiB by its statistics, {(held + peak) / 2**20:.2f} MiB with what is held")
