"""A comparison of methods in three charts: performance profiles, improvements, and quality against time."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from ..summaries import Cell, Estimate, GraphResults, by_graph, summarise
from .figures import new_figure, plain

_TIE = 1e-9
_LEAST_SECONDS = 1e-3
_SHORT_AXIS = 100
"""From the shortest to the longest time, up to which there is room for more labels than powers of ten."""
_WIDE = 2.0
LineStyle = Literal["-", "--", ":", "-."]
_LINES: tuple[LineStyle, ...] = get_args(LineStyle)


def draw_comparison(cells: Sequence[Cell], methods: Sequence[str], reference: str, title: str = "") -> Figure:
    """Draw the result of `schedopt compare`."""
    graphs = by_graph(cells)
    others = [method for method in methods if method != reference]
    figure = new_figure(15, 4.2 + 0.22 * math.ceil(len(methods) / 3) + max(0, 0.9 * (len(others) - 4)))
    left, middle, right = figure.subfigures(1, 3, squeeze=False)[0]
    performance_profile(left.subplots(), {method: best_ratios(graphs, method) for method in methods})
    _draw_improvements(middle, graphs, others, reference)
    estimates = {s.method: (s.gap_from_best, s.seconds) for s in summarise(cells, methods, reference)}
    quality = right.subplots()
    gap_against_time(quality, estimates, list(methods))
    quality.set(title="quality against time", ylabel="gap from the best known, %")
    figure.suptitle(plain(title, 120))
    entries = [
        Line2D([], [], color=color, marker=marker, linestyle=line, label=plain(method, 60))
        for method, (color, marker, line) in zip(methods, map(method_style, range(len(methods))), strict=True)
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=3, fontsize="small")
    return figure


def method_style(number: int) -> tuple[str, str, LineStyle]:
    """Return the color, marker and line of a method, by its number among all."""
    return f"C{number % 10}", "os^vDP*X"[number // 10 % 8], _LINES[number // 10 % len(_LINES)]


def best_ratios(graphs: Sequence[GraphResults], method: str) -> list[float]:
    """Return, for each graph it ran on that any method solved, how many times the best known a method's value is."""
    ratios = []
    for graph in graphs:
        if method in graph.cells and graph.best is not None:
            rank, ratio = graph.rank(method), math.inf
            if rank is not None and all(cell.is_feasible for cell in graph.cells[method]):
                ratio = max(1.0, rank[1] / graph.best) if graph.best else math.inf if rank[1] else 1.0
            ratios.append(ratio)
    return ratios


def performance_profile(axes: Axes, ratios: Mapping[str, Sequence[float]]) -> None:
    """Draw the share of graphs on which each method is within a factor of the best known (Dolan and More, 2002)."""
    finite = [ratio for of_method in ratios.values() for ratio in of_method if math.isfinite(ratio)]
    end = 1 + 1.05 * max(max(finite, default=1.0) - 1, 0.01)
    for number, of_method in enumerate(ratios.values()):
        solved = sorted(ratio for ratio in of_method if math.isfinite(ratio))
        shares = 100 * np.arange(len(solved) + 1) / max(1, len(of_method))
        color, _, line = method_style(number)
        axes.step([1.0, *solved, end], [*shares, shares[-1]], where="post", color=color, linestyle=line)
    axes.set(title="performance profile", xlabel="within this factor of the best known", ylabel="graphs, %")
    axes.set(xlim=(1, end), ylim=(0, 102), xscale="log" if end > _WIDE else "linear")
    axes.grid(alpha=0.3)


def _draw_improvements(figure: Any, graphs: Sequence[GraphResults], methods: Sequence[str], reference: str) -> None:
    """Draw a histogram per method, below each other on one axis."""
    found = {}
    for method in methods:
        known = (graph.improvement(method, reference) for graph in graphs if method in graph.cells)
        found[method] = [percent for percent in known if percent is not None]
    rows = figure.subplots(max(1, len(methods)), 1, sharex=True, squeeze=False)[:, 0]
    widest = max((abs(percent) for percents in found.values() for percent in percents), default=1.0)
    for axes, (method, percents) in zip(rows, found.items(), strict=False):
        better, same, worse = improvement_histogram(axes, percents, widest=widest)
        title = f"{plain(method, 40)}: {better} better, {same} same, {worse} worse"
        axes.set_title(title, loc="left", fontsize="small")
        axes.set_ylabel("graphs")
    rows[-1].set_xlabel(f"improvement over {plain(reference, 40)}, %")
    figure.suptitle("improvements", fontsize="large")


def improvement_histogram(
    axes: Axes, improvements: Sequence[float], *, bins: int = 40, widest: float | None = None, name: str = "this"
) -> tuple[int, int, int]:
    """Draw improvements in percent, better ones green and worse ones red; ties are not drawn, but counted."""
    found = np.array(improvements, np.float64)
    is_tie = np.abs(found) < _TIE
    widest = float(np.abs(found).max(initial=_TIE)) if widest is None else widest
    edges = (np.linspace(-1, 1, bins + 1) * max(widest, _TIE)).tolist()
    better, worse = found[(found > 0) & ~is_tie], found[(found < 0) & ~is_tie]
    axes.hist(better, edges, color="tab:green", label=f"{name} is better")
    axes.hist(worse, edges, color="tab:red", label="worse")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return len(better), int(is_tie.sum()), len(worse)


def gap_against_time(
    axes: Axes, estimates: Mapping[str, tuple[Estimate, Estimate]], numbered: list[str]
) -> dict[str, Any]:
    """Draw the mean gap of each method, with its 95% confidence interval, against its mean time in seconds."""
    handles = {}
    for method, (gap, time) in estimates.items():
        if method not in numbered:
            numbered.append(method)
        if gap.mean is None or time.mean is None:
            continue
        color, marker, _ = method_style(numbered.index(method))
        handles[method] = axes.errorbar(
            max(time.mean, _LEAST_SECONDS), gap.mean, yerr=gap.half_width or 0, fmt=marker, color=color, capsize=3
        )
    axes.axhline(0, color="black", linewidth=0.8, alpha=0.5)
    axes.set(xscale="log", xlabel="time, s")
    shortest, longest = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if longest < _SHORT_AXIS * shortest else (1,)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
    return handles
