"""The front of peak memory against time: its points, its bounds, its table and its chart."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich import box
from rich.table import Table

from ...version import VERSION
from ..base.errors import UsageError
from ..base.names import one_line
from ..base.tables import FirstThatFits, Printed, csv_of, titled
from ..base.units import bytes_alike, format_bytes, times_alike
from ..bounds.bounds import is_met
from ..files.atomic import make_folder, write_as
from ..files.costgraph import structure_hash
from ..model.simulator import input_peak
from ..problem.problem import RUNTIME_TOLERANCE, Problem
from ..problem.residents import model_of
from ..report.result import IN_INPUT_ORDER, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from ..search.options import ParetoOptions


_ROOM = 0.08
SUFFIXES = {".csv": "a row per point", ".json": "settings, points and bounds"}


class LimitBound(NamedTuple):
    """The least cost of a memory limit."""

    limit: int  # bytes per device
    time: float  # microseconds, or runs where every run counts alike, below which no schedule is that keeps the limit


@dataclass(frozen=True)
class FrontPoint:
    """A verified schedule that no other one found beats in both peak and time."""

    result: Result  # the schedule, and how it was found
    time: float  # what it takes: microseconds, or runs where every run counts alike
    time_bound: float  # no schedule of at most its peak takes less
    peak_bound: int  # no schedule of at most its time needs fewer bytes on the fullest device

    @property
    def peak_memory(self) -> int:
        """Bytes on the fullest device; with an allocator, those reserved."""
        return self.result.limited_peak

    @property
    def added_runs(self) -> int:
        """Runs of ops that had run before."""
        return max(0, int((self.result.schedule.items >= 0).sum()) - self.result.problem.graph.num_ops)

    @property
    def is_optimal(self) -> bool:
        """Whether no schedule of at most its peak takes less."""
        return is_met(self.time, self.time_bound)


def front_points(
    problem: Problem, found: Iterable[tuple[Result, int]], bounds: Sequence[LimitBound]
) -> tuple[FrontPoint, ...]:
    """Return the results that no other one beats, from most memory to least."""
    timed = [(r.limited_peak, problem.time_of(len(r.schedule), r.runtime), bound, r) for r, bound in found]
    points: list[FrontPoint] = []
    for peak, time, bound, result in sorted(timed, key=lambda entry: entry[:2]):
        if points and time >= points[-1].time * (1 - RUNTIME_TOLERANCE):
            continue
        time_bound = max((b.time for b in bounds if b.limit >= peak), default=0.0)
        passed = (b.limit + 1 for b in bounds if b.time * (1 - RUNTIME_TOLERANCE) > time)
        points.append(FrontPoint(result, time, min(time, time_bound), min(peak, max((bound, *passed)))))
    return tuple(reversed(points))


@dataclass(frozen=True, repr=False)
class ParetoFront(Printed):
    """The front of peak memory against time; printed, it is the table of `schedopt pareto`."""

    problem: Problem  # the graph, and the devices with what is between them; no limit
    points: tuple[FrontPoint, ...]  # from most memory and least time to least memory and most time
    bounds: tuple[LimitBound, ...]  # what limits cost at the least, from the highest limit to the lowest
    least_peak: int  # bytes that no schedule is below, whatever time it takes
    settings: ParetoOptions  # how it was looked for
    # how many searches are finished, and how many belong to the front
    searches: int
    planned: int

    @property
    def is_complete(self) -> bool:
        """Whether every search is finished."""
        return self.searches == self.planned

    @property
    def least_time(self) -> float:
        """The lower bound of the time of every schedule, whatever its memory: microseconds, or runs."""
        return self.bounds[0].time if self.bounds else 0.0

    def title(self) -> str:
        """Return the line above the table: the graph, and the two traded quantities."""
        graph, devices = self.problem.graph, self.problem.devices
        what = "recomputation on 1 device" if devices == 1 else f"makespan on {devices} devices"
        return (
            f"{one_line(graph.name)}: {model_of(graph).num_ops:,} ops, {self.settings.memory_name} against time, {what}"
        )

    def added_share(self, point: FrontPoint) -> float:
        """Return a point's time beyond each op once, or beyond the least makespan found, as a share of that."""
        least = self.least_time if self.problem.recompute else self.points[0].time
        return 0.0 if not least or is_met(point.time, least) else point.time / least - 1

    def table(self, narrow: bool = False) -> Table:
        """Return the table of `schedopt pareto`, or a narrow one without lines between columns, for Rich to print."""
        problem, points = self.problem, self.points
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False) if narrow else Table()
        time = "time" if problem.devices == 1 else "makespan"
        again = ("runs again",) if problem.recompute else ()
        traded = self.settings.memory_name.partition(" by ")[0]
        for name in ("", traded, "at least", time, "added", "at least", "gap", *again):
            table.add_column(name.replace(" ", "\n") if narrow else name, justify="right", no_wrap=True)
        memory = bytes_alike((p.peak_memory for p in points), *((p.peak_memory, p.peak_bound) for p in points))
        times = times_alike((p.time for p in points), *((p.time, p.time_bound) for p in points))
        write_time = problem.format_time if problem.counts_runs else times
        for number, point in enumerate(points, start=1):
            added = self.added_share(point)
            gap = "none" if point.is_optimal else f"{100 * (point.time / point.time_bound - 1):.2f}%"
            table.add_row(
                str(number),
                f"[bold]{memory(point.peak_memory)}[/]",
                memory(point.peak_bound),
                f"[bold]{write_time(point.time)}[/]",
                f"+{100 * added:.2f}%" if added else "none",
                write_time(point.time_bound),
                gap if point.time_bound else "",
                *((f"{point.added_runs:,}",) if problem.recompute else ()),
            )
        return table

    def remarks(self) -> list[str]:
        """Return the remarks below the table, a sentence each."""
        lines = [f"No schedule is below {format_bytes(self.least_peak)}, whatever time it takes."]
        if len(self.points) == 1 and self.is_complete:
            is_least = self.points[0].peak_memory <= self.least_peak
            lines = ["One schedule has both the least peak and the least time" + (" (proven)." if is_least else ".")]
        return lines

    def report(self) -> Iterator[RenderableType]:
        """Return the output of `schedopt pareto`: title, table and remarks, for Rich to print."""
        tables = [self.table(), self.table(narrow=True)]
        parts: list[RenderableType] = [FirstThatFits(tables), *self.remarks()] if self.points else []
        return titled(self.title(), *parts)

    def rows(self) -> list[dict[str, Any]]:
        """Return a point each as plain values, bytes and microseconds (or runs)."""
        unit = "runs" if self.problem.counts_runs else "us"
        return [
            {
                "peak_memory": point.peak_memory,
                "time": point.time,
                "unit": unit,
                "added_percent": 100 * self.added_share(point),
                "time_bound": point.time_bound,
                "peak_bound": point.peak_bound,
                "added_runs": point.added_runs,
                "status": "optimal" if point.is_optimal else "feasible",
                "memory_limit": point.result.problem.memory_limit,
                "found_by": point.result.found_by,
                "seconds": round(point.result.seconds, 3),
            }
            for point in self.points
        ]

    def document(self) -> dict[str, Any]:
        """Return settings, points and bounds as plain Python values for JSON."""
        problem = self.problem
        return {
            "schedopt": VERSION,
            "graph": problem.graph.name,
            "graph_sha256": structure_hash(problem.graph),
            **self.settings.document(),
            "recompute": problem.recompute,
            "complete": self.is_complete,
            "least_peak": self.least_peak,
            "points": self.rows(),
            "bounds": [bound._asdict() for bound in self.bounds],
        }

    def json(self) -> str:
        """Return settings, points and bounds as a JSON document."""
        return json.dumps(self.document(), indent=1) + "\n"

    def csv(self) -> str:
        """Return a row per point, with a header."""
        rows = self.rows()
        return csv_of(rows, rows[0] if rows else ["peak_memory"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a row per point (`.csv`), or settings, points and bounds (`.json`)."""
        write_as(path, SUFFIXES, lambda suffix: self.csv() if suffix == ".csv" else self.json())

    def save_schedules(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the schedule file of each point, as `1.json` and so on, numbered as in the table."""
        place = make_folder(folder)
        files = [place / f"{number}.json" for number in range(1, len(self.points) + 1)]
        for file, point in zip(files, self.points, strict=True):
            point.result.save(file)
        return files

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the front with the bound below it; in a notebook the chart shows itself."""
        from ..report.plots.figures import drawn

        if not self.points:
            raise UsageError("the front has no point yet, so that there is nothing to draw")
        return drawn(ax, lambda: _figure(self), lambda axes: _draw(axes, self), "front.svg")

    def page(self) -> str:
        """Return the chart and the table as a web page that needs no other file."""
        from ..report.plots.figures import render

        picture = render(_figure(self), ".svg").decode()
        return (
            f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(self.title())}</title>\n'
            f"<body>\n{picture[picture.index('<svg') :]}\n{self._repr_html_()}\n</body>\n</html>\n"
        )


def _figure(front: ParetoFront) -> Figure:
    """Return the chart as a figure of its own."""
    from ..report.plots.figures import new_figure

    figure = new_figure(7.5, 4.8)
    _draw(figure.subplots(), front)
    return figure


def _draw(axes: Axes, front: ParetoFront) -> None:
    from ..report.plots.figures import byte_unit, number_ticks, plain, time_unit

    problem, graph = front.problem, front.problem.graph
    peaks, times = [point.peak_memory for point in front.points], [point.time for point in front.points]
    before = front.points[0].result.reserved_otherwise.get(IN_INPUT_ORDER, input_peak(graph))
    program = before if problem.recompute else None
    right = max(peaks + ([program] if program is not None else []))
    bytes_, memory = byte_unit(right)
    size, unit = (1.0, "runs") if problem.counts_runs else time_unit(max(times))
    span = max(right - front.least_peak, 0.01 * right, 1) * _ROOM
    low, high = min(front.least_time, *times), max(times)
    room = max(high - low, 1e-3 * high, 1e-9) * _ROOM
    axes.set(xlim=((front.least_peak - span) / bytes_, (right + span) / bytes_))
    axes.set(ylim=((low - room) / size, (high + room) / size))
    _draw_bound(axes, front, bytes_, size)
    limits = [*(peak / bytes_ for peak in reversed(peaks)), (right + span) / bytes_]
    taken = [*(time / size for time in reversed(times)), times[0] / size]
    axes.step(limits, taken, where="post", color="C0", linewidth=1)
    axes.plot([peak / bytes_ for peak in peaks], [time / size for time in times], "o", color="C0", label="schedules")
    if program is not None:
        axes.plot([program / bytes_], [front.least_time / size], "D", color="0.4", label="program order")
    axes.set(ylabel=f"{'time' if problem.devices == 1 else 'makespan'}, {unit}")
    axes.set(xlabel=f"{front.settings.memory_name}, {memory}")
    axes.set_title(plain(front.title(), 110), fontsize="medium")
    number_ticks(axes, ("x", "y"))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    if problem.recompute and front.least_time:
        least = front.least_time / size
        functions = (lambda time: 100 * (time / least - 1), lambda percent: least * (1 + percent / 100))
        added = axes.secondary_yaxis("right", functions=functions)
        added.set_ylabel("added time, %")


def _draw_bound(axes: Axes, front: ParetoFront, bytes_: float, size: float) -> None:
    """Fill the region of no schedule: below the least peak, and within each limit below its least time."""
    from ..report.plots.figures import GREY, PEAK

    (left, _), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    axes.axvspan(left, front.least_peak / bytes_, color=GREY, linewidth=0)
    limits = [bound.limit / bytes_ for bound in front.bounds]
    for number, bound in enumerate(front.bounds):
        end = max(axes.get_xlim()[1], limits[0]) if number == 0 else limits[number]
        axes.fill_betweenx([bottom, bound.time / size], front.least_peak / bytes_, end, color=GREY, linewidth=0)
    stairs = [(axes.get_xlim()[1], front.bounds[0].time / size)] if front.bounds else []
    for limit, bound in zip(limits[1:], front.bounds[1:], strict=True):
        stairs += [(limit, stairs[-1][1]), (limit, bound.time / size)]
    stairs += [(front.least_peak / bytes_, stairs[-1][1]), (front.least_peak / bytes_, top)] if stairs else []
    axes.plot(*zip(*stairs, strict=True), color=PEAK, linewidth=1, label="lower bound") if stairs else None
    axes.set_ylim(bottom, top)
    axes.set_xlim(left, axes.get_xlim()[1])
