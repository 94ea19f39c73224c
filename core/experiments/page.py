"""A comparison as a web page that needs no other file: tables that sort by a click, charts, and every graph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from ..base.units import signed
from ..report.summaries import Cell, Estimate, GraphResults, MethodSummary, by_graph, improvement_percent, summarise
from ..search.options import CompareOptions
from .report import remarks, title_of, writing_of

_NOTHING = "–"


class Shown(NamedTuple):
    """A cell of a table: what is read, and the number that it sorts by; without one it comes last."""

    text: str
    number: float | None = None

    def __str__(self) -> str:
        number = "" if self.number is None else f' data-number="{self.number!r}"'
        return f"<td{number}>{escape(self.text)}</td>"


def comparison_page(settings: CompareOptions, methods: Sequence[str], reference: str, cells: Sequence[Cell]) -> str:
    """Return the page."""
    graphs, summaries = by_graph(cells), summarise(cells, methods, reference)
    title = title_of(settings, len(graphs))
    parts: list[str] = []
    if cells:
        parts = [
            "<h2>Methods</h2>",
            _table(*_of_methods(summaries, reference)),
            *(f"<p>{escape(line)}</p>" for line in remarks(summaries, cells, reference, settings.task)),
            f"<figure>{_charts(cells, methods, reference)}</figure>",
            f"<h2>Improvement over {escape(reference)} on each graph, %</h2>",
            _table(*_improvements(graphs, [method for method in methods if method != reference], reference)),
            f"<h2>{'Peak memory' if settings.task == 'memory' else 'Makespan'} on each graph</h2>",
            _table(*_values(graphs, methods, settings.task)),
        ]
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    return template.replace("$TITLE", escape(title)).replace("$BODY", "\n".join(parts))


def _of_methods(summaries: Sequence[MethodSummary], reference: str) -> tuple[list[str], list[list[Shown]]]:
    """Return columns and rows of the table of methods: one column per figure."""
    columns = ["method", "improvement, %", "±", "least, %", "most, %", "graphs no worse, %"]
    columns += ["gap from best, %", "±", "gap from bound, %", "±", "wins", "ties", "losses", "proven optimal"]
    columns += ["time, s", "±", "CPU, s", "±", "over seeds, points", "runs", "infeasible", "limit not met"]
    columns += ["failed", "timed out"]
    rows = []
    for one in summaries:
        compared = one.wins + one.ties + one.losses
        no_worse = 100 * (one.wins + one.ties) / compared if compared else None
        row = [Shown(f"{one.method} (reference)" if one.method == reference else one.method)]
        row += [*_estimate(one.improvement, True), _number(one.least_improvement, True)]
        row += [_number(one.most_improvement, True), _number(no_worse, decimals=1)]
        row += [*_estimate(one.gap_from_best), *_estimate(one.gap_from_bound)]
        row += [_count(one.wins), _count(one.ties), _count(one.losses), _count(one.optimal_graphs)]
        row += [*_estimate(one.seconds, decimals=4), *_estimate(one.cpu_seconds, decimals=4)]
        row += [_number(one.seed_deviation), _count(one.runs), _count(one.infeasible), _count(one.limit_not_met)]
        rows.append([*row, _count(one.failed), _count(one.timed_out)])
    return columns, rows


def _improvements(
    graphs: Sequence[GraphResults], methods: Sequence[str], reference: str
) -> tuple[list[str], list[list[Shown]]]:
    rows = []
    for graph in graphs:
        base = graph.value(reference)
        values = [graph.value(method) for method in methods]
        found = [None if value is None or base is None else improvement_percent(value, base) for value in values]
        rows.append([Shown(graph.graph), _count(graph.ops), *(_number(percent, True) for percent in found)])
    return ["graph", "ops", *methods], rows


def _values(graphs: Sequence[GraphResults], methods: Sequence[str], task: str) -> tuple[list[str], list[list[Shown]]]:
    rows = []
    for graph, written in zip(graphs, writing_of(graphs, methods, task), strict=True):
        values = {method: graph.value(method) for method in methods}
        row = [Shown(graph.graph), _count(graph.ops)]
        row.append(Shown(_NOTHING) if graph.bound is None else Shown(written(graph.bound), graph.bound))
        for method, value in values.items():
            statuses = " and ".join(sorted({cell.status for cell in graph.cells.get(method, [])})) or _NOTHING
            row.append(Shown(statuses) if value is None else Shown(written(value), value))
        rows.append(row)
    return ["graph", "ops", "lower bound", *methods], rows


def _charts(cells: Sequence[Cell], methods: Sequence[str], reference: str) -> str:
    """Return performance profiles, the distribution of improvements, and quality against time, as SVG."""
    from ..report.plots.comparison_charts import draw_comparison
    from ..report.plots.figures import render

    picture = render(draw_comparison(cells, methods, reference), ".svg").decode()
    return picture[picture.index("<svg") :]


def _table(columns: Iterable[str], rows: Iterable[Iterable[Shown]]) -> str:
    names = (re.sub(r"(?<=[-:=])", "<wbr>", escape(column)) for column in columns)
    head = "".join(f'<th tabindex="0">{name}</th>' for name in names)
    body = "\n".join(f"<tr>{''.join(map(str, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def _estimate(estimate: Estimate, is_signed: bool = False, decimals: int = 2) -> list[Shown]:
    return [_number(estimate.mean, is_signed, decimals), _number(estimate.half_width, decimals=decimals)]


def _number(value: float | None, is_signed: bool = False, decimals: int = 2) -> Shown:
    if value is None:
        return Shown(_NOTHING)
    return Shown(signed(value, decimals) if is_signed else f"{value:,.{decimals}f}", value)


def _count(number: int) -> Shown:
    return Shown(f"{number:,}", number)
