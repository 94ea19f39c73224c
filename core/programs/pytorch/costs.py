"""Costs of a PyTorch program's ops on this machine, by the profiler's events on the CPU and statistics on CUDA."""

from __future__ import annotations

import os
import statistics
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import fx

from .replay import Replay
from .sources import refuse_without_data
from .torch_internals import is_profiling

if TYPE_CHECKING:
    from .program import TorchProgram

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


_time = itemgetter(0)


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


TIMED_RUNS = 5


def measured_costs(
    program: TorchProgram, device: str = "cpu", *, timed_runs: int = TIMED_RUNS
) -> dict[str, tuple[float, int]]:
    """Run the program in its own order, which leaves its arguments as they are; return microseconds and bytes per op.

    The first run is traced for memory, the others are timed; nothing is kept from one run to the next.
    """
    refuse_without_data(program.name, program.arguments)
    traced = _Traced(program, device)
    timed = _Timed(program, device) if timed_runs else traced
    for replay in (traced, *[timed] * timed_runs):
        replay.run(program.arguments, program.training != "none")
    return {name: (statistics.median(times), traced.workspace[name]) for name, times in timed.microseconds.items()}


class _Timed(Replay):
    """Keeps the microseconds of each op in each run, by node name."""

    def __init__(self, program: TorchProgram, device: str) -> None:
        super().__init__(program.name, program.module)
        self.device = device
        self.wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
        self.microseconds: defaultdict[str, list[float]] = defaultdict(list)
        self.workspace: defaultdict[str, int] = defaultdict(int)

    def call_op(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node and wait for its end."""
        self.wait()
        start = time.perf_counter_ns()
        result = super().call_op(node, args, kwargs)
        self.wait()
        self.microseconds[node.name].append((time.perf_counter_ns() - start) / 1000)
        return result


class _Traced(_Timed):
    """Keeps the workspace of each op, too: by the trace of the CPU allocator, or the CUDA allocator's statistics."""

    def run(self, arguments: Sequence[Any], grad: bool) -> Any:
        """Run, on the CPU under the profiler; where the caller's own runs, which can be only one, without workspace."""
        if self.device == "cuda" or is_profiling():
            return super().run(arguments, grad)
        with trace_cpu_allocator() as trace:
            results = super().run(arguments, grad)
        for name in self.microseconds:
            peak, rest = trace.peak_and_rest(name)
            self.workspace[name] = peak - rest
        return results

    def call_op(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node within a span of its name, or between two readings of the allocator."""
        run = partial(super().call_op, node, args, kwargs)
        if self.device != "cuda":
            with torch.profiler.record_function(node.name):
                return run()
        result, peak, rest = cuda_peak_and_rest(run)
        self.workspace[node.name] = peak - rest
        return result
