"""From schedules to axes, or to the bytes of a picture, a page or a trace, by the ending of the file's name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from ...base.errors import UsageError
from ...base.names import unknown
from ...base.options import spelled
from ...files.atomic import check_suffix, check_writable
from ...model.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind = Literal["memory", "gantt", "arena", "graph"]
PICTURES = dict.fromkeys((".png", ".svg", ".pdf"), "a picture")
ENDINGS = {**PICTURES, ".html": "an interactive page", ".json": "a Chrome or Perfetto trace"}


def check_target(path: str | None, endings: dict[str, str] = ENDINGS) -> None:
    """Check the name of a file to draw to, if there is one, before anything is computed."""
    if path is not None:
        check_suffix(path, endings)
        check_writable(path)


def draw(timelines: Sequence[Timeline], path: str, kind: Kind | None = None) -> bytes:
    """Draw schedules of one graph."""
    if kind is not None and kind not in get_args(Kind):
        raise unknown("kind", kind, get_args(Kind))
    suffix = Path(path).suffix
    if kind is not None and suffix in (".html", ".json"):
        raise UsageError(
            f"{spelled('kind')} is for pictures (.png, .svg, .pdf); {path} shows memory and devices anyway"
        )
    if suffix == ".html":
        from .page import page

        return page(timelines).encode()
    if suffix == ".json":
        from .page import trace

        return trace(timelines).encode()
    from . import charts
    from .figures import render
    from .graph_chart import graph_figure

    several = any(timeline.problem.devices > 1 for timeline in timelines)
    figures = {"arena": charts.arena_figure, "gantt": charts.gantt_figure, "memory": charts.memory_figure}
    draws = {**figures, "graph": graph_figure}[kind or ("gantt" if several else "memory")]
    return render(draws(timelines), suffix)


def plot_schedule(timeline: Timeline, ax: Axes | None = None) -> Axes:
    """Draw a schedule on axes, or on a figure of its own, which shows itself in a notebook."""
    from .charts import STACK_TITLE, draw_gantt, draw_memory, gantt_figure, memory_figure
    from .figures import drawn

    if timeline.problem.devices > 1:
        return drawn(ax, lambda: gantt_figure([timeline]), lambda axes: draw_gantt(axes, timeline), "plan.svg")

    def draw_with_legend(axes: Axes) -> None:
        axes.legend(handles=draw_memory(axes, [timeline]), fontsize="small", title=STACK_TITLE)

    return drawn(ax, lambda: memory_figure([timeline]), draw_with_legend, "plan.svg")
