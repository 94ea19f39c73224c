"""Compare methods on graphs: every method on every graph with every seed, under the same budget."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from ...version import VERSION
from ..base.errors import SchedoptError, UsageError
from ..base.options import spelled
from ..files.costgraph import graph_hash
from ..graph.graph import CostGraph
from ..problem.problem import Problem
from ..report.summaries import Cell
from ..search.method_spec import MethodSpec, check_supported, parse_method
from ..search.options import CompareOptions
from ..search.parameters import Parameters
from ..search.registry import BUDGET_EXAMPLE
from ..search.warm_up import warm_up
from .comparison import Comparison
from .runs import ResumeFile, Run, attempt, in_parallel, one_by_one

RunName: TypeAlias = tuple[str, str, int]


def parse_spec(method: str | MethodSpec) -> MethodSpec:
    """Parse a method; if its own code cannot even be imported, that is left to its cells to say."""
    if isinstance(method, MethodSpec):
        return method
    parsed = attempt(lambda: parse_method(method))
    if isinstance(parsed, SchedoptError):
        raise parsed
    if isinstance(parsed, Exception):
        return MethodSpec(method.strip(), method.strip().partition(":")[0], Parameters())
    return parsed


def _find_reference(reference: str | None, specs: Sequence[MethodSpec]) -> str:
    texts = [spec.text for spec in specs]
    if reference is None or reference in texts:
        return reference or texts[0]
    named = [spec.text for spec in specs if spec.name == reference]
    if len(named) != 1:
        raise UsageError(f"the reference '{reference}' must be one of the methods: {', '.join(texts)}")
    return named[0]


class Experiment:
    """All runs of a comparison, checked before the first starts; `execute` does them."""

    def __init__(
        self,
        graphs: Sequence[CostGraph],
        methods: Sequence[str | MethodSpec],
        settings: CompareOptions = CompareOptions(),
        reference: str | None = None,
    ) -> None:
        specs = [parse_spec(method) for method in methods]
        self.settings = settings = settings.for_methods(spec.name for spec in specs)
        self.graphs = tuple(graph.name for graph in graphs)
        self.methods = tuple(spec.text for spec in specs)
        for what, names in (("method", self.methods), ("graph", self.graphs)):
            if not names:
                raise UsageError(f"there is no {what} to compare")
            name, count = Counter(names).most_common(1)[0]
            if count > 1:
                raise UsageError(f"the {what} '{name}' is given twice")
        self.reference = _find_reference(reference, specs)
        problems = [settings.problem(graph) for graph in graphs]
        for spec in specs:
            self._check(spec, problems[0])
        specs = [
            replace(
                spec,
                evaluations=spec.evaluations or settings.evaluations,
                time_limit=spec.time_limit or settings.time_limit,
            )
            for spec in specs
        ]
        self.runs = {_name(run): run for problem in problems for run in self._runs(problem, specs)}
        self.cells: dict[RunName, Cell] = {}
        self.resume: ResumeFile | None = None

    def _check(self, spec: MethodSpec, problem: Problem) -> None:
        if self.settings.evaluations is not None and not spec.method.counts_evaluations:
            raise UsageError(
                f"method '{spec.name}' does not count evaluations; leave {spelled('evaluations')} out and limit the "
                f"others each, as in {BUDGET_EXAMPLE}, or all by {spelled('time_limit')}"
            )
        check_supported(spec, problem, spec.evaluations)

    def _runs(self, problem: Problem, specs: Sequence[MethodSpec]) -> Iterator[Run]:
        digest, settings = graph_hash(problem.graph), self.settings
        for spec in specs:
            facts: dict[str, Any] = {
                "schedopt": VERSION,
                "graph": digest,
                "method": spec.name,
                "parameters": spec.parameters.identity(),
                "problem": problem.document(),
                "budget": [spec.evaluations, spec.time_limit],
            }
            for seed in range(settings.seed, settings.seed + settings.seeds):
                text = json.dumps({**facts, "seed": seed}, sort_keys=True, default=str)
                yield Run(problem, spec, seed, digest, hashlib.sha256(text.encode()).hexdigest())

    @property
    def unfinished(self) -> list[Run]:
        """The runs still to do."""
        return [run for name, run in self.runs.items() if name not in self.cells]

    def resume_from(self, file: ResumeFile | None) -> None:
        """Take over the finished runs of a file, if there is one, and write those that `execute` does to it."""
        self.resume = file
        for name, run in self.runs.items():
            if file is not None and (cell := file.find(run.key, run.problem.graph.name, run.spec.text)) is not None:
                self.cells[name] = cell

    def compile(self) -> None:
        """Compile the kernels of every method still to run; one that fails here says so in its cells."""
        for run in {run.spec.text: run for run in self.unfinished}.values():
            attempt(partial(warm_up, run.problem, run.spec))

    def execute(
        self,
        *,
        jobs: int = 1,
        on_cell: Callable[[Cell], None] = lambda cell: None,
        interrupt: threading.Event | None = None,
    ) -> Comparison:
        """Do the runs still to do; Ctrl-C ends it with those finished so far."""
        try:
            todo = self.unfinished
            with closing(in_parallel(todo, jobs) if interrupt is None else one_by_one(todo, interrupt)) as finished:
                for cell in finished:
                    name = (cell.graph, cell.method, cell.seed)
                    if self.resume is not None:
                        self.resume.append(self.runs[name].key, cell)
                    self.cells[name] = cell
                    on_cell(cell)
        except KeyboardInterrupt:
            pass
        cells = tuple(self.cells[name] for name in self.runs if name in self.cells)
        return Comparison(self.settings, self.methods, self.reference, self.graphs, cells, len(self.runs))


def _name(run: Run) -> RunName:
    return run.problem.graph.name, run.spec.text, run.seed
