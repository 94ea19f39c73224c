"""Results: what they say, print, show in notebooks, save and draw."""

import json
import pickle
import sys
from types import SimpleNamespace

import pytest
import schedopt
from matplotlib.figure import Figure
from models.small_graphs import training_step
from schedopt import Device, Machine, Problem
from schedopt.cli.main import app
from schedopt.core.report.result import _added, reference_timeline
from typer.testing import CliRunner


def test_a_result_says_what_was_found(diamond, tmp_path):
    result = schedopt.solve(diamond, "dfs", task="runtime", devices=1)
    assert (result.peak_memory, result.runtime, result.status) == (6656, 10.0, "optimal")
    assert (result.lower_bound, result.gap) == (10.0, 0.0)
    assert sorted(result.order) == sorted(diamond.op_names)
    assert (result.order[0], result.order[-1]) == ("source", "sink")
    assert result.placement == dict.fromkeys(diamond.op_names, 0)
    result.save(tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text())["runtime_us"] == 10.0
    assert schedopt.read_schedule(tmp_path / "s.json", diamond).runtime == 10.0


@pytest.mark.parametrize("options", [{}, {"task": "runtime"}, {"devices": 2, "memory_limit": "5KiB", "latency": "1us"}])
def test_a_result_prints_as_the_command_does(diamond_file, options):
    result = schedopt.solve(diamond_file, "brkga", evaluations=100, **options)
    flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    done = CliRunner().invoke(app, ["solve", str(diamond_file), "--method", "brkga", "--evaluations", "100", *flags])

    def timeless(text):
        return [line for line in text.splitlines() if "time  " not in line]

    assert timeless(repr(result)) + result.explain().splitlines() == timeless(done.stdout)
    assert result.summary() == repr(result)


@pytest.mark.slow
def test_results_graphs_comparisons_and_methods_are_tables_in_notebooks(diamond):
    result = schedopt.solve(diamond, "input")
    for value, word in (
        (result, "lower bound"),
        (diamond, "diamond"),
        (schedopt.compare(diamond, ["input", "dfs"]), "reference"),
        (schedopt.methods(), "order-search"),
    ):
        html = value._repr_html_()
        assert html.lstrip().startswith("<")
        assert word in html
    formatter = pytest.importorskip("IPython.core.formatters").HTMLFormatter()
    assert "lower bound" in formatter(result)


def test_names_are_printed_as_they_are(tmp_path):
    builder = schedopt.GraphBuilder("net :x: [bold]")
    builder.add_op("conv:x", outputs=[1024])
    graph = builder.build()
    result = schedopt.solve(graph, "input")
    assert "net :x: [bold]" in result.summary()
    assert "net :x: [bold]" in result._repr_html_()
    schedopt.write_graph(graph, tmp_path / "g:x:.pb")
    result.save(tmp_path / "s.json")
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "g:x:.pb"), str(tmp_path / "s.json")]).output
    assert "running conv:x" in shown
    assert "conv:x:0" in shown


@pytest.mark.parametrize("devices", [1, 2])
def test_plot_returns_axes_and_draws_on_those_given(diamond, devices):
    result = schedopt.solve(diamond, "random", devices=devices, seed=1)
    own = result.plot()
    assert "diamond" in own.get_title(loc="left")
    given = Figure().subplots()
    assert result.plot(ax=given) is given
    assert given.get_title(loc="left") == own.get_title(loc="left")
    assert given.figure is not own.figure
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
    with pytest.raises(schedopt.UsageError, match=r"not 'plan.png'; .* writes a file"):
        result.plot("plan.png")


@pytest.mark.slow
def test_a_plot_shows_itself_once_in_a_kernel_and_nowhere_else(diamond, monkeypatch):
    display = pytest.importorskip("IPython.display")
    shown = []
    monkeypatch.setattr(display, "display", shown.append)
    result = schedopt.solve(diamond, "input")
    result.plot()
    assert shown == []
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=object()))
    result.plot()
    assert len(shown) == 1
    assert shown[0].data.startswith(b"\x89PNG")
    result.plot(ax=Figure().subplots())
    assert len(shown) == 1, "who gives axes shows their figure"


@pytest.mark.slow
def test_a_figure_that_a_cell_returns_is_not_shown_twice(diamond, monkeypatch):
    formatters = pytest.importorskip("IPython.core.formatters")
    display = pytest.importorskip("IPython.display")
    shown = []
    monkeypatch.setattr(display, "display", shown.append)
    shell = SimpleNamespace(kernel=object(), execution_count=1)
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    figure = schedopt.compare(diamond, "input, lpmf").plot()
    formatter = formatters.DisplayFormatter()
    formatter.formatters["image/png"].for_type(Figure, lambda figure: b"png")
    assert len(shown) == 1
    assert formatter.format(figure) == ({}, {})
    shell.execution_count = 2
    assert "image/png" in formatter.format(figure)[0], "in another cell it is a figure like any"
    pickle.loads(pickle.dumps(figure))


def test_an_added_time_that_is_rounding_is_none():
    """Other orders add up the same runtimes to sums that differ in their last bits."""
    result = schedopt.solve(training_step(3))
    assert _added(result, 1e-15) == "none"
    assert _added(result, 2.0) == "+14.29%, 2 us"


def test_the_input_order_of_a_picture_is_on_the_devices_that_there_are(diamond):
    machine = Machine((Device("slow", speed=0.5), Device("fast")), bandwidth=1e9)
    timeline = reference_timeline(Problem(diamond, "runtime", machine=machine))
    assert timeline.label == "input"
    assert set(timeline.schedule.targets.tolist()) == {1}
    assert timeline.simulation.runtime == diamond.runtime.sum()
