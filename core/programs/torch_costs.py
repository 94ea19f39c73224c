"""Costs of a PyTorch program's ops, measured by running it on this machine."""

from __future__ import annotations

import copy
import operator
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from ..errors import ProgramError
from .torch_allocator import cuda_peak_and_rest, trace_cpu_allocator
from .torch_run import SEED

if TYPE_CHECKING:
    from .torch_program import TorchProgram

TIMED_RUNS = 5


class OpCost(NamedTuple):
    """What an op really took.

    Parameters
    ----------
    microseconds
        Time of the call.
    workspace
        Bytes that it held at its worst beyond those of its results.
    sizes
        Bytes of the storage of each result, 0 for what is no tensor. It differs from what PyTorch expects where an op
        decides when it runs, as an LSTM layer does of what its backward needs.
    """

    microseconds: float
    workspace: int
    sizes: tuple[int, ...]


def measured_costs(program: TorchProgram, device: str = "cpu") -> dict[str, OpCost]:
    """Run the program in its own order and return what each op took, by node name.

    Each run starts from copies of the program's arguments: ops that write in place meet the values that they meet in a
    real run, and the program's own arguments stay as they are. The first run is traced for memory; the time is the
    median over further runs without a trace.

    Parameters
    ----------
    program
        What to run.
    device
        `cpu` or `cuda`, where the program's arguments are.

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
        name: OpCost(statistics.median(run.microseconds[name] for run in timed), workspace, traced.sizes[name])
        for name, workspace in traced.workspace.items()
    }


class _OpByOp(torch.fx.Interpreter):
    """Runs a program node by node and, as its generated code does, drops results that nobody reads at once."""

    def __init__(self, program: TorchProgram) -> None:
        super().__init__(program.module)
        self.program = program
        self.sizes: dict[str, tuple[int, ...]] = {}

    def start(self) -> None:
        """Run on copies of the program's arguments, with random numbers of a fixed seed."""
        arguments = copy.deepcopy(self.program.arguments)
        with torch.random.fork_rng(), torch.set_grad_enabled(self.program.training != "none"):
            torch.manual_seed(SEED)
            self.run(*arguments)

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run a node, an op by `call_op`; note the sizes of its results."""
        if n.op != "call_function" or n.target is operator.getitem:
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        try:
            result = self.call_op(n, args, kwargs)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise ProgramError(f"{self.program.name}: node '{n.name}' ({n.target}) fails when run: {reason}") from error
        leaves = [] if result is None else tree_leaves(result)
        self.sizes[n.name] = tuple(
            leaf.untyped_storage().nbytes() if isinstance(leaf, torch.Tensor) else 0 for leaf in leaves
        )
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
        for name in self.sizes:
            peak, rest = trace.peak_and_rest(name)
            self.workspace[name] = peak - rest

    def call_op(self, node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node within a span of its name."""
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
