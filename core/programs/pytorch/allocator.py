"""What PyTorch's allocator holds while a program runs: profiler events on the CPU, its own statistics on CUDA.

The profiler sees what the thread that runs the program allocates and frees, to the byte. Scratch memory that an op's
own worker threads allocate is not seen.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

Result = TypeVar("Result")


class AllocatorTrace:
    """The CPU allocator's changes in the order they happened, and when each named span ran."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, int]] = []  # `(nanoseconds, bytes)` of each allocation, and negative of each free
        # first and last nanosecond of each `torch.profiler.record_function`, by its name
        self.spans: dict[str, tuple[int, int]] = {}

    def peak_and_rest(self, span: str | None = None) -> tuple[int, int]:
        """Return the most bytes held, and those held at the end, of what was allocated in a span or in all."""
        changes = self.changes
        if span is not None:
            start, end = self.spans[span]
            changes = changes[bisect_left(changes, start, key=_time) : bisect_left(changes, end + 1, key=_time)]
        held = peak = 0
        for _, size in changes:
            held += size
            peak = max(peak, held)
        return peak, held


def _time(change: tuple[int, int]) -> int:
    return change[0]


@contextmanager
def trace_cpu_allocator() -> Iterator[AllocatorTrace]:
    """Record every allocation and free of this thread; the trace is filled when the block ends."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler reports its start and stop on standard error
    trace = AllocatorTrace()
    with torch.autograd.profiler.profile(use_kineto=True, profile_memory=True) as profiler:
        yield trace
    for event in profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            trace.changes.append((event.start_ns(), event.nbytes()))
        elif event.is_user_annotation():
            trace.spans[event.name()] = (event.start_ns(), event.end_ns())
    trace.changes.sort(key=_time)


def cuda_peak_and_rest(run: Callable[[], Result]) -> tuple[Result, int, int]:
    """Call `run`; return its result, the most bytes held on the CUDA device beside those before, and those left."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = run()
    torch.cuda.synchronize()
    return result, torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before


def peak_of(run: Callable[[], Result], device: str) -> tuple[Result, int]:
    """Call `run`; return its result and the most bytes held, on `cpu` or `cuda`, beside those before."""
    if device == "cuda":
        result, peak, _ = cuda_peak_and_rest(run)
        return result, peak
    with trace_cpu_allocator() as trace:
        result = run()
    return result, trace.peak_and_rest()[0]
