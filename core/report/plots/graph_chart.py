"""Drawing of a graph by layers, its ops coloured by device or by their place in the order."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ...base.arrays import FloatArray, IntArray, places_in
from ...graph.graph import CostGraph
from ...model.timeline import Timeline
from ..differences import levels
from .figures import color_of, new_figure, number_ticks, plain, title_of

_WIDTH, _LEAST_HEIGHT, _MOST_HEIGHT, _HEIGHT_OF_OP = 11.0, 2.4, 8.0, 0.24
_ROUNDS, _POINTS, _BEND = 24, np.linspace(0, 1, 15), 0.3
_MOST_NAMED, _LONGEST_NAME = 40, 12
_SENT, _KEPT = "0.2", "0.6"
_MOST_DRAWN_EDGES = 20_000


def graph_figure(timelines: Sequence[Timeline]) -> Figure:
    """Return a picture of the graph per schedule, below each other."""
    layer, place = layout(timelines[0].problem.graph)
    height = float(np.clip(_HEIGHT_OF_OP * (1 + np.ptp(place)), _LEAST_HEIGHT, _MOST_HEIGHT))
    figure = new_figure(_WIDTH, (height + 0.8) * len(timelines))
    for axes, timeline in zip(figure.subplots(len(timelines), 1, squeeze=False)[:, 0], timelines, strict=True):
        _draw(axes, timeline, layer, place)
    return figure


def layout(graph: CostGraph) -> tuple[IntArray, FloatArray]:
    """Return each op's layer, by the longest path to it, and its place across the layer, near its neighbours."""
    layer = np.array(levels(graph))
    ends, others = np.concatenate((graph.edges, graph.edges[::-1]), axis=1)
    neighbours = np.bincount(ends, minlength=graph.num_ops)
    middles = (np.bincount(layer)[layer] - 1) / 2
    wanted, place = places_in(graph.input_order), np.zeros(graph.num_ops)
    for _ in range(_ROUNDS):
        order = np.lexsort((wanted, layer))
        place[order] = np.arange(graph.num_ops) - np.searchsorted(layer[order], layer[order]) - middles[order]
        near = np.bincount(ends, place[others], graph.num_ops)
        wanted = place + np.where(neighbours, near / np.maximum(neighbours, 1), place)
    return layer, place


def _draw(axes: Axes, timeline: Timeline, layer: IntArray, place: FloatArray) -> None:
    """Draw edges, dark between devices, and ops; long edges are bent, so that a chain hides none."""
    problem, schedule = timeline.problem, timeline.schedule
    graph, device = problem.graph, schedule.placement(problem.graph)
    sources, targets = (ends[:_MOST_DRAWN_EDGES] for ends in graph.edges)
    span = (layer[targets] - layer[sources])[:, None]
    across = place[sources][:, None] + (place[targets] - place[sources])[:, None] * _POINTS
    bent = across + _BEND * np.sqrt(span - 1) * 4 * _POINTS * (1 - _POINTS)
    lines = np.stack((layer[sources][:, None] + span * _POINTS, bent), axis=2)
    sent = device[sources] != device[targets]
    strength = float(np.clip(600 / max(len(sources), 1), 0.2, 0.9))
    colors = np.where(sent, _SENT, _KEPT).tolist()
    axes.add_collection(LineCollection(list(lines), colors=colors, linewidths=0.6, alpha=strength, zorder=1))
    size = float(np.clip(12_000 / graph.num_ops, 4, 90))
    if problem.devices > 1:
        axes.scatter(layer, place, size, [color_of(at) for at in device.tolist()], zorder=2)
        counts = np.bincount(device, minlength=problem.devices).tolist()
        named = enumerate(zip(timeline.device_names, counts, strict=True))
        entries = [(color_of(at), f"{plain(name, 20)}: {count:,} ops") for at, (name, count) in named]
        handles = [Line2D([], [], color=color, marker="o", linestyle="", label=label) for color, label in entries]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")
    else:
        turn = places_in(schedule.first_runs())
        points = axes.scatter(layer, place, size, turn, cmap="viridis", vmin=0, vmax=1, zorder=2)
        bar = axes.figure.colorbar(points, ax=axes, label="place in the order", ticks=[0, 1], pad=0.01)
        bar.ax.set_yticklabels(["first", "last"])
    if graph.num_ops <= _MOST_NAMED:
        for name, x, y in zip(graph.op_names, layer.tolist(), place.tolist(), strict=True):
            text = plain(name.rsplit("/", 1)[-1], _LONGEST_NAME)
            axes.annotate(text, (x, y), (0, -7), textcoords="offset points", ha="center", va="top", fontsize=6)
    left_out = f" (the first {_MOST_DRAWN_EDGES:,} drawn)" if len(graph.edges[0]) > _MOST_DRAWN_EDGES else ""
    counted = f"{graph.num_ops:,} ops, {len(graph.edges[0]):,} edges{left_out}, {layer.max():,} layers"
    axes.set_title(f"{title_of(graph.name, timeline.label, 72)}: {counted}", loc="left", fontsize="medium")
    aside = 0.5 + 0.01 * layer.max()
    ylim = (place.min() - 1, place.max() + max(1.0, bent.max(initial=0) - place.max() + 0.2))
    axes.set(xlabel="layer", yticks=[], xlim=(1 - aside, layer.max() + aside), ylim=ylim)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    number_ticks(axes)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
