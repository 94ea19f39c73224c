"""From a program to the same one in one order for a range of sizes: what `optimize` does with `--shape batch=1..32`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..base.errors import UsageError
from ..files.atomic import write_atomically
from ..graph.graph import CostGraph
from ..problem.problem import Problem
from ..report.result import Result
from .imported import with_imported
from .measurement import Measurement
from .options import size_text
from .pipeline import SEARCHING, Job, Observer, check_runs
from .runtime import Runtime, load_runtime
from .size_range import RangePlan, SizedGraph, plan_range


@dataclass(frozen=True)
class OptimizedRange:
    """What came of it."""

    dimension: str
    plan: RangePlan
    method: str
    # at both ends, by size: program order, then the order found
    measured: Mapping[int, tuple[Measurement, ...]]


def range_in(job: Job) -> tuple[str, range] | None:
    """Return the one dimension of a job that has a range of sizes, and that; None if none has."""
    ranges = [(name, given) for name, given in job.options.shapes.items() if isinstance(given, range)]
    if not ranges:
        return None
    name, sizes = ranges[0]
    if len(ranges) > 1:
        raise UsageError(f"--shape {ranges[1][0]}={size_text(ranges[1][1])}: '{name}' has a range already; give one")
    if job.settings.recompute or job.settings.memory_limit:
        raise UsageError(f"--shape {name}={size_text(sizes)}: a memory limit is kept at one size; leave one out")
    return name, sizes


def optimize_range(job: Job, solve: Callable[[Problem], Result], observer: Observer) -> OptimizedRange:
    """Import a program at several sizes, find one order for all of a range, run it at both ends, and write it."""
    found = range_in(job)
    if found is None:
        raise UsageError(f"{job.model}: no shape has a range")
    name, sizes = found
    runtimes: dict[int, Runtime[Any]] = {}

    def read(size: int) -> CostGraph:
        options = replace(job.options, shapes={**job.options.shapes, name: size})
        runtimes[size] = load_runtime(job.model, options, observer.note if not runtimes else lambda text: None)
        return with_imported(runtimes[size].graph(options.costs, lambda text: None), job.model, options)

    total = 3 + (job.repeats > 0)
    observer.on_stage(1, total, f"importing the program at {name} {sizes[0]} and {sizes[-1]}")
    graph = SizedGraph(read, sizes)
    observer.on_stage(2, total, SEARCHING)
    methods: list[str] = []

    def solve_and_name(problem: Problem) -> Result:
        result = solve(problem)
        methods.append(result.method)
        return result

    plan = plan_range(graph, solve_and_name)
    measured: dict[int, tuple[Measurement, ...]] = {}
    ends = (sizes[0], sizes[-1])
    if job.repeats and not plan.is_interrupted:
        observer.on_stage(3, total, f"running both orders at {name} {ends[0]} and {ends[1]}")
        for size in ends:
            orders = {methods[0]: list(plan.order)}
            rows = runtimes[size].measure(graph.at(size), orders, job.repeats, observer.note, observer.on_run)
            check_runs(f"{job.model} at {name}={size}", rows)
            measured[size] = tuple(rows)
    observer.on_stage(total, total, "comparing results, writing the program")
    for size in ends if not measured else ends[1:]:  # each compares results before it writes
        runtimes[size].write(graph.at(size), list(plan.order), job.output, observer.note)
    if job.schedule is not None:
        write_atomically(job.schedule, "".join(f"{graph.high.op_names[op]}\n" for op in plan.order))
    return OptimizedRange(name, plan, methods[0], measured)
