"""Costs of a PyTorch program's ops, measured by running it on this machine."""

from __future__ import annotations

import copy
import operator
import statistics
import time
from typing import TYPE_CHECKING, Any

import torch

from .torch_allocator import cuda_peak_and_rest, trace_cpu_allocator

if TYPE_CHECKING:
    from .torch_program import TorchProgram

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
        Node name to microseconds and workspace: the bytes that the op held at its worst beyond those of its results.
        `getitem` and other nodes that call no op are left out.
    """
    workspace = _cuda_workspace(program) if device == "cuda" else _cpu_workspace(program)
    runs = [_Timed(program.module, device) for _ in range(TIMED_RUNS)]
    for run in runs:
        run.start(program)
    return {
        name: (statistics.median(run.microseconds[name] for run in runs), bytes_) for name, bytes_ in workspace.items()
    }


class _OpByOp(torch.fx.Interpreter):
    """Runs a program node by node and, as its generated code does, drops results that nobody reads at once."""

    def start(self, program: TorchProgram) -> None:
        """Run on copies of the program's arguments, with random numbers of a fixed seed."""
        arguments = copy.deepcopy(program.arguments)
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)
            self.run(*arguments)

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run a node; ops by `call_op`."""
        if n.op != "call_function" or n.target is operator.getitem:
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        result = self.call_op(n, args, kwargs)
        return result if n.users else None

    def call_op(self, node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node."""
        raise NotImplementedError


class _Timed(_OpByOp):
    """Keeps the microseconds of each op, by node name."""

    def __init__(self, module: torch.fx.GraphModule, device: str) -> None:
        super().__init__(module)
        self.synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
        self.microseconds: dict[str, float] = {}

    def call_op(self, node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node and wait for its end."""
        self.synchronize()
        start = time.perf_counter_ns()
        result = node.target(*args, **kwargs)  # type: ignore[operator]
        self.synchronize()
        self.microseconds[node.name] = (time.perf_counter_ns() - start) / 1000
        return result


class _Spans(_OpByOp):
    """Marks each op in the profiler's trace by its node name."""

    def call_op(self, node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node within a span of its name."""
        with torch.profiler.record_function(node.name):
            return node.target(*args, **kwargs)  # type: ignore[operator]


class _CudaStatistics(_OpByOp):
    """Keeps the workspace of each op by the CUDA allocator's statistics, by node name."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.workspace: dict[str, int] = {}

    def call_op(self, node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node between two readings of the allocator."""
        result, peak, rest = cuda_peak_and_rest(lambda: node.target(*args, **kwargs))  # type: ignore[operator]
        self.workspace[node.name] = peak - rest
        return result


def _cpu_workspace(program: TorchProgram) -> dict[str, int]:
    run = _Spans(program.module)
    with trace_cpu_allocator() as trace:
        run.start(program)
    workspace = {}
    for name in trace.spans:
        peak, rest = trace.peak_and_rest(name)
        workspace[name] = peak - rest
    return workspace


def _cuda_workspace(program: TorchProgram) -> dict[str, int]:
    run = _CudaStatistics(program.module)
    run.start(program)
    return run.workspace
