"""Graphs and schedules as users give them: built, solved, in files and folders, or as an order of ops."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, Union

import numpy as np

from ..base.errors import UnknownNameError, UsageError
from ..files.costgraph import find_graphs, graph_name, read_graph
from ..files.schedule_json import LoadedSchedule, read_schedule
from ..graph.graph import CostGraph
from ..problem.problem import Problem
from ..problem.residents import model_of
from ..problem.schedule import Schedule
from ..programs.importers import is_model, read_any
from ..report.result import Result

GraphLike: TypeAlias = Union[CostGraph, str, "os.PathLike[str]"]
ScheduleLike: TypeAlias = Union[Schedule, Result, str, "os.PathLike[str]", Sequence[str]]
Note: TypeAlias = Callable[[str], None]


def graph_of(given: GraphLike, note: Note = lambda text: None) -> CostGraph:
    """Return a graph as it is, or read from its file, or imported where a model is named."""
    if isinstance(given, CostGraph):
        return given
    if isinstance(given, (str, os.PathLike)):
        return read_any(os.fspath(given), note)
    raise UsageError(
        f"a graph is a CostGraph or the path of a graph or model, not {_described(given)}; "
        "from_networkx and import_model make graphs of other things"
    )


def graphs_of(given: GraphLike | Iterable[GraphLike], note: Note = lambda text: None) -> list[CostGraph]:
    """Return graphs as they are, and those of files and folders, each once, named by their files or paths."""
    if isinstance(given, (CostGraph, str, os.PathLike)):
        given = [given]
    elif not isinstance(given, Iterable):
        raise UsageError(f"graphs are given as a list of graphs and paths, not {_described(given)}")
    found: list[CostGraph | Path] = []
    read: dict[Path, Path] = {}
    for item in given:
        if not isinstance(item, (str, os.PathLike)):
            found.append(graph_of(item))
            continue
        if is_model(os.fspath(item)):
            found.append(read_any(os.fspath(item), note))
            continue
        for path in find_graphs([os.fspath(item)]):
            if path.resolve() in read:
                note(f"{path} is named twice and taken once")
            else:
                read[path.resolve()] = path
                found.append(path)
    shared = Counter(map(graph_name, read.values()))
    names = {path: graph_name(path) if shared[graph_name(path)] == 1 else str(path) for path in read.values()}
    return [g if isinstance(g, CostGraph) else replace(read_graph(g, note), name=names[g]) for g in found]


def _described(given: object) -> str:
    text = repr(given)
    return f"{text if len(text) <= 40 else 'something'} ({type(given).__name__})"


def loaded_schedule(given: ScheduleLike, graph: CostGraph) -> LoadedSchedule:
    """Return the schedule that is given, the problem it was made for, and the values claimed."""
    if isinstance(given, (str, os.PathLike)):
        return read_schedule(os.fspath(given), graph)
    if isinstance(given, Result):
        if model_of(given.problem.graph) != model_of(graph):
            raise UsageError(f"the result is of another graph, '{given.problem.graph.name}', not of '{graph.name}'")
        status, peaks = "feasible" if given.is_feasible else "limit-not-met", given.simulation.peak_per_device.tolist()
        return LoadedSchedule(given.problem, given.schedule, status, given.peak_memory, peaks, given.runtime)
    schedule = given if isinstance(given, Schedule) else _in_order(given, graph)
    return LoadedSchedule(Problem(graph, devices=1 + max(0, int(schedule.targets.max(initial=0)))), schedule)


def _in_order(names: Sequence[str], graph: CostGraph) -> Schedule:
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise UsageError(
            "a schedule is a Schedule, a Result, the path of a schedule file, or a list of op names, "
            f"not {type(names).__name__}"
        )
    ops = {name: op for op, name in enumerate(graph.op_names)}
    for name in names:
        if name not in ops:
            raise UnknownNameError(f"the schedule names the op '{name}', which {graph.name} does not have")
    return Schedule.single_device(np.array([ops[name] for name in names], np.int64))
