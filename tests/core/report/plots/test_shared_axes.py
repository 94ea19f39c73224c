"""What tells schedules of one picture apart: axes, lines and titles."""

import schedopt
from schedopt.core.model.timeline import input_timeline, timeline_of
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule
from schedopt.core.report.plots.charts import gantt_figure, memory_figure


def wide_graph(ops=8):
    builder = schedopt.GraphBuilder("wide")
    for number in range(ops):
        builder.add_op(f"op{number}", outputs=[100], runtime=1000)
    return builder.build()


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
