"""Charts of schedules: memory by tensor or as lines with their peaks, the arena of a device, and a Gantt chart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ...base.arrays import FloatArray, IntArray
from ...base.errors import UsageError
from ...base.units import format_bytes
from ...model.timeline import Holding, Timeline
from . import figures
from .figures import PEAK, byte_unit, color_of, highest_of_bins, line_of, number_ticks, plain, title_of

NAMED_TENSORS = 8
STACK_TITLE = "held at the peak"
_WEIGHTS = "0.45"
_WORKSPACE = "black"
_HEADROOM = 1.13
_UNUSED = "0.87"
_ARENA_WORKSPACE = "0.25"
_NAMED_WIDTH, _NAMED_HEIGHT, _LETTER = 0.06, 0.035, 0.0075
_TRANSFER = "0.25"
_MUCH_LARGER = 2.0
_HALF = 0.36
_WIDTH = 11.0
_LETTERS_PER_INCH = 16
_MOST_BARS, _EDGED = 3000, 0.003
_MOST_NAMED = 400


def draw_memory(axes: Axes, timelines: Sequence[Timeline]) -> list[Patch | Line2D]:
    """Draw the memory of schedules of one graph over their steps; returns the legend's entries."""
    return _draw_by_tensor(axes, timelines[0]) if is_stacked(timelines) else _draw_lines(axes, timelines)


def memory_figure(timelines: Sequence[Timeline]) -> Figure:
    """Return the picture of `draw_memory`, its legend beside or under it."""
    stacked = is_stacked(timelines)
    figure = figures.new_figure(11, 5 if stacked else 4.6 + 0.2 * len(_lines(timelines)))
    entries = draw_memory(figure.subplots(), timelines)
    place, title = ("outside right upper", STACK_TITLE) if stacked else ("outside lower left", None)
    figure.legend(handles=entries, fontsize="small", loc=place, title=title)  # type: ignore[call-overload]
    return figure


def is_stacked(timelines: Sequence[Timeline]) -> bool:
    """Whether `draw_memory` draws a stacked area, whose legend lists the tensors of the peak."""
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
    if heights:  # of a graph without bytes there are none
        axes.stackplot(steps - 0.5, heights, colors=colors, step="post", linewidth=0)
    axes.step(steps - 0.5, np.append(memory[shown], memory[shown[-1]]) / unit, where="post", color="black", lw=0.7)
    highest = peak
    if (reserved := timeline.reserved) is not None:
        highest = max(peak, int(reserved.max()))
        most = highest_of_bins(reserved)
        ends, held = np.append(most, timeline.steps) + 0.5, np.append(reserved[most], reserved[-1]) / unit
        (line,) = axes.step(ends, held, where="post", color=PEAK, linewidth=1)
        line.set_label(f"{format_bytes(highest):>8}  reserved by the allocator")
        entries.insert(0, line)
    entries += limit_lines(axes, [timeline], unit)
    _mark_peak(axes, timeline, unit)
    finish(axes, timeline.steps, _HEADROOM * highest / unit, f"memory, {unit_name}")
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
        source = graph.annotations.source_of(int(graph.tensor_producer[holding.tensor]))
        name = graph.tensor_name(holding.tensor)
        rows.append((band, color_of(number), plain(f"{name} ({source})" if source else name, 56)))
    rows += [(others, figures.GREY, "other tensors"), (workspace, _WORKSPACE, "workspace of the op that runs")]
    rows = [row for row in rows if row[0].any()]
    entries: list[Patch | Line2D] = [
        Patch(facecolor=color, label=f"{format_bytes(int(band[at])):>8}  {name}") for band, color, name in rows[::-1]
    ]
    return [row[0] for row in rows], [row[1] for row in rows], entries


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
        ends, held = np.append(shown, timeline.steps) + 0.5, np.append(memory[shown], memory[shown[-1]]) / unit
        style: dict[str, Any] = {"color": color_of(number), "linestyle": line_of(number)}
        (line,) = axes.step(ends, held, where="post", linewidth=1.2 + 2 * over, **style)  # wider than those over it
        axes.plot([step + 1], [memory[step] / unit], marker="v", color=color_of(number), markeredgecolor="black")
        peak = f"peak {format_bytes(int(memory[step]))} at step {step + 1:,}, {plain(timeline.step_label(step), 56)}"
        line.set_label(f"{plain(name, 32)}: {peak}")
        entries.append(line)
    weights = int(timelines[0].persistent.sum())
    if weights and all(timeline.problem.devices == 1 for timeline in timelines):  # where all hold the same
        axes.axhspan(0, weights / unit, color=figures.GREY, zorder=0)
        entries.append(Patch(facecolor=figures.GREY, label=f"weights (persistent): {format_bytes(weights)}"))
    entries += limit_lines(axes, timelines, unit)
    finish(axes, max(timeline.steps for timeline in timelines), _HEADROOM * highest / unit, f"memory, {unit_name}")
    axes.grid(alpha=0.3)
    graph, alone = timelines[0].problem.graph, len(timelines) == 1
    axes.set_title(title_of(graph.name, timelines[0].label, 100) if alone else plain(graph.name, 60), loc="left")
    return entries


class Box(NamedTuple):
    """Bytes of an arena over steps: outputs of a step, or its workspace, whose name is empty."""

    name: str
    first: int
    end: int
    offset: int
    size: int


def boxes_of(timeline: Timeline, device: int) -> list[Box]:
    """Return all that is in the arena of a device, by first step; a schedule without addresses has nothing there."""
    graph, items, addresses = timeline.problem.graph, timeline.schedule.items.tolist(), timeline.addresses
    if addresses is None:
        return []
    boxes = []
    for held in timeline.holdings:
        if held.device == device and held.size:
            name, end = graph.tensor_name(held.tensor), timeline.steps if held.is_final else held.last + 1
            boxes.append(Box(name, held.first, end, timeline.offset_of(held), held.size))
    for step, item in enumerate(items):
        if item >= 0 and graph.workspace[item] and timeline.schedule.targets[step] == device:
            boxes.append(Box("", step, step + 1, int(addresses.workspace[step]), int(graph.workspace[item])))
    return sorted(boxes, key=lambda box: (box.first, box.offset))


def arena_figure(timelines: Sequence[Timeline]) -> Figure:
    """Return a picture of the arenas of all schedules that have addresses, a panel per device."""
    shown = [
        (timeline, device)
        for timeline in timelines
        if timeline.addresses is not None
        for device in range(timeline.problem.devices)
    ]
    if not shown:
        raise UsageError("the arena of a schedule without addresses is not known; solve --addresses gives them")
    figure = figures.new_figure(11, 4.2 * len(shown) + 0.4)
    columns = figure.subplots(len(shown), 1, squeeze=False)
    for axes, (timeline, device) in zip(columns[:, 0], shown, strict=True):
        entries = draw_arena(axes, timeline, device)
    figure.legend(handles=entries, loc="outside lower center", ncols=len(entries), fontsize="small")
    return figure


def draw_arena(axes: Axes, timeline: Timeline, device: int = 0) -> list[Patch | Line2D]:
    """Draw the arena of a device; returns the legend's entries."""
    assert timeline.addresses is not None
    arena = timeline.addresses.arenas[device]
    unit, unit_name = byte_unit(arena.size)
    boxes, steps = boxes_of(timeline, device), timeline.steps
    axes.axhspan(0, arena.size / unit, color=_UNUSED, zorder=0)
    corners = [
        [(first + 0.5, low), (end + 0.5, low), (end + 0.5, high), (first + 0.5, high)]
        for _, first, end, offset, size in boxes
        for low, high in [(offset / unit, (offset + size) / unit)]
    ]
    colors = [color_of(number) if box.name else _ARENA_WORKSPACE for number, box in enumerate(boxes)]
    axes.add_collection(PolyCollection(corners, facecolors=colors, edgecolors="white", linewidths=0.4, zorder=2))
    for box in boxes:
        width, height = (box.end - box.first) / steps, box.size / arena.size
        if box.name and width > _NAMED_WIDTH and height > _NAMED_HEIGHT:
            middle = (box.first + box.end + 1) / 2, (box.offset + box.size / 2) / unit
            text = plain(box.name, max(4, int(width / _LETTER)))
            axes.text(*middle, text, ha="center", va="center", fontsize=6, color="white", zorder=5)
    live = np.zeros(steps + 1)
    for box in boxes:
        live[box.first] += box.size
        live[box.end] -= box.size
    alive = np.cumsum(live)[:-1] / unit
    ends = np.arange(steps + 1) + 0.5
    (line,) = axes.step(ends, np.append(alive, alive[-1]), where="post", color="black", lw=0.9, zorder=4)
    line.set_label("bytes alive")
    bound = axes.axhline(arena.bound / unit, color=PEAK, linestyle=":", zorder=3, label="bound of this order")
    finish(axes, steps, 1.02 * arena.size / unit, f"address, {unit_name}")
    where = f", device {device}" if timeline.problem.devices > 1 else ""
    waste = "no byte more than live at once" if arena.is_optimal else f"{format_bytes(arena.bound)} live at once"
    title = f"{title_of(timeline.problem.graph.name, timeline.label, 80)}{where}"
    axes.set_title(f"{title}, arena {format_bytes(arena.size)}, {waste}", loc="left", fontsize="medium")
    patches = [Patch(facecolor=_UNUSED, label="not used"), Patch(facecolor=_ARENA_WORKSPACE, label="workspace")]
    return [line, bound, *patches]


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
    unit, name = figures.time_unit(longest)
    return Clock(starts / unit, ends / unit, unit, f"time, {name}")


def draw_gantt(axes: Axes, timeline: Timeline) -> None:
    """Draw the steps of each device of a schedule, and the transfers between devices, over time."""
    clock = clock_of(timeline, timeline.simulation.runtime)
    _draw_devices(axes, timeline, clock, clock.length)
    axes.set_xlim(0, clock.length)
    number_ticks(axes)
    axes.set_xlabel(clock.label)


def gantt_figure(timelines: Sequence[Timeline]) -> Figure:
    """Draw schedules below each other: devices and transfers over time, and under them the memory of each device."""
    rows = [0.36 * timeline.problem.devices + 0.5 for timeline in timelines]
    heights = [height for row in rows for height in (row, 1.9)]
    figure = figures.new_figure(_WIDTH, sum(heights) + 0.4 * len(timelines))
    axes = figure.subplots(2 * len(timelines), 1, gridspec_kw={"height_ratios": heights}, squeeze=False)[:, 0]
    took = [float(timeline.times[1].max()) for timeline in timelines]
    ends, highest = _shared(took), _shared([timeline.simulation.peak for timeline in timelines])
    for number, (timeline, longest) in enumerate(zip(timelines, ends, strict=True)):
        clock = clock_of(timeline, longest)
        end = longest / clock.unit
        devices, memory = axes[2 * number], axes[2 * number + 1]
        _draw_devices(devices, timeline, clock, end)
        _draw_device_memory(memory, timeline, clock, int(highest[number]))
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
    takes_time = simulation.step_end > timeline.simulation.step_start
    for device in range(count):
        in_row, below = (device - _HALF, 2 * _HALF), (device + _HALF, 0.1)
        ops = np.flatnonzero((schedule.items >= 0) & (schedule.targets == device))
        bars = _merged(clock.start[ops], clock.end[ops], end / _MOST_BARS)
        edges = [0.5 * (width > end * _EDGED) for _, width in bars]  # an edge would hide a bar no wider than itself
        axes.broken_barh(bars, in_row, facecolors=color_of(device), edgecolor="white", linewidth=edges)
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
    sent_from_to = list(np.stack((starts, ends), axis=1))
    axes.add_collection(LineCollection(sent_from_to, colors=_TRANSFER, linewidths=0.7, alpha=strength, zorder=0.5))
    for direction, marker in ((1, "v"), (-1, "^")):
        across, along = ends[down == direction].T
        axes.scatter(across, along, marker=marker, s=9, color=_TRANSFER, alpha=strength, linewidth=0, zorder=0.6)


def _draw_device_memory(axes: Axes, timeline: Timeline, clock: Clock, highest: int) -> None:
    unit, unit_name = byte_unit(highest)
    for device in range(timeline.problem.devices):
        times, memory = timeline.memory_over_time(device)
        shown = highest_of_bins(memory)
        ending = np.append(times[shown] / clock.unit, clock.length)
        held = np.append(memory[shown], memory[-1]) / unit
        axes.step(ending, held, where="post", color=color_of(device), ls=line_of(device), lw=1.0)
    step = timeline.peak_step
    axes.plot([clock.start[step]], [timeline.simulation.peak / unit], marker="v", color=PEAK, markersize=6, zorder=5)
    limits = limit_lines(axes, [timeline], unit)
    if limits:
        axes.legend(handles=limits, loc="lower right", fontsize="small")
    axes.set(ylim=(0, 1.15 * max(highest, 1) / unit), ylabel=f"memory, {unit_name}")
    axes.grid(alpha=0.3)
    number_ticks(axes, "y")
