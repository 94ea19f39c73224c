"""Statistics of a comparison: per graph, then over graphs as the papers report them (Topoformer 5, REGAL 5.3)."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from ..bounds.bounds import is_met

Status = Literal["optimal", "feasible", "infeasible", "limit-not-met", "failed"]
CONFIDENCE = 0.95
_SAME = 1e-12


@dataclass(frozen=True)
class Cell:
    """One finished run: a method on a graph with a seed; None is a value that a failed run did not get to."""

    # the graph's name in the comparison, the hash of its content, and its size
    graph: str
    sha256: str
    ops: int
    # the method as given, with its parameters, and the seed of the run
    method: str
    seed: int
    # `optimal`, `feasible`, `infeasible` (proven: no schedule keeps the memory limit), `limit-not-met` (none was found
    # that does) or `failed` (see `error`)
    status: Status
    # what the task minimises: bytes (with an allocator reserved ones), the largest share of a device's memory, or
    # microseconds; with recomputation and no runtimes, how many runs
    value: float | None = None
    # bytes on the fullest device, makespan in microseconds, bytes above the memory limit
    peak_memory: int | None = None
    runtime_us: float | None = None
    excess: int | None = None
    # what no schedule can beat, as far as this run proved it, in the unit of the value
    lower_bound: float | None = None
    # complete schedules priced; wall time; processor time, which includes verifying the schedule
    evaluations: float | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    timed_out: bool = False  # whether the time limit ended the search, so that it cannot be repeated exactly
    found_by: str = ""  # what produced the schedule
    error: str = ""  # type and message of what a failed run raised; empty otherwise
    note: str = ""  # what the method had to say about the run; empty otherwise
    reserved: int | None = None  # bytes that the allocator reserves, where one is given

    @property
    def is_feasible(self) -> bool:
        """Whether the run has a schedule within the memory limit."""
        return self.status in ("optimal", "feasible")


@dataclass(frozen=True)
class Estimate:
    """A mean over graphs and how sure it is."""

    mean: float | None  # None without any graph
    # the standard error of the mean, and half of its 95% confidence interval (Student t); None below two graphs
    standard_error: float | None
    half_width: float | None
    graphs: int  # number of graphs that the mean is over
    left_out: int = 0  # graphs without a percentage because its base is 0 and the value is not


def estimate(values: Iterable[float | None]) -> Estimate:
    """Return the mean with its 95% confidence interval; None stands for a graph left out."""
    given = list(values)
    known = [value for value in given if value is not None]
    count, left_out = len(known), len(given) - len(known)
    if not known:
        return Estimate(None, None, None, 0, left_out)
    mean = fmean(known)
    if count == 1:
        return Estimate(mean, None, None, 1, left_out)
    error = standard_deviation(known) / math.sqrt(count)
    return Estimate(mean, error, interval_factor(count) * error, count, left_out)


def interval_factor(values: int) -> float:
    """Return half the width of the 95% confidence interval of a mean in standard errors (Student t)."""
    from scipy.special import stdtrit

    return float(stdtrit(values - 1, (1 + CONFIDENCE) / 2))


def standard_deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation of two or more values."""
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def gap_percent(value: float, base: float) -> float | None:
    """Return how far a value lies above a base, in percent (Topoformer 5; REGAL 5.3 for the best known)."""
    if base == 0:
        return 0.0 if value == 0 else None
    return 100 * (value - base) / base


def improvement_percent(value: float, reference: float) -> float | None:
    """Return by how much a value is below a reference, in percent of the reference (REGAL 5.3)."""
    gap = gap_percent(value, reference)
    return None if gap is None else 0.0 - gap


def mean_of(values: Sequence[float]) -> float | None:
    """Return the mean; None of nothing."""
    return fmean(values) if values else None


def geometric_mean(gaps: Iterable[float | None]) -> float | None:
    """Return the gap of the geometric mean of ratios, percent (REGAL's workshop paper); None of none, or one of 0."""
    ratios = [1 + gap / 100 for gap in gaps if gap is not None]
    return 100 * (math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) - 1) if min(ratios, default=0) > 0 else None


@dataclass(frozen=True)
class GraphResults:
    """All runs on one graph."""

    # its name and size
    graph: str
    ops: int
    cells: dict[str, list[Cell]]  # per method, one run per seed
    best: float | None  # the least value of any feasible run of any method; None if there is none
    bound: float | None  # the largest lower bound that any run proved; None if all failed

    def value(self, method: str) -> float | None:
        """Mean value over the feasible seeds of a method; None if there is none."""
        cells = self.cells.get(method, [])
        return mean_of([cell.value for cell in cells if cell.is_feasible and cell.value is not None])

    def improvement(self, method: str, reference: str) -> float | None:
        """By how much a method's value is below a reference's, percent of that; None where one is missing."""
        value, base = self.value(method), self.value(reference)
        return None if value is None or base is None else improvement_percent(value, base)

    def rank(self, method: str) -> tuple[float, float] | None:
        """Mean excess and mean value over all seeds, the smaller the better, excess first; None if one failed."""
        cells = self.cells.get(method, [])
        priced = [(cell.excess, cell.value) for cell in cells if cell.excess is not None and cell.value is not None]
        if not priced or len(priced) < len(cells):
            return None
        excess, value = map(fmean, zip(*priced, strict=True))
        return excess, value

    @property
    def is_infeasible(self) -> bool:
        """Whether runs exceed the memory limit, and no run of any method keeps it."""
        runs = [cell.status for cells in self.cells.values() for cell in cells]
        return self.best is None and ("infeasible" in runs or "limit-not-met" in runs)

    @property
    def counts_runs(self) -> bool:
        """Whether times are numbers of runs, as with recomputation where no op has a runtime."""
        cells = [cell for of_method in self.cells.values() for cell in of_method if cell.value is not None]
        return bool(cells) and all(cell.runtime_us == 0 and cell.value for cell in cells)

    def meets_bound(self, method: str) -> bool:
        """Whether every seed of a method reached the largest bound, and so the optimum."""
        rank = self.rank(method)
        return rank is not None and self.bound is not None and rank[0] == 0 and is_met(rank[1], self.bound)


def by_graph(cells: Iterable[Cell]) -> list[GraphResults]:
    """Group runs by graph, in the order in which graphs first appear."""
    groups: dict[str, dict[str, list[Cell]]] = {}
    for cell in cells:
        groups.setdefault(cell.graph, {}).setdefault(cell.method, []).append(cell)
    results = []
    for graph, methods in groups.items():
        runs = [cell for group in methods.values() for cell in group]
        values = [cell.value for cell in runs if cell.is_feasible and cell.value is not None]
        bounds = [cell.lower_bound for cell in runs if cell.lower_bound is not None]
        results.append(GraphResults(graph, runs[0].ops, methods, min(values, default=None), max(bounds, default=None)))
    return results


def compare_ranks(rank: tuple[float, float], other: tuple[float, float]) -> int:
    """Return -1 if `rank` wins, 0 for a tie but for the rounding of sums, 1 if it loses."""
    for mine, its in zip(rank, other, strict=True):
        if not math.isclose(mine, its, rel_tol=_SAME):
            return -1 if mine < its else 1
    return 0


@dataclass(frozen=True)
class MethodSummary:
    """A method's results in a comparison: percentages per graph, of the mean over feasible seeds, then averaged."""

    method: str  # as given, with its parameters
    # how many it was run on, and how often
    graphs: int
    runs: int
    # runs by status; they add up to `runs`
    optimal: int
    feasible: int
    infeasible: int
    limit_not_met: int
    failed: int
    timed_out: int  # runs, of any status, that the time limit ended
    optimal_graphs: int  # graphs on which every run reached the largest lower bound that any method proved
    improvement: Estimate  # below the reference method, percent of the reference
    # the same of one graph, the worst and the best (REGAL 5.4); None without any
    least_improvement: float | None
    most_improvement: float | None
    # above the best known value, and above the largest lower bound, percent
    gap_from_best: Estimate
    gap_from_bound: Estimate
    geometric_gap: float | None  # above the best known value as a geometric mean over graphs, percent
    # graphs on which it is better than the reference method, as good, or worse; a run that does not keep the limit is
    # worse than one that does, and of two the one of smaller excess is better. Graphs with a failed run are in none.
    wins: int
    ties: int
    losses: int
    # wall and processor time per run
    seconds: Estimate
    cpu_seconds: Estimate
    # standard deviation over seeds of a seed's improvement averaged over graphs, percentage points (REGAL A.10); over
    # the graphs that every seed solved. None with one seed.
    seed_deviation: float | None
    reserved: float | None  # bytes, a mean over runs; None without an allocator


def summarise(cells: Sequence[Cell], methods: Sequence[str], reference: str) -> list[MethodSummary]:
    """Summarise the runs of each method over graphs."""
    graphs = by_graph(cells)
    return [_summarise_method(graphs, method, reference) for method in methods]


def _summarise_method(all_graphs: list[GraphResults], method: str, reference: str) -> MethodSummary:
    graphs = [graph for graph in all_graphs if method in graph.cells]
    cells = [cell for graph in graphs for cell in graph.cells[method]]

    def percents(
        formula: Callable[[float, float], float | None], base: Callable[[GraphResults], float | None]
    ) -> list[float | None]:
        pairs = [(graph.value(method), base(graph)) for graph in graphs]
        return [formula(v, b) for v, b in pairs if v is not None and b is not None]

    def duration(times: Callable[[Cell], float | None]) -> Estimate:
        known = [[t for t in map(times, graph.cells[method]) if t is not None] for graph in graphs]
        return estimate(mean_of(times) for times in known if times)

    ranks = [(graph.rank(method), graph.rank(reference)) for graph in graphs]
    outcomes = [compare_ranks(mine, its) for mine, its in ranks if mine is not None and its is not None]
    statuses = [cell.status for cell in cells]
    gaps = percents(gap_percent, lambda graph: graph.best)
    improvements = percents(improvement_percent, lambda graph: graph.value(reference))
    known = [improvement for improvement in improvements if improvement is not None]
    return MethodSummary(
        method=method,
        graphs=len(graphs),
        runs=len(cells),
        optimal=statuses.count("optimal"),
        feasible=statuses.count("feasible"),
        infeasible=statuses.count("infeasible"),
        limit_not_met=statuses.count("limit-not-met"),
        failed=statuses.count("failed"),
        timed_out=sum(cell.timed_out for cell in cells),
        optimal_graphs=sum(graph.meets_bound(method) for graph in graphs),
        improvement=estimate(improvements),
        least_improvement=min(known, default=None),
        most_improvement=max(known, default=None),
        gap_from_best=estimate(gaps),
        gap_from_bound=estimate(percents(gap_percent, lambda graph: graph.bound)),
        geometric_gap=geometric_mean(gaps),
        wins=outcomes.count(-1),
        ties=outcomes.count(0),
        losses=outcomes.count(1),
        seconds=duration(lambda cell: cell.seconds),
        cpu_seconds=duration(lambda cell: cell.cpu_seconds),
        seed_deviation=_seed_deviation(graphs, method, reference),
        reserved=mean_of([cell.reserved for cell in cells if cell.reserved is not None]),
    )


def _seed_deviation(graphs: list[GraphResults], method: str, reference: str) -> float | None:
    seeds = max((len(graph.cells[method]) for graph in graphs), default=0)
    by_seed: list[list[float]] = [[] for _ in range(seeds)]
    for graph in graphs:
        base = graph.value(reference)
        values = [cell.value for cell in graph.cells[method] if cell.is_feasible and cell.value is not None]
        if base and len(values) == seeds:
            for improvements, value in zip(by_seed, values, strict=True):
                improvements.append(100 * (1 - value / base))
    means = [mean for mean in map(mean_of, by_seed) if mean is not None]
    return standard_deviation(means) if len(means) > 1 else None
