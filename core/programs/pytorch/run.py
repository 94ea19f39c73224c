"""Runs of PyTorch programs: op by op or whole, their results, their time and memory."""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
import warnings
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import fx

from ...graph.graph import CostGraph
from ...kernels.caching_allocator import SMALL
from .. import fresh_process
from ..fresh_process import return_freed_memory, time_runs
from ..runtime import check_equal
from .calls import given, tensors_in, written
from .importer import SAVED
from .program import as_call, call_function, placed, refuse_without_data
from .torch_internals import (
    OpOverload,
    custom_builtins,
    is_profiling,
    neg_view,
    pytree,
    recorded_memory,
    storage_id,
    storage_of,
)
from .tracing import LOCK, TorchProgram, counts, foreign_code, in_order, node_label, silent

ARGUMENTS = "arguments.pt"
SEED = 0
TIMED_RUNS = 5
Result = TypeVar("Result")
_time = itemgetter(0)


def held_bytes(values: Iterable[Any], device: str = "cpu") -> int:
    """Return the bytes of all tensors among the values, each storage once; on CUDA of those in its memory alone."""
    tensors = (one for one in values if issubclass(type(one), torch.Tensor) and counts(one, device))
    strided = (tensor for tensor in tensors if tensor.layout is torch.strided)
    return sum({storage_of(tensor): tensor.untyped_storage().nbytes() for tensor in strided}.values())


def digests(*values: Any) -> list[str]:
    """Return the digests of all tensors and values in any nest of values."""
    return [digest(value) for value in pytree.tree_leaves(values)]


def digest(value: Any) -> str:
    """Return a digest of values: of the type, shape and all bits of a tensor."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    if torch.cuda.is_initialized() and value.device.type == "cpu" and value.is_pinned():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()  # a copy to it may be on its way
    value = value.detach().resolve_conj().resolve_neg()
    dense = value.cpu().contiguous()
    flat = dense.as_strided((dense.numel(),), (1,))  # one element may keep any stride, of which no bytes are viewed
    return fresh_process.digest(value.dtype, value.shape, flat.view(torch.uint8).numpy().data)


class AllocatorTrace:
    """The CPU allocator's changes in the order they happened, and when each named span ran."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, int]] = []  # `(nanoseconds, bytes)` of each allocation, and negative of each free
        # first and last nanosecond of each `torch.profiler.record_function`, by its name
        self.spans: dict[str, tuple[int, int]] = {}

    def peak_and_rest(self, span: str | None = None, most: float = math.inf) -> tuple[int, int]:
        """Return the most bytes held, and those held at the end, of the allocations up to `most` in a span."""
        changes = self.changes
        if span is not None:
            start, end = self.spans[span]
            changes = changes[bisect_left(changes, start, key=_time) : bisect_left(changes, end + 1, key=_time)]
        held = list(accumulate((size for _, size in changes if abs(size) <= most), initial=0))
        return max(held), held[-1]


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


def begin_anew(module: fx.GraphModule) -> None:
    """Before its first run give free segments of CUDA back, and open the block that a plan's memory is cut from."""
    if (opening := module.meta.pop("opening_block", None)) is None:
        return
    size, device = opening
    gc.collect()
    torch.cuda.empty_cache()
    with suppress(torch.cuda.OutOfMemoryError):  # then the plan runs without
        torch.empty(size, dtype=torch.uint8, device=device)


def peak_of(run: Callable[[], Result], device: str) -> tuple[Result, int]:
    """Call `run`; return its result and the most bytes held, on `cpu` or `cuda`, beside those before."""
    if device == "cuda":
        return cuda_peak_and_rest(run)[:2]
    with trace_cpu_allocator() as trace:
        result = run()
    return result, trace.peak_and_rest()[0]


@dataclass
class _Memory:
    """A storage that was given, or the copy that took its place: who is in it."""

    arguments: list[int] = field(default_factory=list)
    nodes: set[fx.Node] = field(default_factory=set)
    copied: bool = False


class Replay:
    """Runs a graph of ATen calls in its order, drops each value after its last use, and leaves its inputs as they are.

    Memory that was given is copied before an op writes to it, and `wrote` gets the new value of the argument of a
    number.
    """

    def __init__(
        self, name: str, module: fx.GraphModule, wrote: Callable[[int, torch.Tensor], Any] = lambda number, value: None
    ) -> None:
        self.name, self.module, self.wrote = name, module, wrote
        self._last_uses: dict[fx.Node, list[fx.Node]] = {}
        used: set[fx.Node] = set()
        for node in reversed(module.graph.nodes):
            self._last_uses[node] = [source for source in node.all_input_nodes if source not in used]
            used.update(node.all_input_nodes)
        self._forget(())

    def run(self, arguments: Sequence[Any], grad: bool) -> Any:
        """Run once, with random numbers of a fixed seed, and return the results."""
        return_freed_memory()  # else a run needs what it needs beside the pieces that were left behind before
        self._forget(arguments)
        results: Any = None
        numbers = iter(range(len(arguments)))
        try:
            with torch.random.fork_rng(), torch.set_grad_enabled(grad):
                torch.manual_seed(SEED)
                for node in self.module.graph.nodes:
                    if node.op == "placeholder":
                        number = next(numbers)
                        self._hold(node, arguments[number], [number])
                    elif node.op == "get_attr":
                        self._hold(node, attrgetter(node.target)(self.module), [])
                    elif node.op == "output":
                        results = fx.map_arg(node.args[0], self._values.__getitem__)
                    else:
                        self._keep(node, self._call(node))
                    for last in self._last_uses[node]:
                        self._drop(last)
                return results
        finally:
            self._forget(())
            return_freed_memory()

    def call_op(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node."""
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def _forget(self, arguments: Sequence[Any]) -> None:
        self._arguments = arguments
        self._values: dict[fx.Node, Any] = {}
        self._memories: dict[int, _Memory] = {}

    def _hold(self, node: fx.Node, value: Any, arguments: list[int]) -> None:
        """Take the caller's tensors."""
        if isinstance(value, torch.Tensor):
            self._memories.setdefault(storage_of(value), _Memory()).arguments += arguments
        self._keep(node, value)

    def _call(self, node: fx.Node) -> Any:
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._values.__getitem__)
        if not isinstance(node.target, OpOverload):
            return node.target(*args, **kwargs)  # type: ignore[operator]
        for tensor in tensors_in(written(node.target, given(node.target, args, kwargs))):
            old = storage_of(tensor)
            if old in self._memories and not self._memories[old].copied:
                self._copy(old, tensor.untyped_storage())
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._values.__getitem__)
        with foreign_code(self.name, f"node {node_label(node)} fails when run"):
            return self.call_op(node, args, kwargs)

    def _copy(self, old: int, storage: torch.UntypedStorage) -> None:
        """Let all values that are in a storage be in a copy of it."""
        copy: torch.UntypedStorage = storage.clone()  # type: ignore[no-untyped-call]

        def moved(value: torch.Tensor) -> torch.Tensor:
            return _moved(value, copy) if storage_of(value) == old else value

        self._memories[storage_id(copy)] = memory = self._memories.pop(old)
        memory.copied = True
        for node in memory.nodes:
            self._values[node] = pytree.tree_map_only(torch.Tensor, moved, self._values[node])

    def _keep(self, node: fx.Node, value: Any) -> None:
        if node.users or node.op != "call_function":
            self._values[node] = value
            for tensor in tensors_in(value):
                if memory := self._memories.get(storage_of(tensor)):
                    memory.nodes.add(node)

    def _drop(self, node: fx.Node) -> None:
        for tensor in tensors_in(self._values.pop(node)):
            if (memory := self._memories.get(storage_of(tensor))) is None:
                continue
            memory.nodes.discard(node)
            if memory.copied and not memory.nodes:
                del self._memories[storage_of(tensor)]
                for number in memory.arguments:
                    self.wrote(number, _moved(self._arguments[number], tensor.untyped_storage()))


def _moved(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a tensor like this one in a copy of its storage."""
    new = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    new.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    new = new.conj() if tensor.is_conj() else new
    return neg_view(new) if tensor.is_neg() else new


def reorder(program: TorchProgram, graph: CostGraph, order: Sequence[int]) -> fx.GraphModule:
    """Return the program with its ops in a valid order of its graph, some several times perhaps; see `in_order`."""
    return in_order(program.module, [name for op in order if (name := graph.op_names[op]) != SAVED])


def check_module(program: TorchProgram, module: fx.GraphModule) -> None:
    """Run a program in its own order, then `module` in another; raise `ScheduleError` if a result differs.

    Results that differ from run to run also by the GPU's kernels that repeat their bits are not compared, with a
    warning.
    """
    refuse_without_data(program.name, program.arguments)
    on_cuda = program.device.type == "cuda"
    with repeatable_kernels() if on_cuda else nullcontext():
        expected, found = (results_of(program, one, program.arguments) for one in (program.module, module))
        again = results_of(program, program.module, program.arguments) if on_cuda and expected != found else expected
    if other := [name for name, value in expected.items() if again[name] != value]:
        warnings.warn(
            f"{program.name}: {len(other)} of {len(expected)} results, the first of them {other[0]}, have other bits "
            "in each run also in program order, so that the plan's were not compared with them",
            stacklevel=2,
        )
    check_equal(program.name, {name: value for name, value in expected.items() if name not in other}, found)


@contextmanager
def repeatable_kernels() -> Iterator[None]:
    """Have PyTorch take kernels that repeat their bits, where it has them, and fill memory that none writes to."""
    with silent():  # one thread at a time, so that each puts back what the caller had
        was = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        try:
            torch.use_deterministic_algorithms(True, warn_only=True)
            yield
        finally:
            torch.use_deterministic_algorithms(was[0], warn_only=was[1])


def results_of(program: TorchProgram, module: fx.GraphModule, arguments: Sequence[Any]) -> dict[str, str]:
    """Run a program in some order; return digests by the names of its results and of its arguments as they become."""
    became: dict[int, str] = {}
    run = Replay(program.name, module, lambda number, value: became.update({number: digest(value)}))
    found = digests(run.run(arguments, program.training != "none"))
    names = [f"result {number}" for number in range(len(program.results))]
    names += [f"'{node.name}'" for node in program.module.graph.find_nodes(op="placeholder")]
    found += [became.get(number) or digest(value) for number, value in enumerate(arguments)]
    return dict(zip(names, found, strict=True))


def measured_costs(
    program: TorchProgram, device: str = "cpu", *, timed_runs: int = TIMED_RUNS, apart: bool = False
) -> dict[str, tuple[float, int, int]]:
    """Run the program, first traced; return microseconds, workspace, and that in blocks up to 1 MiB, by op name."""
    # The last is 0 unless it is asked for: its tensors make another graph than that of a schedule file.
    refuse_without_data(program.name, program.arguments)
    traced, timed = (_Measured(program, device, is_traced) for is_traced in (True, False))
    with LOCK:
        for replay in (traced, *[timed] * timed_runs):
            replay.run(program.arguments, program.training != "none")
    times = (timed if timed_runs else traced).microseconds
    found = {name: (statistics.median(each), *traced.workspace[name]) for name, each in times.items()}
    return {name: (time, workspace, small * apart) for name, (time, workspace, small) in found.items()}


class _Measured(Replay):
    """Keeps the microseconds of each op in each run and, if traced, its workspace, by node name."""

    def __init__(self, program: TorchProgram, device: str, is_traced: bool) -> None:
        super().__init__(program.name, program.module)
        self.on_cuda, self.is_traced = device == "cuda", is_traced
        self.wait: Callable[[], None] = torch.cuda.synchronize if self.on_cuda else lambda: None
        self.microseconds: defaultdict[str, list[float]] = defaultdict(list)
        self.workspace: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))

    def run(self, arguments: Sequence[Any], grad: bool) -> Any:
        """Run, on the CPU under the profiler; where the caller's own runs, which can be only one, without workspace."""
        if not self.is_traced or self.on_cuda or is_profiling():
            return super().run(arguments, grad)
        with trace_cpu_allocator() as trace:
            results = super().run(arguments, grad)
        for name in self.microseconds:
            (peak, rest), (small, left) = trace.peak_and_rest(name), trace.peak_and_rest(name, SMALL)
            self.workspace[name] = peak - rest, small - left
        return results

    def call_op(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node and wait for its end, within a span of its name or two readings of the allocator."""

        def run() -> Any:
            self.wait()
            start = time.perf_counter_ns()
            result = Replay.call_op(self, node, args, kwargs)
            self.wait()
            self.microseconds[node.name].append((time.perf_counter_ns() - start) / 1000)
            return result

        if not self.is_traced:
            return run()
        if not self.on_cuda:
            with torch.profiler.record_function(node.name):
                return run()
        result, peak, rest = cuda_peak_and_rest(run)
        stats = torch.cuda.memory_stats()
        small, left = (stats[f"allocated_bytes.small_pool.{when}"] for when in ("peak", "current"))
        self.workspace[node.name] = peak - rest, small - left
        return result


def run_call(model: str, sizes: dict[str, int], device: str, threads: int) -> int:
    """Call a model or a step as its user does, twice, and return the most bytes held."""
    torch.set_num_threads(threads)
    called, inputs = call_function(model, sizes)
    call = as_call(inputs)
    if isinstance(called, torch.nn.Module):
        called, call = placed(called, call, device, model, print)
    args, kwargs = call

    def call_twice() -> None:  # under one trace, which sees no end of what was allocated before it
        called(*args, **kwargs)
        called(*args, **kwargs)  # with the optimizer's state, and what else the first makes

    gc.collect()
    tensors: list[torch.Tensor] = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    tensors += [tensor.grad for tensor in tensors if tensor.is_leaf and tensor.grad is not None]
    held = held_bytes(tensor for tensor in tensors if tensor.device.type == device)
    del tensors
    with torch.set_grad_enabled(not isinstance(called, torch.nn.Module)):
        return held + peak_of(call_twice, device)[1]


def function_of(code: str) -> Callable[..., Any]:
    """Return the program of a `GraphModule`'s code; a pickled one would be traced again, and lose ops of no tensor."""
    names: dict[str, Any] = {name: builtin.obj for name, builtin in custom_builtins.items()}
    exec(code, names)
    return partial(names["forward"], None)


def run_file(path: str, device: str, threads: int, snapshot: str | None = None) -> dict[str, Any]:
    """Run the code of a `GraphModule` in a file, for memory and again for time, on the inputs in `ARGUMENTS`.

    With `snapshot`, the CUDA allocator's is written of the first run and its inputs.
    """
    torch.set_num_threads(threads)
    module = function_of(Path(path).read_text(encoding="utf-8"))
    with recorded_memory(snapshot):
        arguments, grad = torch.load(Path(path).parent / ARGUMENTS, weights_only=False)
        torch.set_grad_enabled(grad)
        torch.manual_seed(SEED)
        results, peak = peak_of(lambda: module(*arguments), device)
    report = {"peak": peak, "digests": digests(results, arguments)}
    del results, arguments  # before they are read again, for the first run may have written to them
    arguments, grad = torch.load(Path(path).parent / ARGUMENTS, weights_only=False)

    def run() -> None:
        module(*arguments)
        if device == "cuda":
            torch.cuda.synchronize()

    return {**report, **time_runs(run)}
