"""Memory over a schedule: by tensor for one, as lines with their peaks for several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ...base.arrays import IntArray
from ...base.units import format_bytes
from ...model.lifetimes import Holding
from ...model.timeline import Timeline
from .figures import (
    GREY,
    PEAK,
    byte_unit,
    color_of,
    highest_of_bins,
    line_of,
    new_figure,
    number_ticks,
    plain,
    title_of,
)

NAMED_TENSORS = 8
STACK_TITLE = "held at the peak"
_WEIGHTS = "0.45"
_WORKSPACE = "black"
_HEADROOM = 1.13


def draw_memory(axes: Axes, timelines: Sequence[Timeline]) -> list[Patch | Line2D]:
    """Draw the memory of schedules of one graph over their steps; returns the legend's entries."""
    if is_stacked(timelines):
        return _draw_by_tensor(axes, timelines[0])
    return _draw_lines(axes, timelines)


def memory_figure(timelines: Sequence[Timeline]) -> Figure:
    """Return the picture of `draw_memory`, its legend beside or under it."""
    stacked = is_stacked(timelines)
    figure = new_figure(11, 5 if stacked else 4.6 + 0.2 * len(_lines(timelines)))
    entries = draw_memory(figure.subplots(), timelines)
    if stacked:
        figure.legend(handles=entries, loc="outside right upper", fontsize="small", title=STACK_TITLE)
    else:
        figure.legend(handles=entries, loc="outside lower left", fontsize="small")
    return figure


def is_stacked(timelines: Sequence[Timeline]) -> bool:
    """Whether `draw_memory` draws a stacked area, whose legend is of what is held at the peak."""
    return len(timelines) == 1 and timelines[0].problem.devices == 1


def limit_lines(axes: Axes, timelines: Sequence[Timeline], unit: float) -> list[Line2D]:
    """Draw the memory limits of schedules; returns their legend entries."""
    limits = dict.fromkeys(t.problem.memory_limit for t in timelines if t.problem.memory_limit is not None)
    return [
        axes.axhline(limit / unit, color=PEAK, linestyle=":", label=f"memory limit {format_bytes(limit)}")
        for limit in limits
    ]


def _draw_by_tensor(axes: Axes, timeline: Timeline) -> list[Patch | Line2D]:
    peak = timeline.simulation.peak
    unit, unit_name = byte_unit(peak)
    memory = timeline.memory(0)
    shown = highest_of_bins(memory)
    largest = [holding for holding in timeline.alive(timeline.peak_step, 0) if holding.size][:NAMED_TENSORS]
    named = sorted(largest, key=lambda holding: holding.first - holding.last)  # those that last, undermost
    bands, colors, entries = _bands(timeline, memory, named)
    steps = np.concatenate((shown + 1, [timeline.steps + 1]))
    heights = [np.append(band[shown], band[shown[-1]]) / unit for band in bands]
    axes.stackplot(steps - 0.5, heights, colors=colors, step="post", linewidth=0)
    axes.step(steps - 0.5, np.append(memory[shown], memory[shown[-1]]) / unit, where="post", color="black", lw=0.7)
    entries += limit_lines(axes, [timeline], unit)
    _mark_peak(axes, timeline, unit)
    finish(axes, timeline.steps, _HEADROOM * peak / unit, f"memory, {unit_name}")
    axes.grid(alpha=0.3)
    axes.set_title(title_of(timeline.problem.graph.name, timeline.label, 100), loc="left")
    return entries


def _bands(
    timeline: Timeline, memory: IntArray, named: Sequence[Holding]
) -> tuple[list[IntArray], list[str], list[Patch | Line2D]]:
    """Split the memory of each step; returns bands from below, their colors, and legend entries from above."""
    graph, at = timeline.problem.graph, timeline.peak_step
    steps, ops = np.arange(timeline.steps), timeline.schedule.items
    weights = np.full(timeline.steps, timeline.persistent[0])
    workspace = graph.workspace[ops]
    lasting = [holding.size * ((holding.first <= steps) & (steps <= holding.last)) for holding in named]
    others = memory - weights - workspace - sum(lasting, np.zeros(timeline.steps, np.int64))
    rows = [(weights, _WEIGHTS, "weights (persistent)")]
    for number, (holding, band) in enumerate(zip(named, lasting, strict=True)):
        rows.append((band, color_of(number), plain(_made_by(timeline, holding), 56)))
    rows += [(others, GREY, "other tensors"), (workspace, _WORKSPACE, "workspace of the op that runs")]
    rows = [row for row in rows if row[0].any()]
    entries: list[Patch | Line2D] = [
        Patch(facecolor=color, label=f"{format_bytes(int(band[at])):>8}  {name}") for band, color, name in rows[::-1]
    ]
    return [row[0] for row in rows], [row[1] for row in rows], entries


def _made_by(timeline: Timeline, holding: Holding) -> str:
    """Return a tensor with the module and line that make it, if known."""
    graph = timeline.problem.graph
    source = graph.annotations.source_of(int(graph.tensor_producer[holding.tensor]))
    name = graph.tensor_name(holding.tensor)
    return f"{name} ({source})" if source else name


def _mark_peak(axes: Axes, timeline: Timeline, unit: float) -> None:
    peak, step = timeline.simulation.peak, timeline.peak_step + 1
    axes.plot([step], [peak / unit], marker="v", color=PEAK, markersize=7, clip_on=False, zorder=5)
    share = step / (timeline.steps + 1)
    side = "left" if share < 0.4 else "right" if share > 0.6 else "center"
    text = f"peak {format_bytes(peak)} at step {step:,} of {timeline.steps:,}"
    name = plain(timeline.step_label(timeline.peak_step), 56)
    axes.text(step, 1.035 * peak / unit, f"{text}\n{name}", ha=side, va="bottom", fontsize="small")


def finish(axes: Axes, steps: int, highest: float, ylabel: str) -> None:
    """Set the axes of a chart of bytes, up to the highest in the unit drawn, over steps."""
    axes.set(xlim=(0.5, steps + 0.5), ylim=(0, highest or 1), xlabel="step", ylabel=ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    number_ticks(axes, "xy")


def _lines(timelines: Sequence[Timeline]) -> list[tuple[Timeline, int, str]]:
    """Return the lines to draw: per schedule, or per device of the only one; several devices count by the fullest."""
    alone = len(timelines) == 1
    return [
        (timeline, device, timeline.device_names[device] if alone else timeline.label)
        for timeline in timelines
        for device in (range(timeline.problem.devices) if alone else [timeline.fullest_device])
    ]


def _draw_lines(axes: Axes, timelines: Sequence[Timeline]) -> list[Patch | Line2D]:
    highest = max(timeline.simulation.peak for timeline in timelines)
    unit, unit_name = byte_unit(highest)
    entries: list[Patch | Line2D] = []
    lines = _lines(timelines)
    memories = [timeline.memory(device) for timeline, device, _ in lines]
    for number, (timeline, device, name) in enumerate(lines):
        memory = memories[number]
        over = sum(np.array_equal(memory, later) for later in memories[number + 1 :])
        shown = highest_of_bins(memory)
        step = int(np.argmax(np.where(timeline.schedule.targets == device, memory, -1)))
        (line,) = axes.step(
            np.append(shown + 0.5, timeline.steps + 0.5),
            np.append(memory[shown], memory[shown[-1]]) / unit,
            where="post",
            color=color_of(number),
            linestyle=line_of(number),
            linewidth=1.2 + 2 * over,  # wider than those that are drawn over it
        )
        axes.plot([step + 1], [memory[step] / unit], marker="v", color=color_of(number), markeredgecolor="black")
        peak = f"peak {format_bytes(int(memory[step]))} at step {step + 1:,}, {plain(timeline.step_label(step), 56)}"
        line.set_label(f"{plain(name, 32)}: {peak}")
        entries.append(line)
    entries += [*_weights_under(axes, timelines, unit), *limit_lines(axes, timelines, unit)]
    finish(axes, max(timeline.steps for timeline in timelines), _HEADROOM * highest / unit, f"memory, {unit_name}")
    axes.grid(alpha=0.3)
    graph, alone = timelines[0].problem.graph, len(timelines) == 1
    axes.set_title(title_of(graph.name, timelines[0].label, 100) if alone else plain(graph.name, 60), loc="left")
    return entries


def _weights_under(axes: Axes, timelines: Sequence[Timeline], unit: float) -> list[Patch]:
    """Shade the persistent bytes where all schedules hold the same; returns the legend entry."""
    weights = int(timelines[0].persistent.sum())
    if not weights or any(timeline.problem.devices > 1 for timeline in timelines):
        return []
    axes.axhspan(0, weights / unit, color=GREY, zorder=0)
    return [Patch(facecolor=GREY, label=f"weights (persistent): {format_bytes(weights)}")]
