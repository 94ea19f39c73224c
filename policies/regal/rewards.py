"""Rewards of REGAL: graphs, the searches for them with a policy's choices, and the plain ones (REGAL 4.1)."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.base.errors import UsageError
from ...core.base.parallel import Workers
from ...core.bounds.bounds import lower_bound
from ...core.files.atomic import make_folder, write_atomically
from ...core.files.costgraph import graph_hash, read_graph
from ...core.files.json_lines import JsonLines
from ...core.graph.graph import CostGraph
from ...core.problem.problem import Problem, Task
from ...core.search.search import Search
from ...core.solvers.placements import brkga
from ...core.solvers.placements.brkga import evolve
from ...datasets.filters import plain_value
from ...datasets.recipe import Recipe, draw_graph
from .actions import ActionParameters, dequantise
from .features import SearchedGraph, searched_graph
from .teachers import TEACHERS

Visit = tuple[int, int]  # number of a graph, and seed


@dataclass(frozen=True)
class Setting:
    """The common setting of all searches of a run."""

    # what is minimised, and on how many devices
    task: Task
    devices: int
    actions: ActionParameters  # what the policy chooses
    features: int  # number of evaluations of the search that the features come from
    bandwidth: float | None = None  # bytes per second between devices, or None for infinite, the default
    latency: float = 0.0  # microseconds that each transfer adds; 0 by default

    def problem(self, graph: CostGraph) -> Problem:
        """Return the problem of a graph."""
        return Problem(graph, self.task, devices=self.devices, bandwidth=self.bandwidth, latency=self.latency)


class Start(NamedTuple):
    """Where the search with a policy's choices begins, after that for features: always with the same random numbers."""

    problem: Problem  # the problem to solve
    bound: float  # a value that no schedule can beat, in bytes or microseconds
    generator: dict[str, Any]  # state of the random numbers

    def drawn(self) -> tuple[int, Start]:
        """Return a seed for drawing actions, and the start after that, as `policies.regal.solve` does it."""
        rng = np.random.default_rng(0)
        rng.bit_generator.state = self.generator
        return int(rng.integers(2**62)), self._replace(generator=dict(rng.bit_generator.state))


@dataclass(frozen=True, eq=False)
class Case:
    """A graph and a seed, and their known values."""

    searched: SearchedGraph  # what the network sees
    start: Start  # where the searches with a policy's choices begin
    plain: float | None = None  # value that plain BRKGA finds with this seed [o_s]; None if it was not asked for
    # actions of a teacher, shape `(ops, heads)`; None if they were not asked for
    target: NDArray[np.int64] | None = None

    def ratio(self, value: float) -> float:
        """Return o_a / o_s of a value [o_a]: below 1 is better than plain BRKGA; 1 if that costs nothing already."""
        assert self.plain is not None
        return value / self.plain if self.plain > 0 else 1.0


def found_value(start: Start, actions: NDArray[Any], parameters: ActionParameters, evaluations: int) -> float:
    """Return the result of BRKGA with a policy's choices, shape `(ops, heads)`: bytes or microseconds [o_a]."""
    problem = start.problem
    generator = np.random.default_rng()
    generator.bit_generator.state = start.generator
    search = Search(problem, seed=generator, max_evaluations=evaluations, lower_bound=start.bound)
    evolve(search, brkga.Parameters(), dequantise(actions, problem.graph, problem.devices, parameters))
    return search.best_value


def make_case(
    known: Case | Callable[[], CostGraph], setting: Setting, seed: int, evaluations: int | None, teacher: str
) -> Case:
    """Return a case with the requested values, in a worker."""
    if not isinstance(known, Case):
        problem = setting.problem(known())
        bound = lower_bound(problem)
        search = Search(problem, seed=seed, max_evaluations=setting.features, lower_bound=bound)
        searched = searched_graph(search, setting.features)
        known = Case(searched, Start(problem, bound, dict(search.rng.bit_generator.state)))
    if evaluations is not None:
        known = replace(known, plain=plain_value(known.start.problem, evaluations, seed))
    if teacher:
        known = replace(known, target=TEACHERS[teacher](known.searched, setting.actions))
    return known


@dataclass(frozen=True)
class Graphs:
    """Numbered graphs: how many, their unique names, and their maker, in a worker too."""

    count: int
    name: Callable[[int], str]
    maker: Callable[[int], Callable[[], CostGraph]]


def given_graphs(graphs: Sequence[CostGraph]) -> Graphs:
    """Return graphs that are there already."""
    hashed = cache(lambda number: graph_hash(graphs[number]))
    return Graphs(len(graphs), hashed, lambda number: partial(copy.copy, graphs[number]))


def drawn_graphs(recipe: Recipe, first: int, count: int, folder: Path) -> Graphs:
    """Return those of a recipe from a number on: drawn when first needed, kept as files, duplicates left in."""
    digest = hashlib.sha256(repr(recipe).encode()).hexdigest()

    def maker(number: int) -> Callable[[], CostGraph]:
        file = f"{recipe.file_name(first + number)}-{digest[:16]}{recipe.suffix}"
        return partial(_drawn, recipe, first + number, folder / file)

    return Graphs(count, lambda number: f"{digest}-{first + number}", maker)


def _drawn(recipe: Recipe, number: int, file: Path) -> CostGraph:
    """Return the graph of a number: from its file, or else drawn, which leaves the file there."""
    if not file.exists():
        if (drawn := draw_graph(recipe, number)) is None:
            what = "filter less, or change the parameters of the graphs"
            raise UsageError(f"no graph of number {number} was kept; {what}")
        make_folder(file.parent)
        write_atomically(file, drawn.data)
    return read_graph(file)


class Cases:
    """The cases of some graphs: made by workers ahead of time, and kept."""

    def __init__(self, graphs: Graphs, setting: Setting, workers: Workers, file: JsonLines) -> None:
        self.graphs, self.setting, self._workers, self._file = graphs, setting, workers, file
        self._known: dict[Visit, Case] = {}
        self._targets: dict[tuple[Visit, str], NDArray[np.int64]] = {}
        self._begun: dict[tuple[Visit, int | None, str], Callable[[], Case]] = {}

    def begin(self, visit: Visit, evaluations: int | None = None, teacher: str = "") -> None:
        """Let a worker begin with the unknown values of a case; see `get`."""
        asked = (visit, evaluations, teacher)
        if asked in self._begun:
            return
        is_valued = evaluations is None or self._key(visit, evaluations) in self._file.records
        missing_value = None if is_valued else evaluations
        missing_teacher = "" if (visit, teacher) in self._targets else teacher
        if visit not in self._known or missing_value or missing_teacher:
            known = self._known.get(visit) or self.graphs.maker(visit[0])
            arguments = known, self.setting, visit[1], missing_value, missing_teacher
            self._begun[asked] = self._workers.start(make_case, *arguments)

    def get(self, visit: Visit, evaluations: int | None = None, teacher: str = "") -> Case:
        """Return a case."""
        self.begin(visit, evaluations, teacher)
        key = None if evaluations is None else self._key(visit, evaluations)
        if made := self._begun.pop((visit, evaluations, teacher), None):
            case = made()
            if key is not None and case.plain is not None and key not in self._file.records:
                self._file.records[key] = {"value": case.plain}
                self._file.write(key, self._file.records[key])
            if case.target is not None:
                self._targets[visit, teacher] = case.target
            self._known.setdefault(visit, replace(case, plain=None, target=None))
        value = None if key is None else float(self._file.records[key]["value"])
        return replace(self._known[visit], plain=value, target=self._targets.get((visit, teacher)))

    def _key(self, visit: Visit, evaluations: int) -> str:
        setting = self.setting
        links = f"-{setting.bandwidth}-{setting.latency}" if setting.bandwidth or setting.latency else ""
        return f"{self.graphs.name(visit[0])}-{setting.task}-{setting.devices}{links}-{visit[1]}-{evaluations}"
