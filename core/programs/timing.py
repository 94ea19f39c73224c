"""The time that a program takes in this process: warm runs, and what of it the system takes to hand out memory."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

from .system_allocator import return_freed_memory

ENOUGH_MICROSECONDS = 500_000
MOST_RUNS = 50
_NOTED_SHARE = 0.02
_MICROSECONDS_PER_FAULT = 1.0  # to map a page and fill it with zeros: 0.5 to 1.5 on machines that were tried
_TRIM_THRESHOLD = -1
_MMAP_MAX = -4
_DEFAULT_TRIM_THRESHOLD = 128 * 1024
_DEFAULT_MMAP_MAX = 65536


def time_runs(run: Callable[[], object]) -> dict[str, Any]:
    """Time warm runs, as they are and, where that makes a difference, with freed memory kept by the process.

    glibc gives large tensors that are freed back to the system, which hands the pages out anew, filled with zeros, when
    the next one is written. How often that happens depends on the order and on the history of the process, not on what
    the ops do: an order that holds less may fault more. For a process of its own, whose allocator is set otherwise.
    Returns `microseconds` (the median), `runs` (each), `page_faults` per run, and `kept_microseconds`: the median with
    freed memory kept, or `microseconds` where page faults take no time worth telling.
    """
    before = _page_faults()
    runs, count = _warm_runs(run)
    faults = (_page_faults() - before) / count
    median = statistics.median(runs)
    kept = median
    if faults * _MICROSECONDS_PER_FAULT > _NOTED_SHARE * median and _keep_freed_memory():
        run()
        kept = statistics.median(_warm_runs(run)[0])
        _give_freed_memory_back()
    return {"microseconds": median, "runs": runs, "page_faults": faults, "kept_microseconds": kept}


def _warm_runs(run: Callable[[], object]) -> tuple[list[float], int]:
    """Return the microseconds of runs until there are enough, without the first unless it is alone; and their count."""
    runs: list[float] = []
    gc.collect()
    gc.disable()
    try:
        while not runs or (sum(runs) < ENOUGH_MICROSECONDS and len(runs) <= MOST_RUNS):
            start = time.perf_counter_ns()
            run()
            runs.append((time.perf_counter_ns() - start) / 1000)
    finally:
        gc.enable()
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
    """Set glibc as it is by default, but for thresholds that stay where they are, and give back what is kept."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_MAX, _DEFAULT_MMAP_MAX)
    libc.mallopt(_TRIM_THRESHOLD, _DEFAULT_TRIM_THRESHOLD)
    return_freed_memory()
