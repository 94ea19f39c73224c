"""Pictures show what the simulator says: peaks, tensors, busy times, transfers; whatever the names are."""

import math
from functools import partial

import numpy as np
import pytest
import schedopt
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from models.small_graphs import sketch
from models.timelines import input_timeline, random_timeline
from schedopt import GraphBuilder, Problem, Schedule
from schedopt.core.base.units import format_bytes
from schedopt.core.model.timeline import timeline_of
from schedopt.core.report.plots.charts import arena_figure, gantt_figure, memory_figure
from schedopt.core.report.plots.comparison_charts import best_ratios, draw_comparison
from schedopt.core.report.plots.draw import draw
from schedopt.core.report.plots.figures import byte_unit, color_of, time_unit
from schedopt.core.report.plots.graph_chart import graph_figure
from schedopt.core.report.summaries import Cell, by_graph

drawn = partial(random_timeline, 621)

ODD_NAMES = ("_hidden", "$x^2$", "$", "a\nb", "</script>", "\"'&<b>", "層/卷積", "x" * 300)


def wide(count, names=None):
    """Return the input order of a chain in which each op's output waits for the last op, of growing sizes."""
    builder = GraphBuilder("wide")
    for at in range(count):
        builder.add_op(names[at] if names else f"op{at}", outputs=[1000 + at], inputs=[(at - 1, 0)] if at else [])
    builder.add_op("last", inputs=[(at, 0) for at in range(count)], outputs=[1], workspace=7, persistent=50)
    return input_timeline(builder.build())


def labels(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def bands_at(axes, x, y):
    """Count the bands of a stacked area that cover a point."""
    return sum(path.contains_point((x, y)) for band in axes.collections for path in band.get_paths())


def test_a_graph_without_bytes_is_drawn():
    assert memory_figure([input_timeline(sketch("a -> us=5; b: !a -> us=3"))]).axes[0].get_title(loc="left")


@pytest.mark.parametrize("seed", range(6))
def test_one_schedule_is_stacked_up_to_its_peak(seed):
    timeline = drawn(seed, 1)
    axes = memory_figure([timeline]).axes[0]
    unit, _ = byte_unit(timeline.simulation.peak)
    outline = axes.lines[0].get_ydata() * unit
    assert outline[:-1] == pytest.approx(timeline.simulation.step_memory)
    for step in range(timeline.steps):
        memory = timeline.simulation.step_memory[step] / unit
        assert [bands_at(axes, step + 1, memory * share) for share in (0.011, 0.307, 0.633, 0.999)] == [1] * 4
        assert bands_at(axes, step + 1, memory * 1.001) == 0
    marker = axes.lines[1]
    assert marker.get_xdata()[0] == timeline.peak_step + 1
    assert marker.get_ydata()[0] * unit == pytest.approx(timeline.simulation.peak)
    assert format_bytes(timeline.simulation.peak) in axes.texts[0].get_text()


def test_the_largest_tensors_of_the_peak_are_named_and_the_rest_is_grouped():
    timeline = wide(20)
    named = labels(memory_figure([timeline]))
    assert [text.split(maxsplit=2)[2] for text in named] == [
        "workspace of the op that runs",
        "other tensors",
        *(f"op{at}:0" for at in range(19, 11, -1)),
        "weights (persistent)",
    ]
    assert named[0].split()[:2] == ["7", "B"]
    assert named[1].split()[:2] == format_bytes(sum(1000 + at for at in range(12)) + 1).split()
    assert named[-1].split()[:2] == ["50", "B"]


def test_several_orders_are_lines_with_their_peaks():
    timelines = [drawn(3, 1), drawn(3, 1)]
    figure = memory_figure(timelines)
    unit, _ = byte_unit(max(timeline.simulation.peak for timeline in timelines))
    for number, timeline in enumerate(timelines):
        line, marker = figure.axes[0].lines[2 * number : 2 * number + 2]
        assert max(line.get_ydata()) * unit == pytest.approx(timeline.simulation.peak)
        assert marker.get_xdata()[0] == timeline.peak_step + 1
        said = f"peak {format_bytes(timeline.simulation.peak)} at step {timeline.peak_step + 1}"
        assert said in labels(figure)[number]


def test_the_memory_limit_is_drawn():
    timeline = drawn(5, 1, memory_limit=77)
    for figure in (memory_figure([timeline]), memory_figure([timeline, timeline])):
        assert "memory limit 77 B" in labels(figure)
    memory = gantt_figure([timeline]).axes[1]
    assert [text.get_text() for text in memory.get_legend().get_texts()] == ["memory limit 77 B"]


def bars_of(axes, color):
    """Return start and end of each bar of a color."""
    found = []
    for bars in axes.collections:
        if isinstance(bars, PolyCollection) and tuple(bars.get_facecolor()[0]) == to_rgba(color):
            found += [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in bars.get_paths()]
    return found


@pytest.mark.parametrize("seed", range(6))
def test_bars_are_the_busy_times_and_arrows_the_transfers(seed):
    timeline = drawn(seed, 3, task="runtime", bandwidth=2e6, latency=0.5)
    schedule, unit = timeline.schedule, time_unit(timeline.simulation.runtime)[0]
    devices, memory = gantt_figure([timeline]).axes
    for device in range(3):
        ops = schedule.items[(schedule.items >= 0) & (schedule.targets == device)]
        busy = sum(end - start for start, end in bars_of(devices, color_of(device)))
        assert busy * unit == pytest.approx(timeline.problem.graph.runtime[ops].sum())
    arrows = [s for lines in devices.collections if isinstance(lines, LineCollection) for s in lines.get_segments()]
    sent = np.flatnonzero(schedule.items < 0)
    drawn_at = sorted((a[0] * unit, round(a[1]), b[0] * unit, round(b[1])) for a, b in arrows)
    assert [row[1::2] for row in drawn_at] == [
        (schedule.sources[s], schedule.targets[s]) for s in sorted(sent, key=lambda s: drawn_key(timeline, s))
    ]
    assert [row[0] for row in drawn_at] == pytest.approx(sorted(timeline.simulation.step_start[sent]))
    peaks = [max(line.get_ydata()) for line in memory.lines[:3]]
    unit = byte_unit(timeline.simulation.peak)[0]
    assert [peak * unit for peak in peaks] == pytest.approx(timeline.simulation.peak_per_device.tolist())


def drawn_key(timeline, step):
    schedule, end = timeline.schedule, timeline.simulation.step_end
    return timeline.simulation.step_start[step], schedule.sources[step], end[step], schedule.targets[step]


def test_without_runtimes_a_gantt_chart_is_by_steps():
    timeline = wide(4)
    devices, memory = gantt_figure([timeline]).axes
    assert memory.get_xlabel() == "step (no op takes any time)"
    assert bars_of(devices, color_of(0)) == [(step, step + 1) for step in range(5)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "gantt", "graph"])
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_any_name_can_be_drawn(kind, suffix, recwarn):
    timeline = wide(len(ODD_NAMES), ODD_NAMES)
    data = draw([timeline], f"x{suffix}", kind)
    assert data == draw([timeline], f"x{suffix}", kind)
    assert data.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    assert not list(recwarn)


@pytest.mark.parametrize("devices", [1, 3])
def test_a_graph_is_drawn_by_layers_in_the_colors_of_a_schedule(devices):
    timeline = drawn(3, devices)
    edges, ops = graph_figure([timeline]).axes[0].collections
    (sources, targets), points = timeline.problem.graph.edges, ops.get_offsets()
    assert len(np.unique(points, axis=0)) == len(points)
    assert (points[sources, 0] < points[targets, 0]).all()
    ends = [line[[0, -1]] for line in edges.get_segments()]
    assert np.allclose(ends, np.stack((points[sources], points[targets]), 1))
    place = timeline.schedule.placement(timeline.problem.graph)
    assert (edges.get_colors()[:, 0] < 0.4).tolist() == (place[sources] != place[targets]).tolist()
    assert devices > 1 or (np.diff(ops.get_array()[timeline.schedule.op_order()]) > 0).all()
    assert devices == 1 or np.allclose(ops.get_facecolors(), [to_rgba(color_of(at)) for at in place.tolist()])


def wide_graph(ops=8):
    return sketch("; ".join(f"op{number} -> 100 us=1000" for number in range(ops)), "wide")


def test_a_schedule_much_shorter_than_another_has_an_axis_of_its_own():
    graph = wide_graph()
    result = schedopt.solve(graph, "gp-dfs", task="runtime", devices=8)
    short = timeline_of("short", result.problem, result.schedule)
    assert short.simulation.runtime < input_timeline(graph).simulation.runtime / 2
    axes = gantt_figure([input_timeline(graph), short]).axes
    assert axes[0].get_xlim()[1] == 8.0
    assert axes[2].get_xlim()[1] == short.simulation.runtime / 1000
    assert axes[3].get_xlabel().endswith("(another scale than above)")
    assert axes[1].get_xlabel() == "time, ms"


def test_edges_hide_no_bar_that_is_no_wider():
    graph = sketch("long -> us=10000; short: !long -> us=20; last: !short -> us=9980")
    bars, *_ = gantt_figure([input_timeline(graph)]).axes[0].collections
    assert bars.get_linewidths() == [0.5, 0.0, 0.5]


def test_bytes_alive_are_drawn_to_the_end_of_the_last_step():
    result = schedopt.solve(wide_graph(), addresses=True)
    timeline = timeline_of("wide", result.problem, result.schedule, result.addresses)
    (line,) = (line for line in arena_figure([timeline]).axes[0].lines if line.get_label() == "bytes alive")
    assert line.get_xdata().tolist() == [step + 0.5 for step in range(9)]


def test_schedules_of_about_one_length_share_the_axis():
    graph = wide_graph()
    axes = gantt_figure([input_timeline(graph), input_timeline(graph)]).axes
    assert {axis.get_xlim() for axis in axes} == {(0.0, 8.0)}


def test_equal_orders_are_both_seen():
    graph = wide_graph()
    timelines = [timeline_of(name, Problem(graph), Schedule.single_device(graph.input_order)) for name in "abc"]
    widths = [line.get_linewidth() for line in memory_figure(timelines).axes[0].get_lines()[::2]]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == 3


def cell(graph, method, value, status="feasible", seed=0, seconds=1.0, excess=0):
    if status == "failed":
        return Cell(graph, "", 5, method, seed, status, error="X: y")
    return Cell(graph, "", 5, method, seed, status, value=value, excess=excess, lower_bound=1, seconds=seconds)


CELLS = [
    cell("one", "plain", 100),
    cell("one", "better", 50, "optimal"),
    cell("one", "fails", 0, "failed"),
    cell("two", "plain", 10),
    cell("two", "better", 10),
    cell("two", "fails", 9, "infeasible", excess=3),
    cell("three", "plain", 0),
    cell("three", "better", 4),
    cell("three", "fails", 0),
    cell("nobody", "plain", 5, "infeasible", excess=2),
    cell("nobody", "better", 0, "failed"),
    cell("nobody", "fails", 5, "infeasible", excess=2),
]
METHODS = ["plain", "better", "fails"]


def test_ratios_to_the_best_known():
    graphs = by_graph(CELLS)
    assert best_ratios(graphs, "plain") == [2, 1, 1]
    assert best_ratios(graphs, "better") == [1, 1, math.inf]  # the best of the third is 0
    assert best_ratios(graphs, "fails") == [math.inf, math.inf, 1]
    assert best_ratios(graphs, "unknown") == []


def test_a_seed_without_a_schedule_is_not_solved():
    cells = [cell("one", "a", 10), cell("one", "a", 9, "infeasible", seed=1, excess=0), cell("one", "b", 20)]
    assert best_ratios(by_graph(cells), "a") == [math.inf]
    cells = [cell("one", "a", 10), cell("one", "a", 30, seed=1)]
    assert best_ratios(by_graph(cells), "a") == [2]  # the mean over seeds, of the best of any seed


def profile_of(figure):
    """Return the steps of each method: factor -> percent of graphs from there on."""
    axes = next(axes for axes in figure.axes if axes.get_title() == "performance profile")
    return [dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in axes.lines]


@pytest.mark.slow
def test_the_profile_counts_all_graphs_that_someone_solved():
    plain, better, fails = profile_of(draw_comparison(CELLS, METHODS, "plain"))
    assert plain[1] == pytest.approx(200 / 3)
    assert plain[2] == better.get(2, better[max(better)]) + 100 / 3 == pytest.approx(100)
    assert better[max(better)] == pytest.approx(200 / 3)
    assert fails[max(fails)] == pytest.approx(100 / 3)


@pytest.mark.slow
def test_improvements_name_the_reference_and_count():
    figure = draw_comparison(CELLS, METHODS, "plain")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert "better: 1 better, 1 same, 0 worse" in titles  # on the third the reference is 0: no percentage
    assert "fails: 0 better, 1 same, 0 worse" in titles
    assert any(axes.get_xlabel() == "improvement over plain, %" for axes in figure.axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == METHODS
