"""Questions to a process of its own, and time and memory of code there, by glibc: warm runs, page faults, peaks."""

import ctypes
import gc
import hashlib
import json
import mmap
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from ..base.errors import ProgramError, UsageError
from ..base.speed import without_gc

_OWN_ERROR = re.compile(r"^schedopt\.core\.base\.errors\.\w+: ")


def ask(function: str, question: dict[str, Any], about: str | None = None, seconds: float | None = None) -> Any:
    """Call a function `module:function` of `core.programs` with JSON values; return its result, as JSON has it."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, function],
            input=json.dumps(question),
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            check=False,
            timeout=seconds,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"},
        )
    except subprocess.TimeoutExpired:
        raise ProgramError(f"{about or question['path']}: the run took more than {seconds:g} s and was ended") from None
    if done.returncode:
        reason = _OWN_ERROR.sub("", (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
        if done.returncode < 0:
            reason = f"signal {-done.returncode} ended it, perhaps for lack of memory"
        raise ProgramError(f"{about or question['path']}: the run failed: {reason}")
    return json.loads(done.stdout.splitlines()[-1])  # a library may print before


def digest(kind: object, shape: Sequence[int], data: Any) -> str:
    """Return text that tells tensors apart: type, shape and, of the buffer `data`, all bits."""
    return f"{kind} {tuple(shape)} {hashlib.sha256(data).hexdigest()}"


MAPPED_FROM = 4096
_LARGEST_HOLE = 1 << 28
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4


class _MallocInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("a", "b", "c", "d", "hblkhd", "e", "f", "g", "h", "i")]


class SystemAllocator:
    """Measures the most that code holds, in every allocation of `MAPPED_FROM` bytes or more, in a process of its own.

    glibc maps each of these by itself and counts them exactly, in whole pages. It fills a hole in its heap before it
    maps, so `measure` takes all holes out of use. Its mark never falls, so `measure` raises the held bytes to the mark,
    by an allocation that nobody touches and that takes no memory.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        if not (hasattr(self._libc, "mallinfo2") and hasattr(self._libc, "malloc_stats")):
            raise UsageError("memory is measured by glibc's allocator (2.33 or later), which this system does not have")
        self._libc.mallinfo2.restype = _MallocInfo
        self._libc.malloc.restype = ctypes.c_void_p
        self._libc.malloc.argtypes = self._libc.free.argtypes = [ctypes.c_size_t]
        self._libc.mallopt(_MMAP_THRESHOLD, MAPPED_FROM)
        self._libc.mallopt(_MMAP_MAX, 1 << 30)

    def measure(self, run: Callable[[], Any]) -> tuple[Any, int, int]:
        """Return a function's result, the most bytes held meanwhile, and those held afterwards."""
        gc.collect()  # what it would free while measuring is a hole
        size = _LARGEST_HOLE
        while size >= MAPPED_FROM:  # takes every hole of the heap that could hold a counted allocation, for good
            before, place = self._held(), self._libc.malloc(size)
            if self._held() > before:
                self._libc.free(place)
                size //= 2
        missing = self._mark() - self._held()
        ballast = self._libc.malloc(missing - MAPPED_FROM) if missing > MAPPED_FROM else None
        start = self._held()
        result = run()
        left, peak = self._held() - start, max(0, self._mark() - start)
        self._libc.free(ballast or 0)
        return result, peak, left

    def _held(self) -> int:
        """Return the bytes that are mapped now."""
        return int(self._libc.mallinfo2().hblkhd)

    def _mark(self) -> int:
        """Read `max mmap bytes` of `malloc_stats`, which writes to the standard error of the process."""
        with standard_error() as said:
            self._libc.fflush(None)
            self._libc.malloc_stats()
            self._libc.fflush(None)
        return int(re.findall(r"max mmap bytes\s*=\s*(\d+)", "\n".join(said))[-1])


@contextmanager
def standard_error() -> Iterator[list[str]]:
    """Give the lines that C and C++ write to the standard error of the process meanwhile, at the end."""
    said: list[str] = []
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            said += file.read().decode("utf-8", errors="replace").splitlines()


def return_freed_memory() -> None:
    """Let glibc return all free memory to the system; nothing happens elsewhere than on Linux with glibc."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


ENOUGH_MICROSECONDS = 500_000
MOST_RUNS = 50
_NOTED_SHARE = 0.02
_PAGES = 1024


def time_runs(run: Callable[[], object]) -> dict[str, Any]:
    """Time warm runs, as they are and, where page faults take long, with freed memory kept, which glibc gives back."""
    before = _page_faults()
    runs, count = _warm_runs(run)
    faults = (_page_faults() - before) / count
    median = statistics.median(runs)
    kept = median
    if faults * _microseconds_per_fault() > _NOTED_SHARE * median and _keep_freed_memory():
        run()
        kept = statistics.median(_warm_runs(run)[0])
        _give_freed_memory_back()
    return {"microseconds": median, "runs": runs, "page_faults": faults, "kept_microseconds": kept}


@cache
def _microseconds_per_fault() -> float:
    """Return the time here to map a page and fill it with zeros."""
    with mmap.mmap(-1, _PAGES * mmap.PAGESIZE) as memory:
        start = time.perf_counter()
        memory[:: mmap.PAGESIZE] = bytes(_PAGES)
        return (time.perf_counter() - start) * 1e6 / _PAGES


def _warm_runs(run: Callable[[], object]) -> tuple[list[float], int]:
    """Return the microseconds of runs until there are enough, without the first unless it is alone; and their count."""
    runs: list[float] = []
    gc.collect()
    with without_gc():
        while not runs or (sum(runs) < ENOUGH_MICROSECONDS and len(runs) <= MOST_RUNS):
            start = time.perf_counter_ns()
            run()
            runs.append((time.perf_counter_ns() - start) / 1000)
    return runs[1:] or runs, len(runs)


def _page_faults() -> int:
    """Return the pages that this process was given so far; none where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _keep_freed_memory() -> bool:
    """Let glibc keep all memory that is freed; False where the system has another allocator."""
    libc = ctypes.CDLL(None)
    return hasattr(libc, "mallopt") and bool(libc.mallopt(_MMAP_MAX, 0) and libc.mallopt(_TRIM_THRESHOLD, -1))


def _give_freed_memory_back() -> None:
    """Set glibc to its defaults, except for thresholds that stay where they are, and give back the kept memory."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_MAX, 65536)
    libc.mallopt(_TRIM_THRESHOLD, 128 * 1024)
    return_freed_memory()


if __name__ == "__main__":  # in the process that `ask` began
    module, _, name = sys.argv[1].partition(":")
    answer = getattr(import_module(f"schedopt.core.programs.{module}"), name)
    print(json.dumps(answer(**json.load(sys.stdin))))
