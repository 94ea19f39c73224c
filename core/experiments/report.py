"""Tables of a comparison, of all methods and of each graph, and remarks on the basis of their numbers."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import escape
from math import floor, log10
from pathlib import Path
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from ..base.names import one_line
from ..base.tables import FirstThatFits, compact_table
from ..base.units import ALIKE, Written, bytes_alike, format_bytes, format_microseconds, format_runs, signed
from ..bounds.bounds import is_met
from ..report.summaries import Cell, Estimate, GraphResults, MethodSummary, by_graph, interval_factor, summarise
from ..search.options import CompareOptions

_PERCENTAGES = {
    "improvement": "improvement",
    "gap_from_best": "gap from the best known",
    "gap_from_bound": "gap from the lower bound",
}
_REMARKABLE = {
    "infeasible": "proven infeasible (in no percentage, and worse than any feasible run)",
    "limit_not_met": "that did not meet the memory limit (in no percentage, and worse than any feasible run)",
    "timed_out": "ended or steered by the time limit",
}
_NOTHING = "–"
_LONGEST_VALUE, _FAR_APART = 14, 10_000
_WIDE_NAME, _NAME_WIDTH = 60, 12
"""Of a line of a method's name: where there is room for much, and in a narrow column or above one."""


def summary_table(summaries: Sequence[MethodSummary], reference: str) -> FirstThatFits:
    """Build one row per method; to save width, intervals stand below their means, then parts of a name, too."""
    in_lines = [partial(_in_lines, width=width) for width in (_WIDE_NAME, _NAME_WIDTH)]
    ways: list[tuple[str, Callable[[str], str]]] = [(" ", str), ("\n", str), *(("\n", named) for named in in_lines)]
    return FirstThatFits([_summary_table(summaries, reference, between, named) for between, named in ways])


def _summary_table(
    summaries: Sequence[MethodSummary], reference: str, between: str, named: Callable[[str], str]
) -> Table:
    table = compact_table()
    table.add_column("method", overflow="fold", min_width=_NAME_WIDTH)
    headers = ("improve-\nment", "gap from\nbest\nknown", "gap from\nlower\nbound", "wins/\nties/\nlosses")
    reserved = [summary.reserved for summary in summaries if summary.reserved is not None]
    for header in (*["reserved"] * bool(reserved), *headers, "proven\noptimal", "time, s", "CPU, s"):
        table.add_column(header, justify="right", no_wrap=True)
    written = bytes_alike(reserved)

    def write(estimate: Estimate, total: int, decimals: int = 2, unit: str = "%", is_signed: bool = False) -> str:
        return between.join(_estimate(estimate, total, decimals, unit, is_signed))

    for summary in summaries:
        is_reference, total = summary.method == reference, summary.graphs
        table.add_row(
            Text(named(summary.method)),
            *([_NOTHING if summary.reserved is None else written(summary.reserved)] if reserved else ()),
            "reference" if is_reference else write(summary.improvement, total, is_signed=True),
            write(summary.gap_from_best, total),
            write(summary.gap_from_bound, total),
            _NOTHING if is_reference else f"{summary.wins}/{summary.ties}/{summary.losses}",
            f"{summary.optimal_graphs}",
            write(summary.seconds, total, _decimals(summary.seconds), ""),
            write(summary.cpu_seconds, total, _decimals(summary.cpu_seconds), ""),
        )
    return table


def title_of(settings: CompareOptions, graphs: int) -> str:
    """Write the subject of the comparison: task, graphs, devices, limits, budgets and seeds."""

    def count(number: int, noun: str) -> str:
        return f"{number:,} {noun}{'s' * (number != 1)}"

    names = {"memory": settings.memory_name, "share": "largest share"}
    aim = names.get(settings.kind, "time" if settings.recompute else "makespan")
    again = " with recomputation" if settings.recompute else ""
    parts = [f"{aim}{again}, {count(graphs, 'graph')}, {count(settings.devices or 1, 'device')}"]
    if settings.task != "memory" and settings.allocator is not None:
        parts.append(settings.memory_name)
    if settings.max_overhead is not None:
        parts.append(f"at most {100 * settings.max_overhead:g}% of time added")
    if settings.memory_limit_share is not None:
        parts.append(f"at most {100 * settings.memory_limit_share:g}% of the input order's peak each")
    elif settings.memory_limit is not None:
        parts.append(f"at most {format_bytes(settings.memory_limit)} each")
    if settings.bandwidth is not None:
        parts.append(f"{settings.bandwidth / 1e9:g} GB/s")
    if settings.latency:
        parts.append(f"{format_microseconds(settings.latency)} per transfer")
    if settings.evaluations is not None:
        parts.append(count(settings.evaluations, "evaluation"))
    if settings.time_limit is not None:
        parts.append(f"{settings.time_limit:g} s")
    last = settings.seed + settings.seeds - 1
    parts.append(f"seed {settings.seed}" if settings.seeds == 1 else f"seeds {settings.seed} to {last}")
    return ", ".join(parts)


def _decimals(seconds: Estimate) -> int:
    """Return how many decimals show three digits of a time, four at most."""
    return min(4, max(0, 2 - floor(log10(seconds.mean)))) if seconds.mean else 0


def _estimate(estimate: Estimate, total: int, decimals: int, unit: str, is_signed: bool) -> Iterator[str]:
    """Yield a mean, half of its interval, and the number of graphs where it is not all of them."""
    if estimate.mean is None:
        yield _NOTHING
        return
    yield f"{signed(estimate.mean, decimals) if is_signed else f'{estimate.mean:.{decimals}f}'}{unit}"
    if estimate.half_width is not None:
        yield f"±{estimate.half_width:.{decimals}f}"
    if estimate.graphs != total:
        yield f"n={estimate.graphs}"


def _in_lines(method: str, width: int = _NAME_WIDTH) -> str:
    """Break a method's name and parameters where a line would be too long: `order-`, `search:`, `time_limit=`, `1s`."""
    lines = [""]
    for part in re.split(r"(?<=[-:=])", method):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def graph_table(results: Sequence[GraphResults], methods: Sequence[str], task: str) -> FirstThatFits:
    """Build one row per graph: the value of each method, the best ones marked; where that is too wide, rows of both."""
    rows = list(zip(results, writing_of(results, methods, task), strict=True))
    columns = [_graph_table(rows, methods, named) for named in (str, _in_lines)]
    return FirstThatFits([*columns, _graph_and_method_table(rows, methods, task)])


def _method_value(result: GraphResults, method: str, written: Written) -> Text:
    mean = result.value(method)
    if mean is None or result.best is None:
        return Text(_statuses(result, method))
    is_best = is_met(mean, result.best)
    return Text(written(mean) + "*" * is_best, style="bold" if is_best else "")


def _statuses(result: GraphResults, method: str) -> str:
    return " and ".join(sorted({cell.status for cell in result.cells.get(method, [])})) or _NOTHING


def _graph_table(
    rows: Sequence[tuple[GraphResults, Written]], methods: Sequence[str], named: Callable[[str], str]
) -> Table:
    table = compact_table()
    table.add_column("graph", overflow="fold")
    for column in ("ops", "lower\nbound", *map(named, methods)):
        table.add_column(Text(column), justify="right", overflow="fold")
    for result, written in rows:
        bound = _NOTHING if result.bound is None else written(result.bound)
        values = [_method_value(result, method, written) for method in methods]
        table.add_row(Text(one_line(result.graph)), f"{result.ops:,}", bound, *values)
    return table


def _graph_and_method_table(rows: Sequence[tuple[GraphResults, Written]], methods: Sequence[str], task: str) -> Table:
    """Build a row per graph and method, for terminals in which the methods have no room beside each other."""
    table = compact_table()
    table.add_column("graph", overflow="fold")
    table.add_column("ops", justify="right", no_wrap=True)
    table.add_column("method", overflow="fold")
    cells = [cell for result, _ in rows for of_method in result.cells.values() for cell in of_method]
    memory = "peak memory" if all(cell.reserved is None for cell in cells) else "reserved"
    names = {"memory": memory, "share": "largest share", "runtime": "makespan"}
    table.add_column(names[task], justify="right", no_wrap=True)
    for result, written in rows:
        bound = _NOTHING if result.bound is None else written(result.bound)
        table.add_row(Text(one_line(result.graph)), f"{result.ops:,}", "lower bound", bound)
        for method in methods:
            table.add_row("", "", Text(method), _method_value(result, method, written))
        table.add_section()
    return table


def writing_of(results: Sequence[GraphResults], methods: Sequence[str], task: str) -> list[Written]:
    """Return how each graph's values are written: in one unit, unless it takes too many digits or too few."""
    alike = ALIKE[task]
    is_counted = [task == "runtime" and result.counts_runs for result in results]
    shown = [[v for v in (result.bound, *map(result.value, methods)) if v is not None] for result in results]
    own = [format_runs if counted else alike(values) for counted, values in zip(is_counted, shown, strict=True)]
    rows = [(values, row) for counted, values, row in zip(is_counted, shown, own, strict=True) if not counted]
    common = alike(*(values for values, _ in rows))
    known = [value for values, _ in rows for value in values if value]
    is_far_apart = bool(known) and max(known) > _FAR_APART * min(known)
    if is_far_apart or any(len(common(value)) > _LONGEST_VALUE for value in known):
        return own
    return [format_runs if counted else common for counted in is_counted]


def _range(summary: MethodSummary) -> str:
    """Write on how many graphs a method is no worse than the reference, and its worst and best graph."""
    compared = summary.wins + summary.ties + summary.losses
    share = f"{100 * (summary.wins + summary.ties) / compared:.1f}%" if compared else _NOTHING
    ends = (summary.least_improvement, summary.most_improvement)
    least, most = (_NOTHING if end is None else f"{signed(end)}%" for end in ends)
    return f"{summary.method} {share}, {least} to {most}"


def remarks(summaries: Sequence[MethodSummary], cells: Sequence[Cell], reference: str, task: str) -> Iterator[str]:
    """Return the basis of the table's numbers, the runs left out, and the errors."""
    graphs = max(summary.seconds.graphs for summary in summaries)
    if graphs > 1:
        factor = f"{interval_factor(graphs):.2f} standard errors of {graphs} graphs"
        yield f"± is half of the 95% confidence interval over graphs (Student t): {factor}"
    ranges = [_range(s) for s in summaries if s.method != reference and s.improvement.graphs]
    if graphs > 1 and ranges:
        yield f"graphs no worse than the reference, least and largest improvement: {'; '.join(ranges)}"
    geometric = [f"{s.method} {s.geometric_gap:.2f}%" for s in summaries if s.geometric_gap is not None]
    if graphs > 1 and geometric:
        yield f"gap from the best known as a geometric mean: {', '.join(geometric)}"
    if any(0 < getattr(s, column).graphs < s.graphs for s in summaries for column in _PERCENTAGES):
        yield "n= is the number of graphs of a mean that is not over all of them"
    if task == "runtime" and not any(cell.value != 0 for cell in cells):
        yield "every makespan is 0: the ops of these graphs have no runtimes"
    if task == "runtime" and (counting := sum(result.counts_runs for result in by_graph(cells))):
        yield f"graphs whose ops have no runtimes, so that every run counts alike: {counting}"
    for name, what in _REMARKABLE.items():
        if counts := [f"{s.method} {getattr(s, name)} of {s.runs}" for s in summaries if getattr(s, name)]:
            yield f"runs {what}: {', '.join(counts)}"
    if unsolved := sum(result.is_infeasible for result in by_graph(cells)):
        yield f"graphs on which no run of any method kept the memory limit: {unsolved}"
    spread = [f"{s.method} {s.seed_deviation:.2g}" for s in summaries if s.seed_deviation is not None]
    if spread:
        yield f"standard deviation over seeds of the mean improvement, percentage points: {', '.join(spread)}"
    for summary in summaries:
        for column, what in _PERCENTAGES.items():
            if left_out := getattr(summary, column).left_out:
                yield f"{summary.method}: {left_out} graphs left out of the {what}, whose base is 0 there"
        own = [cell for cell in cells if cell.method == summary.method]
        for error in dict.fromkeys(cell.error for cell in own if cell.status == "failed"):
            failed = [cell for cell in own if cell.status == "failed" and cell.error == error]
            first = f"first {failed[0].graph}, seed {failed[0].seed}"
            yield f"{summary.method}: {len(failed)} of {summary.runs} runs failed ({first}): {error}"
        yield from (f"{summary.method}: {note}" for note in dict.fromkeys(cell.note for cell in own if cell.note))


class Shown(NamedTuple):
    """A cell of a table: its text, and the number that it sorts by; without one it comes last."""

    text: str
    number: float | None = None

    def __str__(self) -> str:
        number = "" if self.number is None else f' data-number="{self.number!r}"'
        return f"<td{number}>{escape(self.text)}</td>"


def comparison_page(settings: CompareOptions, methods: Sequence[str], reference: str, cells: Sequence[Cell]) -> str:
    """Return the page."""
    graphs, summaries = by_graph(cells), summarise(cells, methods, reference)
    names, title = {"memory": settings.memory_name, "share": "largest share"}, title_of(settings, len(graphs))
    name = names.get(settings.kind, "makespan")
    parts: list[str] = []
    if cells:
        from ..report.plots.comparison_charts import draw_comparison
        from ..report.plots.figures import render

        picture = render(draw_comparison(cells, methods, reference), ".svg").decode()
        parts = [
            "<h2>Methods</h2>",
            _html_table(*_of_methods(summaries, reference)),
            *(f"<p>{escape(line)}</p>" for line in remarks(summaries, cells, reference, settings.task)),
            f"<figure>{picture[picture.index('<svg') :]}</figure>",
            f"<h2>Improvement over {escape(reference)} on each graph, %</h2>",
            _html_table(*_improvements(graphs, [method for method in methods if method != reference], reference)),
            f"<h2>{name[0].upper()}{name[1:]} on each graph</h2>",
            _html_table(*_values(graphs, methods, settings.kind)),
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
        row += [*_shown_estimate(one.improvement, True), _number(one.least_improvement, True)]
        row += [_number(one.most_improvement, True), _number(no_worse, decimals=1)]
        row += [*_shown_estimate(one.gap_from_best), *_shown_estimate(one.gap_from_bound)]
        row += [_count(one.wins), _count(one.ties), _count(one.losses), _count(one.optimal_graphs)]
        row += [*_shown_estimate(one.seconds, decimals=4), *_shown_estimate(one.cpu_seconds, decimals=4)]
        row += [_number(one.seed_deviation), _count(one.runs), _count(one.infeasible), _count(one.limit_not_met)]
        rows.append([*row, _count(one.failed), _count(one.timed_out)])
    return columns, rows


def _improvements(
    graphs: Sequence[GraphResults], methods: Sequence[str], reference: str
) -> tuple[list[str], list[list[Shown]]]:
    found = ((graph, [_number(graph.improvement(method, reference), True) for method in methods]) for graph in graphs)
    return ["graph", "ops", *methods], [[Shown(graph.graph), _count(graph.ops), *row] for graph, row in found]


def _values(graphs: Sequence[GraphResults], methods: Sequence[str], task: str) -> tuple[list[str], list[list[Shown]]]:
    rows = []
    for graph, written in zip(graphs, writing_of(graphs, methods, task), strict=True):
        row = [Shown(graph.graph), _count(graph.ops)]
        row.append(Shown(_NOTHING) if graph.bound is None else Shown(written(graph.bound), graph.bound))
        for method, value in ((method, graph.value(method)) for method in methods):
            row.append(Shown(_statuses(graph, method)) if value is None else Shown(written(value), value))
        rows.append(row)
    return ["graph", "ops", "lower bound", *methods], rows


def _html_table(columns: Iterable[str], rows: Iterable[Iterable[Shown]]) -> str:
    names = (re.sub(r"(?<=[-:=])", "<wbr>", escape(column)) for column in columns)
    head = "".join(f'<th tabindex="0">{name}</th>' for name in names)
    body = "\n".join(f"<tr>{''.join(map(str, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def _shown_estimate(estimate: Estimate, is_signed: bool = False, decimals: int = 2) -> list[Shown]:
    return [_number(estimate.mean, is_signed, decimals), _number(estimate.half_width, decimals=decimals)]


def _number(value: float | None, is_signed: bool = False, decimals: int = 2) -> Shown:
    if value is None:
        return Shown(_NOTHING)
    return Shown(signed(value, decimals) if is_signed else f"{value:,.{decimals}f}", value)


def _count(number: int) -> Shown:
    return Shown(f"{number:,}", number)
