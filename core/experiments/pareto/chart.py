"""The front of peak memory against time, with what is proven out of reach below it."""

from __future__ import annotations

from html import escape

from matplotlib.axes import Axes

from ...base.errors import UsageError
from ...model.simulator import input_peak
from ...report.plots.figures import (
    GREY,
    PEAK,
    byte_unit,
    new_figure,
    number_ticks,
    plain,
    render,
    show_in_notebook,
    time_unit,
)
from .points import Front

_ROOM = 0.08
_SIZE = (7.5, 4.8)


def plot_front(front: Front, ax: Axes | None = None) -> Axes:
    """Draw a front on axes, or on a figure of its own, which shows itself in a notebook."""
    if ax is not None and not isinstance(ax, Axes):
        raise UsageError(f"plot draws on matplotlib axes, not {ax!r}; plot().figure.savefig('front.svg') writes a file")
    if not front.points:
        raise UsageError("the front has no point yet, so that there is nothing to draw")
    if ax is not None:
        _draw(ax, front)
        return ax
    figure = new_figure(*_SIZE)
    axes = figure.subplots()
    _draw(axes, front)
    show_in_notebook(figure)
    return axes


def _draw(axes: Axes, front: Front) -> None:
    problem, graph = front.problem, front.problem.graph
    peaks, times = [point.peak_memory for point in front.points], [point.time for point in front.points]
    program = input_peak(graph) if problem.recompute else None
    right = max(peaks + ([program] if program is not None else []))
    bytes_, memory = byte_unit(right)
    size, unit = (1.0, "runs") if problem.counts_runs else time_unit(max(times))
    span = max(right - front.least_peak, 1) * _ROOM
    low, high = min(front.least_time, *times), max(times)
    room = max(high - low, 1e-3 * high, 1e-9) * _ROOM
    axes.set(xlim=((front.least_peak - span) / bytes_, (right + span) / bytes_))
    axes.set(ylim=((low - room) / size, (high + room) / size))
    _draw_bound(axes, front, bytes_, size)
    axes.step(
        [*(peak / bytes_ for peak in reversed(peaks)), (right + span) / bytes_],
        [*(time / size for time in reversed(times)), times[0] / size],
        where="post",
        color="C0",
        linewidth=1,
    )
    axes.plot([peak / bytes_ for peak in peaks], [time / size for time in times], "o", color="C0", label="schedules")
    if program is not None:
        axes.plot([program / bytes_], [front.least_time / size], "D", color="0.4", label="program order")
    axes.set(xlabel=f"peak memory, {memory}", ylabel=f"{'time' if problem.devices == 1 else 'makespan'}, {unit}")
    axes.set_title(plain(front.title(), 110), fontsize="medium")
    number_ticks(axes, ("x", "y"))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    if problem.recompute and front.least_time:
        least = front.least_time / size
        functions = (lambda time: 100 * (time / least - 1), lambda percent: least * (1 + percent / 100))
        added = axes.secondary_yaxis("right", functions=functions)
        added.set_ylabel("added time, %")


def _draw_bound(axes: Axes, front: Front, bytes_: float, size: float) -> None:
    """Fill what no schedule reaches: below the least peak, and within each limit below the time that it costs."""
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


def front_page(front: Front, table: str) -> str:
    """Return the chart, and a table that is HTML already, as a web page that needs no other file."""
    figure = new_figure(*_SIZE)
    _draw(figure.subplots(), front)
    picture = render(figure, ".svg").decode()
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(front.title())}</title>\n'
        f"<body>\n{picture[picture.index('<svg') :]}\n{table}\n</body>\n</html>\n"
    )
