"""Costs of a PyTorch program's ops, measured by running it on this machine."""

from __future__ import annotations

import copy
import operator
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...errors import ProgramError
from .allocator import cuda_peak_and_rest, trace_cpu_allocator
from .run import SEED
from .source_lines import node_label

if TYPE_CHECKING:
    from .program import TorchProgram

TIMED_RUNS = 5


def measured_costs(program: TorchProgram, device: str = "cpu") -> dict[str, tuple[float, int]]:
    """Run the program in its own order and return what each op took.

    Each run starts from copies of the program's arguments: ops that write in place meet the values that they meet in a
    real run, and the program's own arguments stay as they are. The first run is traced for memory; the time is the
    median over further runs without a trace.

    Parameters
    ----------
    program
        What to run.
    device
        `cpu` or `cuda`, where the program's arguments are.

    Returns
    -------
    dict
        Node name to microseconds and workspace: bytes that the op held at its worst beyond those of its results.

    Raises
    ------
    ProgramError
        If a node fails; the message names it.
    """
    traced: _CudaStatistics | _Spans = _CudaStatistics(program) if device == "cuda" else _Spans(program)
    traced.start()
    timed = [_Timed(program, device) for _ in range(TIMED_RUNS)]
    for run in timed:
        run.start()
    return {
        name: (statistics.median(run.microseconds[name] for run in timed), workspace)
        for name, workspace in traced.workspace.items()
    }


class _OpByOp(torch.fx.Interpreter):
    """Runs a program node by node and, as its generated code does, drops results that nobody reads at once."""

    def __init__(self, program: TorchProgram) -> None:
        super().__init__(program.module)
        self.extra_traceback = False
        self.program = program

    def start(self) -> None:
        """Run on copies of the program's arguments, with random numbers of a fixed seed."""
        arguments = copy.deepcopy(self.program.arguments)
        with torch.random.fork_rng(), torch.set_grad_enabled(self.program.training != "none"):
            torch.manual_seed(SEED)
            self.run(*arguments)

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run a node, an op by `call_op`."""
        if n.op != "call_function" or n.target is operator.getitem:
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        try:
            result = self.call_op(n, args, kwargs)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise ProgramError(f"{self.program.name}: node {node_label(n)} fails when run: {reason}") from error
        return result if n.users else None

    def call_op(self, node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node."""
        raise NotImplementedError


class _Timed(_OpByOp):
    """Keeps the microseconds of each op, by node name."""

    def __init__(self, program: TorchProgram, device: str) -> None:
        super().__init__(program)
        self.wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
        self.microseconds: dict[str, float] = {}

    def call_op(self, node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node and wait for its end."""
        self.wait()
        start = time.perf_counter_ns()
        result = node.target(*args, **kwargs)  # type: ignore[operator]
        self.wait()
        self.microseconds[node.name] = (time.perf_counter_ns() - start) / 1000
        return result


class _Spans(_OpByOp):
    """Keeps the workspace of each op by the profiler's trace of the CPU allocator, by node name."""

    def __init__(self, program: TorchProgram) -> None:
        super().__init__(program)
        self.workspace: dict[str, int] = {}

    def start(self) -> None:
        """Run under the profiler."""
        with trace_cpu_allocator() as trace:
            super().start()
        for name in self.workspace:
            peak, rest = trace.peak_and_rest(name)
            self.workspace[name] = peak - rest

    def call_op(self, node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node within a span of its name."""
        self.workspace[node.name] = 0
        with torch.profiler.record_function(node.name):
            return node.target(*args, **kwargs)  # type: ignore[operator]


class _CudaStatistics(_OpByOp):
    """Keeps the workspace of each op by the CUDA allocator's statistics, by node name."""

    def __init__(self, program: TorchProgram) -> None:
        super().__init__(program)
        self.workspace: dict[str, int] = {}

    def call_op(self, node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node between two readings of the allocator."""
        result, peak, rest = cuda_peak_and_rest(lambda: node.target(*args, **kwargs))  # type: ignore[operator]
        self.workspace[node.name] = peak - rest
        return result
