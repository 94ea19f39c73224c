"""Pictures show what the simulator says: peaks, tensors, busy times, transfers; whatever the names are."""

import naive
import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from schedopt.core.base.units import format_bytes
from schedopt.core.graph.builder import GraphBuilder
from schedopt.core.model.timeline import input_timeline, timeline_of
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule
from schedopt.core.report.plots.charts import gantt_figure, memory_figure
from schedopt.core.report.plots.draw import draw
from schedopt.core.report.plots.figures import byte_unit, color_of, time_unit

ODD_NAMES = ("_hidden", "$x^2$", "$", "a\nb", "</script>", "\"'&<b>", "層/卷積", "x" * 300)


def drawn(seed, devices, ops=15, **values):
    rng = np.random.default_rng([621, seed, devices])
    graph, plain_graph = naive.random_graph(rng, ops)
    placement, steps = naive.random_steps(rng, plain_graph, devices)
    schedule = Schedule.from_steps(*naive.schedule_of(plain_graph, placement, steps))
    return timeline_of(f"seed {seed}", Problem(graph, devices=devices, **values), schedule)


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
        assert (
            f"peak {format_bytes(timeline.simulation.peak)} at step {timeline.peak_step + 1}" in labels(figure)[number]
        )


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
    assert [row[0] for row in drawn_at] == pytest.approx(sorted(timeline.step_start[sent]))
    peaks = [max(line.get_ydata()) for line in memory.lines[:3]]
    unit = byte_unit(timeline.simulation.peak)[0]
    assert [peak * unit for peak in peaks] == pytest.approx(timeline.simulation.peak_per_device.tolist())


def drawn_key(timeline, step):
    schedule, end = timeline.schedule, timeline.simulation.step_end
    return timeline.step_start[step], schedule.sources[step], end[step], schedule.targets[step]


def test_without_runtimes_a_gantt_chart_is_by_steps():
    timeline = wide(4)
    devices, memory = gantt_figure([timeline]).axes
    assert memory.get_xlabel() == "step (no op takes any time)"
    assert bars_of(devices, color_of(0)) == [(step, step + 1) for step in range(5)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "gantt"])
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_any_name_can_be_drawn(kind, suffix, recwarn):
    timeline = wide(len(ODD_NAMES), ODD_NAMES)
    data = draw([timeline], f"x{suffix}", kind)
    assert data == draw([timeline], f"x{suffix}", kind)
    assert data.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    assert not list(recwarn)
