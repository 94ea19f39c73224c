"""Compiling a method's kernels before its time is measured: a run on a tiny graph."""

from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import numpy as np

from ..base.errors import UsageError
from ..bounds.bounds import lower_bound, min_cut_bound
from ..bounds.recompute_bounds import recompute_bound
from ..graph.builder import GraphBuilder
from ..graph.graph import CostGraph
from ..kernels.orders.priority_orders import log_probabilities
from ..model.simulator import simulate
from ..problem.machine import Machine
from ..problem.problem import Problem, Task
from ..problem.schedule import Schedule
from .method_spec import MethodSpec, check_supported, parse_method
from .registry import METHODS, load, method_of, module_of, parameters_of
from .search import Search

EVALUATIONS = 20
LOOSE_LIMIT = 10**9


def warm_up(problem: Problem, spec: MethodSpec, evaluations: int | None = None, jobs: int = 1) -> None:
    """Run a method, and the methods it may use, on a tiny graph, so that their kernels are compiled."""
    loose = LOOSE_LIMIT if problem.is_limited else None
    changes: dict[str, Any] = {"graph": tiny_graph(), "memory_limit": loose, "runtime_limit": None}
    if not problem.machine.is_equal:
        changes["machine"] = replace(Machine.equal(problem.devices), transfers=problem.machine.transfers)
    tiny = replace(problem, **changes)
    for part in parts_of(spec.name, problem, is_counted=bool(spec.evaluations or evaluations), jobs=jobs):
        prepare = getattr(module_of(method_of(part)), "warm_up", None)
        search = Search(tiny if prepare is None else prepare(tiny), max_evaluations=EVALUATIONS, lower_bound=-1.0)
        load(part)(search, spec.parameters if part == spec.name else parameters_of(part))
        assert search.best is not None
    order = tiny.graph.input_order
    memory = simulate(tiny, Schedule.single_device(order)).step_memory
    if problem.recompute:
        recompute_bound(replace(tiny, task="runtime", memory_limit=int(memory.max()) - 1), order, memory)
    min_cut_bound(tiny, order)
    lower_bound(tiny)


def warm_up_training() -> None:
    """Compile the kernels that training alone needs."""
    graph = tiny_graph()
    log_probabilities(graph.buffers, np.zeros(graph.num_ops), [graph.input_order])


def all_runs() -> list[tuple[MethodSpec, Problem]]:
    """Return each method with each kind of tiny problem that it can solve, kind by kind: they need all kernels."""
    tiny = tiny_graph()
    problems = [
        Problem(tiny),
        Problem(tiny, "runtime", memory_limit=LOOSE_LIMIT, recompute=True),
        Problem(tiny, "runtime", machine=replace(Machine.equal(2), transfers="beside")),
        *(Problem(tiny, task, 2, LOOSE_LIMIT, latency=1.0) for task in get_args(Task)),
    ]
    runs = []
    for problem, spec in product(problems, map(parse_method, METHODS)):
        with suppress(UsageError):
            check_supported(spec, problem, None)
            runs.append((spec, problem))
    return runs


def parts_of(name: str, problem: Problem, *, is_counted: bool, jobs: int = 1) -> list[str]:
    """Return the methods that a method may use for this problem: itself, unless its module has `parts`."""
    module = module_of(method_of(name))
    if not hasattr(module, "parts"):
        return [name]
    return [name if part == method_of(name).base else part for part in module.parts(problem, is_counted, jobs)]


def tiny_graph() -> CostGraph:
    """Return four ops with views, workspace and control edges, to run kernels on."""
    builder = GraphBuilder("tiny")
    builder.add_op("a", outputs=[4, 8], runtime=1.0)
    builder.add_op("b", inputs=[(0, 0)], outputs=[4], aliases=[0], runtime=1.0, workspace=2)
    builder.add_op("c", inputs=[(0, 1)], outputs=[2], runtime=2.0, persistent=1)
    builder.add_op("d", inputs=[(1, 0), (2, 0)], control=[0], outputs=[1], final=True, runtime=1.0)
    return builder.build()
