"""Grid search over a method's parameters, every setting on the same graphs and seeds (REGAL A.10)."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from ..base.errors import UsageError
from ..files.costgraph import graph_hash
from ..graph.graph import CostGraph
from ..report.summaries import Cell, MethodSummary, summarise
from ..search.options import CompareOptions
from .comparison import Comparison, Experiment

Execute = Callable[[Experiment], Comparison]


@dataclass(frozen=True)
class Grid:
    """Settings of a method to try."""

    method: str
    settings: tuple[dict[str, Any], ...]

    @property
    def specs(self) -> dict[str, dict[str, Any]]:
        """The settings by their spec, as the registry reads it."""
        return {":".join((self.method, *(f"{k}={v}" for k, v in one.items()))): one for one in self.settings}

    @property
    def reference(self) -> str:
        """The spec to beat."""
        return next(iter(self.specs))


class Round(NamedTuple):
    """How many settings a round compares, on how many of the graphs."""

    settings: int
    graphs: int


def _brkga_settings() -> Iterator[dict[str, Any]]:
    """Yield 648 settings of the six parameters of A.10, the default first; elites and mutants are shares."""
    betas, shares = ((1.0, 0.5, 3.0), (1.0, 0.5, 3.0)), ((0.2, 0.1, 0.3), (0.1, 0.0, 0.05, 0.2))
    for alpha, beta, count, elites, mutants, populations in product(*betas, (100, 50, 200), *shares, (1, 2)):
        sizes = {"elites": round(elites * count), "mutants": round(mutants * count), "populations": populations}
        yield {"alpha": alpha, "beta": beta, "chromosomes": count, **sizes}


_PATIENCE = (1000, 20, 50, 100, 200, 300, 500, 700, 1500, 2000, 3000, 5000)
"""Up to the usual budget, which is never to restart."""

GRIDS = {
    "brkga": Grid("brkga", tuple(_brkga_settings())),
    "local-search": Grid("local-search", tuple({"patience": patience} for patience in _PATIENCE)),
}


def plan(settings: int, graphs: int, first: int, keep: float) -> list[Round]:
    """Plan a race by successive halving: rounds of fewer settings on more graphs, of about equal work."""
    rounds = [Round(settings, min(first, graphs))]
    while rounds[-1].graphs < graphs:
        last = rounds[-1]
        kept = min(last.settings, max(2, math.ceil(keep * last.settings)))
        rounds.append(Round(kept, min(graphs, math.ceil(last.graphs / keep))))
    return rounds


def runs_of(rounds: Sequence[Round]) -> int:
    """Return how many runs a race takes."""
    done = [0, *(r.graphs for r in rounds[:-1])]
    return sum(r.settings * (r.graphs - before) for r, before in zip(rounds, done, strict=True))


def race(
    grid: Grid, graphs: Sequence[CostGraph], settings: CompareOptions, rounds: Sequence[Round], execute: Execute
) -> Iterator[list[MethodSummary]]:
    """Compare all settings on the first graphs, the better ones on more; yield each ranking, best first."""
    specs = list(grid.specs)

    def order(summary: MethodSummary) -> tuple[float, int]:
        mean = summary.improvement.mean
        return math.inf if mean is None else -mean, specs.index(summary.method)

    competing, cells, done = specs, list[Cell](), 0
    for count, upto in rounds:
        competing = [specs[0], *(s for s in competing if s != specs[0])][:count]
        cells += _checked(execute(Experiment(graphs[done:upto], competing, settings, specs[0])).cells)
        ranking = sorted(summarise(cells, competing, specs[0]), key=order)
        competing, done = [summary.method for summary in ranking], upto
        yield ranking


def confirm(
    grid: Grid, winner: str, graphs: Sequence[CostGraph], settings: CompareOptions, execute: Execute
) -> MethodSummary:
    """Compare one setting with the grid's first on other graphs."""
    methods = list(dict.fromkeys([grid.reference, winner]))
    cells = _checked(execute(Experiment(graphs, methods, settings, grid.reference)).cells)
    return summarise(cells, [winner], grid.reference)[0]


def check_apart(graphs: Sequence[CostGraph], held_out: Sequence[CostGraph]) -> None:
    """Raise UsageError if a held-out graph is also searched on."""
    seen = {graph_hash(graph): graph.name for graph in graphs}
    for graph in held_out:
        if graph_hash(graph) in seen:
            raise UsageError(f"the held-out graph {graph.name} is searched on as {seen[graph_hash(graph)]}")


def _checked(cells: Sequence[Cell]) -> Sequence[Cell]:
    for cell in cells:
        if cell.status == "failed":
            raise UsageError(f"{cell.method} failed on {cell.graph}: {cell.error}")
    return cells
