"""Gantt chart: what each device runs when, what is sent between devices, and the memory of each over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from ...base.arrays import FloatArray
from ...base.units import format_bytes
from ...model.timeline import Timeline
from .figures import (
    PEAK,
    byte_unit,
    color_of,
    highest_of_bins,
    line_of,
    new_figure,
    number_ticks,
    plain,
    time_unit,
    title_of,
)
from .memory_chart import limit_lines

_TRANSFER = "0.25"
_MUCH_LARGER = 2.0
_HALF = 0.36
_WIDTH = 11.0
_LETTERS_PER_INCH = 16
_MOST_BARS = 3000
_MOST_NAMED = 400


@dataclass(frozen=True, eq=False)
class Clock:
    """The horizontal axis of a schedule: time, or steps where no step takes any time."""

    # shape `(steps,)`: of each step, in the axis' unit
    start: FloatArray
    end: FloatArray
    unit: float  # microseconds, or steps
    label: str  # of the axis

    @property
    def length(self) -> float:
        """Where the last step ends."""
        return float(self.end.max())


def clock_of(timeline: Timeline, longest: float) -> Clock:
    """Return the horizontal axis of a schedule, in the unit that suits the longest one drawn, microseconds."""
    starts, ends = timeline.times
    if timeline.simulation.runtime == 0:
        return Clock(starts, ends, 1.0, "step (no op takes any time)")
    unit, name = time_unit(longest)
    return Clock(starts / unit, ends / unit, unit, f"time, {name}")


def draw_gantt(axes: Axes, timeline: Timeline) -> None:
    """Draw what each device of a schedule runs when, and what is sent between devices, over time."""
    clock = clock_of(timeline, timeline.simulation.runtime)
    _draw_devices(axes, timeline, clock, clock.length)
    axes.set_xlim(0, clock.length)
    number_ticks(axes)
    axes.set_xlabel(clock.label)


def gantt_figure(timelines: Sequence[Timeline]) -> Figure:
    """Draw schedules below each other: devices and transfers over time, and under them the memory of each device."""
    rows = [0.36 * timeline.problem.devices + 0.5 for timeline in timelines]
    heights = [height for row in rows for height in (row, 1.9)]
    figure = new_figure(_WIDTH, sum(heights) + 0.4 * len(timelines))
    axes = figure.subplots(2 * len(timelines), 1, gridspec_kw={"height_ratios": heights}, squeeze=False)[:, 0]
    took = [float(timeline.times[1].max()) for timeline in timelines]
    ends, highest = _shared(took), _shared([timeline.simulation.peak for timeline in timelines])
    for number, (timeline, longest) in enumerate(zip(timelines, ends, strict=True)):
        clock = clock_of(timeline, longest)
        end = longest / clock.unit
        devices, memory = axes[2 * number], axes[2 * number + 1]
        _draw_devices(devices, timeline, clock, end)
        _draw_memory(memory, timeline, clock, int(highest[number]))
        for axis in (devices, memory):
            axis.set_xlim(0, end)
            number_ticks(axis)
        devices.tick_params(labelbottom=False)
        memory.set_xlabel(clock.label if longest == max(ends) else f"{clock.label} (another scale than above)")
    return figure


def _shared(values: Sequence[float]) -> list[float]:
    """Return for each value the end of an axis on which it is seen well: the largest that is not much larger."""
    return [max(other for other in values if other <= _MUCH_LARGER * own) for own in values]


def _draw_devices(axes: Axes, timeline: Timeline, clock: Clock, end: float) -> None:
    schedule, simulation = timeline.schedule, timeline.simulation
    count, is_beside = timeline.problem.devices, timeline.problem.machine.is_beside
    takes_time = simulation.step_end > timeline.step_start
    for device in range(count):
        in_row, below = (device - _HALF, 2 * _HALF), (device + _HALF, 0.1)
        ops = np.flatnonzero((schedule.items >= 0) & (schedule.targets == device))
        bars = _merged(clock.start[ops], clock.end[ops], end / _MOST_BARS)
        edge = {"edgecolor": "white", "linewidth": 0.5} if len(bars) <= _MOST_NAMED else {"linewidth": 0}
        axes.broken_barh(bars, in_row, facecolors=color_of(device), **edge)
        if len(ops) <= _MOST_NAMED:
            _write_names(axes, timeline, clock, ops.tolist(), device, end)
        busy = np.flatnonzero((schedule.items < 0) & timeline.involves(device) & takes_time)
        bars = _merged(clock.start[busy], clock.end[busy], end / _MOST_BARS)
        axes.broken_barh(bars, below if is_beside else in_row, facecolors=_TRANSFER, linewidth=0)
    _draw_transfers(axes, timeline, clock)
    peaks = [format_bytes(int(peak)) for peak in simulation.peak_per_device]
    names = [device.name for device in timeline.problem.machine.devices]
    axes.set_yticks(range(count), [f"{plain(name, 20)}, {peak}" for name, peak in zip(names, peaks, strict=True)])
    axes.set_ylim(count - 0.5, -0.5)
    transfers = int((schedule.items < 0).sum())
    sent_note = f", {transfers:,} transfer{'s' * (transfers != 1)} (dark)" if transfers else ""
    took = f"{clock.length:,.4g} {clock.label.removeprefix('time, ')}" if simulation.runtime else "no runtimes"
    name = title_of(timeline.problem.graph.name, timeline.label, 72)
    axes.set_title(f"{name}: {took}, peak {format_bytes(simulation.peak)}{sent_note}", loc="left", fontsize="medium")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _merged(starts: FloatArray, ends: FloatArray, least: float) -> list[tuple[float, float]]:
    """Return bars as `(start, width)`; those too short to be seen apart are drawn as one with their neighbours."""
    bars: list[list[float]] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if bars and start - bars[-1][1] < least and (end - start < least or bars[-1][1] - bars[-1][0] < least):
            bars[-1][1] = end
        else:
            bars.append([start, end])
    return [(start, end - start) for start, end in bars]


def _write_names(axes: Axes, timeline: Timeline, clock: Clock, ops: list[int], device: int, end: float) -> None:
    """Write into each bar its op's name, or the last part of it, where it fits."""
    for step in ops:
        width = (clock.end[step] - clock.start[step]) / end * 0.85 * _WIDTH * _LETTERS_PER_INCH
        name = timeline.step_name(step)
        fitting = next((text for text in (name, name.rsplit("/", 1)[-1]) if 0 < len(text) <= width), None)
        if fitting is not None:
            middle = (clock.start[step] + clock.end[step]) / 2
            axes.text(middle, device, plain(fitting), ha="center", va="center", fontsize=6.5, color="white")


def _draw_transfers(axes: Axes, timeline: Timeline, clock: Clock) -> None:
    """Draw an arrow for each transfer, from its start on the source to its end on the target."""
    schedule = timeline.schedule
    sent = np.flatnonzero(schedule.items < 0)
    if not len(sent):
        return
    sources, targets = schedule.sources[sent], schedule.targets[sent]
    # Under the bars, so that a transfer past a device hides none of its ops.
    down = np.where(targets > sources, 1, -1)
    starts = np.column_stack((clock.start[sent], sources + _HALF * down))
    ends = np.column_stack((clock.end[sent], targets - _HALF * down))
    strength = float(np.clip(150 / len(sent), 0.15, 0.9))
    lines = LineCollection(
        list(np.stack((starts, ends), axis=1)), colors=_TRANSFER, linewidths=0.7, alpha=strength, zorder=0.5
    )
    axes.add_collection(lines)
    for direction, marker in ((1, "v"), (-1, "^")):
        tips = ends[down == direction]
        axes.scatter(
            tips[:, 0], tips[:, 1], marker=marker, s=9, color=_TRANSFER, alpha=strength, linewidth=0, zorder=0.6
        )


def _draw_memory(axes: Axes, timeline: Timeline, clock: Clock, highest: int) -> None:
    unit, unit_name = byte_unit(highest)
    for device in range(timeline.problem.devices):
        times, memory = timeline.memory_over_time(device)
        shown = highest_of_bins(memory)
        ending = np.append(times[shown] / clock.unit, clock.length)
        axes.step(
            ending,
            np.append(memory[shown], memory[-1]) / unit,
            where="post",
            color=color_of(device),
            ls=line_of(device),
            lw=1.0,
        )
    step = timeline.peak_step
    axes.plot([clock.start[step]], [timeline.simulation.peak / unit], marker="v", color=PEAK, markersize=6, zorder=5)
    limits = limit_lines(axes, [timeline], unit)
    if limits:
        axes.legend(handles=limits, loc="lower right", fontsize="small")
    axes.set(ylim=(0, 1.15 * max(highest, 1) / unit), ylabel=f"memory, {unit_name}")
    axes.grid(alpha=0.3)
    number_ticks(axes, "y")
