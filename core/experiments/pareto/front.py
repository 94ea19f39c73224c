"""The front of peak memory against time: what each point needs and takes, and what no schedule can beat."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....version import VERSION
from ...base.tables import FirstThatFits, Printed, csv_of, titled
from ...base.units import bytes_alike, format_bytes, times_alike
from ...bounds.bounds import is_met
from ...files.costgraph import structure_hash
from .points import Front, FrontPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import RenderableType
    from rich.table import Table

    from ...search.options import ParetoOptions

SUFFIXES = {".csv": "a row per point", ".json": "settings, points and bounds"}


@dataclass(frozen=True, repr=False)
class ParetoFront(Front, Printed):
    """The front of peak memory against time; printed, it is the table of `schedopt pareto`.

    Parameters
    ----------
    problem
        The graph, and the devices with what is between them; no limit.
    points
        From most memory and least time to least memory and most time.
    bounds
        What limits cost at the least, from the highest limit to the lowest.
    least_peak
        Bytes that no schedule is below, whatever time it takes.
    settings
        How it was looked for.
    searches, planned
        How many searches are finished, and how many belong to the front.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("wide")
    >>> source = builder.add_op("source", outputs=[4096], runtime=1.0)
    >>> middle = builder.add_op("middle", inputs=[(source, 0)], outputs=[1024], runtime=5.0)
    >>> heavy = builder.add_op("heavy", inputs=[(middle, 0)], outputs=[8192], runtime=5.0)
    >>> light = builder.add_op("light", inputs=[(heavy, 0)], outputs=[16], runtime=5.0)
    >>> sink = builder.add_op("sink", inputs=[(light, 0), (source, 0)], outputs=[16], runtime=5.0)
    >>> front = schedopt.pareto(builder.build(), points=2, time_limit=1)
    >>> [(point.peak_memory, point.time) for point in front.points]
    [(13312, 21.0), (9216, 22.0)]
    """

    settings: ParetoOptions
    searches: int
    planned: int

    @property
    def is_complete(self) -> bool:
        """Whether every search is finished."""
        return self.searches == self.planned

    def added_share(self, point: FrontPoint) -> float:
        """Return what a point takes more than each op once, or than the least makespan found, as a share of that."""
        least = self.least_time if self.problem.recompute else self.points[0].time
        return 0.0 if not least or is_met(point.time, least) else point.time / least - 1

    def table(self) -> Table:
        """Return the table of `schedopt pareto`, for Rich to print."""
        return _table(self)

    def remarks(self) -> list[str]:
        """Return what there is to say below the table, a sentence each."""
        lines = [f"No schedule is below {format_bytes(self.least_peak)}, whatever time it takes."]
        if len(self.points) == 1 and self.is_complete:
            is_least = self.points[0].peak_memory <= self.least_peak
            lines = ["One schedule has both the least peak and the least time" + (" (proven)." if is_least else ".")]
        return lines

    def report(self) -> Iterator[RenderableType]:
        """Return what `schedopt pareto` prints: title, table and remarks, for Rich to print."""
        tables = [self.table(), _table(self, narrow=True)]
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
        from ...files.atomic import write_as

        write_as(path, SUFFIXES, lambda suffix: self.csv() if suffix == ".csv" else self.json())

    def save_schedules(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the schedule file of each point, as `1.json` and so on, numbered as in the table."""
        from ...files.atomic import make_folder

        place = make_folder(folder)
        files = [place / f"{number}.json" for number in range(1, len(self.points) + 1)]
        for file, point in zip(files, self.points, strict=True):
            point.result.save(file)
        return files

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the front with the bound below it; in a notebook the chart shows itself."""
        from .chart import plot_front

        return plot_front(self, ax)

    def page(self) -> str:
        """Return the chart and the table as a web page that needs no other file."""
        from .chart import front_page

        return front_page(self, self._repr_html_())


def _table(front: ParetoFront, narrow: bool = False) -> Table:
    """Build one row per point; where it shall be narrow, without lines between columns and with words below others."""
    from rich import box
    from rich.table import Table

    problem = front.problem
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False) if narrow else Table()
    time = "time" if problem.devices == 1 else "makespan"
    again = ("runs again",) if problem.recompute else ()
    for name in ("", "peak memory", "at least", time, "added", "at least", "gap", *again):
        table.add_column(name.replace(" ", "\n") if narrow else name, justify="right", no_wrap=True)
    peaks = [(point.peak_memory, point.peak_bound) for point in front.points]
    memory = bytes_alike((peak for peak, _ in peaks), *peaks)
    taken = [(point.time, point.time_bound) for point in front.points]
    times = times_alike((time for time, _ in taken), *taken)
    write_time = problem.format_time if problem.counts_runs else times
    for number, point in enumerate(front.points, start=1):
        added = front.added_share(point)
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
