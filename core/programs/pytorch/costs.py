"""Costs of a PyTorch program's ops, measured by running it on this machine."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from .allocator import cuda_peak_and_rest, trace_cpu_allocator
from .replay import Replay
from .without_data import refuse_without_data

if TYPE_CHECKING:
    from .program import TorchProgram

TIMED_RUNS = 5


def measured_costs(
    program: TorchProgram, device: str = "cpu", *, timed_runs: int = TIMED_RUNS
) -> dict[str, tuple[float, int]]:
    """Run the program in its own order, which leaves its arguments as they are; return microseconds and bytes per op.

    The first run is traced for memory, the others are timed; nothing is kept from one run to the next.
    """
    refuse_without_data(program.name, program.arguments)
    traced = (_CudaStatistics if device == "cuda" else _Spans)(program, device)
    traced.run(program.arguments, program.training != "none")
    timed = _Timed(program, device) if timed_runs else traced
    for _ in range(timed_runs):
        timed.run(program.arguments, program.training != "none")
    return {
        name: (statistics.median(timed.microseconds[name]), workspace) for name, workspace in traced.workspace.items()
    }


class _Timed(Replay):
    """Keeps the microseconds of each op in each run, by node name."""

    def __init__(self, program: TorchProgram, device: str) -> None:
        super().__init__(program.name, program.module)
        self.wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
        self.microseconds: defaultdict[str, list[float]] = defaultdict(list)
        self.workspace: dict[str, int] = {}

    def call_op(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node and wait for its end."""
        self.wait()
        start = time.perf_counter_ns()
        result = super().call_op(node, args, kwargs)
        self.wait()
        self.microseconds[node.name].append((time.perf_counter_ns() - start) / 1000)
        return result


class _Spans(_Timed):
    """Keeps the workspace of each op by the profiler's trace of the CPU allocator, by node name."""

    def run(self, arguments: Sequence[Any], grad: bool) -> Any:
        """Run under the profiler."""
        with trace_cpu_allocator() as trace:
            results = super().run(arguments, grad)
        for name in self.microseconds:
            peak, rest = trace.peak_and_rest(name)
            self.workspace[name] = peak - rest
        return results

    def call_op(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node within a span of its name."""
        with torch.profiler.record_function(node.name):
            return super().call_op(node, args, kwargs)


class _CudaStatistics(_Timed):
    """Keeps the workspace of each op by the CUDA allocator's statistics, by node name."""

    def call_op(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node between two readings of the allocator."""
        result, peak, rest = cuda_peak_and_rest(lambda: super(_CudaStatistics, self).call_op(node, args, kwargs))
        self.workspace[node.name] = peak - rest
        return result
