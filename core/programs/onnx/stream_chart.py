"""Plans of several streams as they were predicted and as they ran: two Gantt charts over each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...base.units import format_microseconds
from ...report.plots.figures import color_of, new_figure, number_ticks, plain, time_unit
from ..stream_plans import Spans, StreamPlan
from ..stream_report import StreamReport, StreamRow

_WIDTH = 11.0
_LETTERS_PER_INCH = 16
_HEIGHT = 0.38
_MOST_NAMED = 400


def stream_figure(report: StreamReport) -> Figure:
    """Draw each plan of several streams: per stream what was predicted, and below it, in full color, what ran.

    The axis of time is the same for all of them.
    """
    rows = [row for row in report.rows if row.plan is not None and row.plan.count > 1]
    counts = [row.plan.count for row in rows if row.plan is not None]
    figure = new_figure(_WIDTH, sum(0.9 * count + 0.8 for count in counts))
    axes = figure.subplots(len(rows), 1, gridspec_kw={"height_ratios": counts}, squeeze=False)[:, 0]
    longest = max(span.makespan for row in rows for span in (row.spans, row.predicted_spans) if span is not None)
    for axis, row in zip(axes, rows, strict=True):
        _draw(axis, row, report.graph.op_names, longest)
    return figure


def _draw(axes: Axes, row: StreamRow, names: Sequence[str], longest: float) -> None:
    assert row.plan is not None and row.spans is not None and row.predicted_spans is not None
    unit, unit_name = time_unit(longest)
    for stream in range(row.plan.count):
        for spans, top, alpha in (
            (row.predicted_spans, stream - _HEIGHT - 0.02, 0.45),
            (row.spans, stream + 0.02, 1.0),
        ):
            _draw_stream(axes, spans, row.plan, stream, top, alpha, names, longest)
    lanes = [lane for stream in range(row.plan.count) for lane in (stream - 0.2, stream + 0.2)]
    texts = [text for stream in range(row.plan.count) for text in (f"stream {stream}, predicted", "measured")]
    axes.set_yticks(lanes, texts, fontsize="small")
    axes.set_ylim(row.plan.count - 0.5, -0.5)
    axes.set_xlim(0, longest / unit)
    axes.set_xlabel(f"time, {unit_name}")
    predicted, ran = (format_microseconds(spans.makespan) for spans in (row.predicted_spans, row.spans))
    axes.set_title(f"{plain(row.label, 48)}: predicted {predicted}, this run {ran}", loc="left", fontsize="medium")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    number_ticks(axes)


def _draw_stream(
    axes: Axes, spans: Spans, plan: StreamPlan, stream: int, top: float, alpha: float, names: Sequence[str], end: float
) -> None:
    """Draw the bars of one stream's ops with their names, where they fit."""
    unit, _ = time_unit(end)
    ops = np.array(plan.streams[stream])
    bars = np.column_stack((spans.start[ops], spans.end[ops] - spans.start[ops])) / unit
    edge = {"edgecolor": "white", "linewidth": 0.5} if len(ops) <= _MOST_NAMED else {"linewidth": 0}
    axes.broken_barh(bars.tolist(), (top, _HEIGHT), facecolors=color_of(stream), alpha=alpha, **edge)
    if len(ops) > _MOST_NAMED:
        return
    for op, (start, length) in zip(ops.tolist(), bars.tolist(), strict=True):
        room = length * unit / end * 0.85 * _WIDTH * _LETTERS_PER_INCH
        name = next((text for text in (names[op], names[op].rsplit("/", 1)[-1]) if 0 < len(text) <= room), None)
        if name is not None:
            middle = start + length / 2
            axes.text(middle, top + _HEIGHT / 2, plain(name), ha="center", va="center", fontsize=6.5, color="black")
