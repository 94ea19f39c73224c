"""Schedules that run ops several times, as graphs whose ops are the runs: a reader reads the latest run before it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..base.errors import ScheduleError
from ..graph.annotations import Annotations
from ..graph.builder import GraphBuilder
from ..graph.graph import CostGraph
from ..problem.problem import Problem
from ..problem.schedule import Schedule


def repeated_ops(graph: CostGraph, order: Sequence[int]) -> list[int]:
    """Return the ops that an order runs more than once, ascending."""
    return np.flatnonzero(np.bincount(np.asarray(order, np.int64), minlength=graph.num_ops) > 1).tolist()


def unrolled(graph: CostGraph, order: Sequence[int]) -> CostGraph:
    """Return the graph of the runs of an order, whose input order is theirs."""
    last = {int(op): step for step, op in enumerate(order)}
    if missing := [name for op, name in enumerate(graph.op_names) if op not in last]:
        raise ScheduleError(f"{graph.name}: op {missing[0]!r} never runs")
    if wrong := [op for op in repeated_ops(graph, order) if graph.runs_once[op]]:
        raise ScheduleError(f"{graph.name}: op {graph.op_names[wrong[0]]!r} runs twice, but may only run once")
    latest, times = [-1] * graph.num_ops, [0] * graph.num_ops
    port = (np.arange(graph.num_tensors) - graph.output_ptr[graph.tensor_producer]).tolist()
    producer, is_control = graph.tensor_producer.tolist(), graph.is_control.tolist()
    reads, first_read = graph.read_tensor.tolist(), graph.read_ptr.tolist()
    aliases, sizes, finals = graph.alias_of.tolist(), graph.tensor_size.tolist(), graph.is_final.tolist()
    pointers, consumers = graph.consumers
    control = np.flatnonzero(graph.is_control).tolist()
    waiting = {producer[t]: consumers[pointers[t] : pointers[t + 1]].tolist() for t in control}  # by control edges
    builder = GraphBuilder(graph.name)
    for step, op in enumerate(order):
        for follower in waiting.get(op, ()):
            if times[follower]:
                raise ScheduleError(
                    f"{graph.name}: op {graph.op_names[op]!r} runs again after op {graph.op_names[follower]!r}, "
                    "which may only run after it"
                )
        tensors = reads[first_read[op] : first_read[op + 1]]
        runs = [latest[producer[tensor]] for tensor in tensors]
        if -1 in runs:
            name = graph.tensor_name(tensors[runs.index(-1)])
            raise ScheduleError(f"{graph.name}: op {graph.op_names[op]!r} runs before its input {name!r}")
        data = [tensor for tensor in tensors if not is_control[tensor]]
        made = [tensor for tensor in graph.outputs(op) if not is_control[tensor]]
        times[op] += 1
        builder.add_op(
            graph.op_names[op] if times[op] == 1 else f"{graph.op_names[op]} (run {times[op]})",
            control=[run for run, t in zip(runs, tensors, strict=True) if is_control[t]],
            outputs=[sizes[t] for t in made],
            aliases=[data.index(aliases[t]) if aliases[t] >= 0 else -1 for t in made],
            final=[finals[t] and last[op] == step for t in made],
            runtime=float(graph.runtime[op]),
            workspace=int(graph.workspace[op]),
            persistent=int(graph.persistent[op]) if times[op] == 1 else 0,
        )
        builder.add_reads([latest[producer[t]] for t in data], [port[t] for t in data])
        latest[op] = step
    return builder.build(_annotations(graph.annotations, order))


def of_runs(problem: Problem, schedule: Schedule) -> tuple[Problem, Schedule]:
    """Return a problem and its schedule; where ops may run again, the graph of the runs and its input order."""
    if not problem.recompute:
        return problem, schedule
    graph = unrolled(problem.graph, schedule.items.tolist())
    return Problem(graph, memory_limit=problem.memory_limit), Schedule.single_device(graph.input_order)


def _annotations(known: Annotations, order: Sequence[int]) -> Annotations:
    """Return the annotations of the runs; residents are read and written by every run of an op."""
    runs_of: dict[int, list[int]] = {}
    for step, op in enumerate(order):
        runs_of.setdefault(int(op), []).append(step)

    def runs(ops: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(step for op in ops for step in runs_of[op]))

    def texts(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(values[op] for op in order) if values else ()

    return Annotations(
        modules=texts(known.modules),
        lines=texts(known.lines),
        phases=texts(known.phases),
        residents=tuple(
            replace(r, op=runs_of[r.op][0] if r.op >= 0 else -1, readers=runs(r.readers), writers=runs(r.writers))
            for r in known.residents
        ),
        imported=known.imported,
        view_offsets={(run, port): size for (op, port), size in known.view_offsets.items() for run in runs_of[op]},
    )
