"""The arena of a device: steps across, addresses up, what the steps make as boxes; what is shaded is not used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ...base.errors import UsageError
from ...base.units import format_bytes
from ...model.timeline import Timeline
from .figures import PEAK, byte_unit, color_of, new_figure, plain, title_of
from .memory_chart import finish

_UNUSED = "0.87"
_WORKSPACE = "0.25"
_NAMED_WIDTH, _NAMED_HEIGHT, _LETTER = 0.06, 0.035, 0.0075


class Box(NamedTuple):
    """Bytes of an arena over steps: what a step makes, or its workspace, whose name is empty."""

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
    figure = new_figure(11, 4.2 * len(shown) + 0.4)
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
    colors = [color_of(number) if box.name else _WORKSPACE for number, box in enumerate(boxes)]
    axes.add_collection(PolyCollection(corners, facecolors=colors, edgecolors="white", linewidths=0.4, zorder=2))
    for box in boxes:
        _name(axes, box, steps, arena.size, unit)
    live = np.zeros(steps + 1)
    for box in boxes:
        live[box.first] += box.size
        live[box.end] -= box.size
    (line,) = axes.step(
        np.arange(steps) + 0.5, np.cumsum(live)[:-1] / unit, where="post", color="black", lw=0.9, zorder=4
    )
    line.set_label("bytes alive")
    bound = axes.axhline(arena.bound / unit, color=PEAK, linestyle=":", zorder=3, label="bound of this order")
    finish(axes, steps, 1.02 * arena.size / unit, f"address, {unit_name}")
    where = f", device {device}" if timeline.problem.devices > 1 else ""
    waste = "no byte more than live at once" if arena.is_optimal else f"{format_bytes(arena.bound)} live at once"
    title = f"{title_of(timeline.problem.graph.name, timeline.label, 80)}{where}"
    axes.set_title(f"{title}, arena {format_bytes(arena.size)}, {waste}", loc="left", fontsize="medium")
    return [line, bound, Patch(facecolor=_UNUSED, label="not used"), Patch(facecolor=_WORKSPACE, label="workspace")]


def _name(axes: Axes, box: Box, steps: int, arena: int, unit: float) -> None:
    """Write the name of a box into it, if there is room."""
    width, height = (box.end - box.first) / steps, box.size / arena
    if box.name and width > _NAMED_WIDTH and height > _NAMED_HEIGHT:
        middle = (box.first + box.end + 1) / 2, (box.offset + box.size / 2) / unit
        letters = max(4, int(width / _LETTER))
        axes.text(*middle, plain(box.name, letters), ha="center", va="center", fontsize=6, color="white", zorder=5)
