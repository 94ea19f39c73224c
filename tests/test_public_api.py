"""The front door: which names there are, what they load, and what they say to those who use them wrongly."""

import doctest
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import schedopt
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from schedopt.cli.main import app
from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "dgl", "numba", "ortools", "tensorboard", "scipy", "matplotlib", "numpy", "rich", "networkx", "typer"}
ERRORS = [name for name in schedopt.__all__ if name.endswith("Error")]
SHORT = 2000


def chain_of(ops, name="chain"):
    """A chain of ops that each read the one before and make as many bytes as its number, in 2 us."""
    builder = schedopt.GraphBuilder(name)
    for op in range(ops):
        builder.add_op(f"op{op}", inputs=[(op - 1, 0)] if op else [], outputs=[op + 1], runtime=2.0)
    return builder.build()


@pytest.fixture(scope="module")
def diamond():
    """source -> left, right -> sink; running right first peaks at 4096 + 512 + 2048 bytes, left first at the same."""
    builder = schedopt.GraphBuilder("diamond")
    source = builder.add_op("source", outputs=[4096], runtime=1.0)
    left = builder.add_op("left", inputs=[(source, 0)], outputs=[2048], runtime=4.0)
    right = builder.add_op("right", inputs=[(source, 0)], outputs=[512], runtime=4.0)
    builder.add_op("sink", inputs=[(left, 0), (right, 0)], outputs=[64], runtime=1.0)
    return builder.build()


@pytest.fixture(scope="module")
def diamond_file(diamond, tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "diamond.pbtxt"
    schedopt.write_graph(diamond, path)
    return path


def test_the_public_names():
    """Removing one of these breaks the programs of users."""
    assert dir(schedopt) == sorted(schedopt.__all__)
    assert set(schedopt.__all__) == {
        *("CostGraph", "GraphBuilder", "Problem", "Schedule", "Result", "Comparison"),
        *("read_graph", "write_graph", "read_schedule", "from_networkx", "to_networkx", "import_model"),
        *("solve", "compare", "verify", "optimize", "methods", "__version__"),
        *("SchedoptError", "UsageError", "GraphError", "FormatError", "UnknownNameError", "OtherGraphError"),
        *("ScheduleError", "TrainingError", "ProgramError"),
    }


@pytest.mark.parametrize("name", [name for name in schedopt.__all__ if name != "__version__"])
def test_each_name_is_there_and_documented(name):
    value = getattr(schedopt, name)
    assert value.__name__ == name
    assert inspect.getdoc(value)
    if name not in ERRORS:
        assert "Parameters\n----------" in inspect.getdoc(value) or not inspect.signature(value).parameters


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'schedopt' has no attribute 'nothing'"):
        _ = schedopt.nothing


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_of_one_family(name):
    assert issubclass(getattr(schedopt, name), schedopt.SchedoptError)


def test_import_loads_nothing_and_every_name_is_found_in_a_new_process():
    code = (
        "import sys, schedopt; before = set(sys.modules); dir(schedopt)\n"
        f"assert not {HEAVY!r} & before, before\n"
        "assert not [name for name in before if name.startswith('schedopt.') and name != 'schedopt.version'], before\n"
        "from schedopt import *\n"
        "print(*(name for name in schedopt.__all__ if name not in globals()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr


def test_python_m_schedopt_is_the_command():
    done = subprocess.run([sys.executable, "-m", "schedopt", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"schedopt {schedopt.__version__}\n"


TYPED = """
import schedopt
result = schedopt.solve("graph.pb.gz", task="memory", time_limit="10s")
peak: int = result.peak_memory
names: tuple[str, ...] = result.order
graph: schedopt.CostGraph = schedopt.read_graph("graph.pb")
"""
MISTYPED = """
import schedopt
schedopt.nothing
schedopt.solve("graph.pb", task="speed")
schedopt.solve(42)
schedopt.GraphBuilder("graph").add_op("op", runtme=1.0)
"""


@pytest.mark.slow
def test_mypy_knows_the_names_and_their_types(tmp_path):
    def errors(code):
        (tmp_path / "code.py").write_text(code)
        command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "code.py"]
        options = {"cwd": tmp_path, "env": None, "capture_output": True, "text": True, "check": False}
        return [line for line in subprocess.run(command, **options).stdout.splitlines() if ": error:" in line]

    assert errors(TYPED) == []
    found = "\n".join(errors(MISTYPED))
    assert 'Module has no attribute "nothing"' in found
    assert 'Argument "task" to "solve" has incompatible type' in found
    assert 'Argument 1 to "solve" has incompatible type "int"' in found
    assert 'Unexpected keyword argument "runtme"' in found


def documented():
    for name in schedopt.__all__:
        value = getattr(schedopt, name)
        yield from doctest.DocTestFinder(recurse=False).find(value, name, globs={"schedopt": schedopt})


@pytest.mark.parametrize("test", [test for test in documented() if test.examples], ids=lambda test: test.name)
def test_examples_in_docstrings_run(test, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = []
    failed = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(test, out=said.append)
    assert failed.failed == 0, "".join(said)


def test_what_is_printed_is_short():
    graph = chain_of(2000)
    problem = schedopt.Problem(graph, memory_limit=10**6)
    result = schedopt.solve(problem, "input")
    comparison = schedopt.compare(graph, ["input", "dfs"])
    for value in (graph, problem, result, result.schedule, comparison):
        assert len(repr(value)) < SHORT
    assert repr(graph) == "CostGraph('chain': 2,000 ops, 2,000 tensors)"
    assert repr(result.schedule) == "Schedule(2,000 ops on 1 device)"
    two = schedopt.Schedule.from_steps([0, ~0, 1], [0, 0, 1], [0, 1, 1])
    assert repr(two) == "Schedule(2 ops and 1 transfer on 2 devices)"


def test_a_graph_a_path_and_a_problem_give_the_same(diamond, diamond_file):
    given = [diamond, str(diamond_file), diamond_file, schedopt.Problem(diamond)]
    results = [schedopt.solve(graph, "brkga", evaluations=200, seed=3) for graph in given]
    assert [r.method for r in results] == ["brkga"] * 4
    assert {(r.peak_memory, r.runtime, r.order) for r in results} == {
        (results[0].peak_memory, results[0].runtime, results[0].order)
    }


def test_units_are_those_of_the_command_line(diamond):
    texts = schedopt.solve(
        diamond, "lpmf", devices=2, memory_limit="6.5KiB", bandwidth="1GB/s", latency="1ms", time_limit="10s"
    )
    numbers = schedopt.solve(
        diamond, "lpmf", devices=2, memory_limit=6656, bandwidth=1e9, latency=1000, time_limit=np.float64(10)
    )
    assert texts.problem == numbers.problem == schedopt.Problem(diamond, "memory", 2, 6656, 1e9, 1000.0)
    share = schedopt.solve(diamond, "lpmf", memory_limit="50%")
    assert share.problem.memory_limit == 6656 // 2
    assert share.status == "infeasible"


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

    assert timeless(repr(result)) == timeless(done.stdout)
    assert result.summary() == repr(result)


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


WRONG = {
    "unit": ({"memory_limit": "5 parsecs"}, "memory limit '5 parsecs' has an unknown unit"),
    "negative": ({"time_limit": -1}, "time limit '-1' is not understood; write it like 10s"),
    "no time": ({"time_limit": 0}, "time limit must be more than 0, not '0'"),
    "nan": ({"latency": float("nan")}, "latency 'nan' is not understood; write it like 5us"),
    "task": ({"task": "speed"}, "unknown task 'speed'; choose memory or runtime"),
    "list": ({"memory_limit": [5]}, r"memory limit must be a number, or a text like 16GiB.*, not \[5\]"),
    "truth": ({"bandwidth": True}, "bandwidth must be a number, or a text like 10GB/s, not True"),
    "devices": ({"devices": "2"}, "devices must be a whole number, not '2'"),
    "too many": ({"devices": 65}, "devices must be from 1 to 64, not 65"),
    "evaluations": ({"evaluations": 0}, "evaluations must be at least 1, not 0"),
    "half": ({"evaluations": 0.5}, "evaluations must be a whole number, not 0.5"),
    "seed": ({"seed": -1}, "seed must be at least 0, not -1"),
    "jobs": ({"jobs": None}, "jobs must be a whole number, not None"),
    "method": ({"method": "magic"}, "unknown method 'magic'; choose from auto"),
    "no method": ({"method": 3}, "a method is a name such as 'auto', not 3"),
    "initial": ({"initial": 3, "method": "brkga"}, "a schedule is a Schedule, a Result, the path"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_are_usage_errors_with_a_sentence(diamond, case):
    options, message = WRONG[case]
    with pytest.raises(schedopt.UsageError, match=message):
        schedopt.solve(diamond, **options)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (42, r"a graph is a CostGraph or the path of a CostGraphDef file, not 42 \(int\)"),
        (None, r"not None \(NoneType\)"),
        (nx.DiGraph([("a", "b")]), r"\(DiGraph\); from_networkx and import_model make graphs"),
    ],
)
def test_what_is_no_graph_is_a_usage_error(graph, message):
    for verb in (schedopt.solve, lambda graph: schedopt.verify(graph, ["a"])):
        with pytest.raises(schedopt.UsageError, match=message):
            verb(graph)
    with pytest.raises(schedopt.UsageError):
        schedopt.compare([graph], "input")


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(schedopt.FormatError, match=r"nofile\.pb: cannot be read: No such file"):
        schedopt.solve("nofile.pb")


@pytest.mark.parametrize(
    "option", [{"task": "memory"}, {"devices": 1}, {"memory_limit": 5}, {"bandwidth": 1.0}, {"latency": 0}]
)
def test_a_problem_has_its_own_settings(diamond, option):
    (name,) = option
    with pytest.raises(schedopt.UsageError, match=f"a Problem has its own {name}"):
        schedopt.solve(schedopt.Problem(diamond), **option)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"graph": "graph.pb"}, "the graph of a Problem is a CostGraph, not a str"),
        ({"devices": 2.0}, "the devices of a Problem is a whole number, not 2.0"),
        ({"memory_limit": "5MiB"}, "the memory_limit of a Problem is a whole number of bytes or None, not '5MiB'"),
        ({"bandwidth": "1GB/s"}, "the bandwidth of a Problem"),
        ({"latency": None}, "the latency of a Problem"),
    ],
)
def test_a_problem_takes_numbers(diamond, values, message):
    with pytest.raises(schedopt.UsageError, match=message):
        schedopt.Problem(**{"graph": diamond, **values})


def test_solving_goes_on_from_whatever_stands_for_a_schedule(diamond, tmp_path):
    worse = schedopt.solve(diamond, "bfs")
    worse.save(tmp_path / "s.json")
    for initial in (worse, worse.schedule, worse.order, list(worse.order), tmp_path / "s.json"):
        found = schedopt.solve(diamond, "brkga", evaluations=1, initial=initial)
        assert (found.found_by, found.order) == ("initial", worse.order)
    with pytest.raises(schedopt.UnknownNameError, match="names the op 'nobody', which diamond does not have"):
        schedopt.solve(diamond, "brkga", initial=["nobody"])


def test_verify_names_the_broken_rule(diamond, tmp_path):
    result = schedopt.solve(diamond, "input", devices=2, latency="3us")
    result.save(tmp_path / "s.json")
    for problem in (diamond, result.problem):
        for schedule in (result, result.schedule, tmp_path / "s.json", result.order):
            assert schedopt.verify(problem, schedule).peak == result.peak_memory
    with pytest.raises(schedopt.ScheduleError, match="op 'sink' never runs"):
        schedopt.verify(diamond, ["source", "left", "right"])
    with pytest.raises(schedopt.ScheduleError, match="over the limit of 5000"):
        schedopt.verify(schedopt.Problem(diamond, memory_limit=5000), result)
    with pytest.raises(schedopt.UsageError, match="the result is of another graph, 'diamond', not of 'chain'"):
        schedopt.verify(chain_of(4), result)
    with pytest.raises(schedopt.UsageError, match="a list of op names, not a float"):
        schedopt.verify(diamond, 1.5)


def test_what_a_result_claims_is_checked(diamond):
    result = schedopt.solve(diamond, "input")
    order = ["source", "right", "left", "sink"]
    longer = schedopt.Schedule.single_device(np.array([diamond.op_names.index(name) for name in order]))
    assert schedopt.verify(diamond, longer).peak == 6656
    vars(result)["simulation"].clock_per_device.setflags(write=True)
    result.simulation.clock_per_device[0] = 11.0
    vars(result.simulation).pop("runtime", None)
    with pytest.raises(schedopt.ScheduleError, match=r"claims 11\.0 us, but takes 10\.0 us"):
        schedopt.verify(diamond, result)


def test_compare_takes_graphs_files_and_folders(diamond, diamond_file, tmp_path):
    folder = diamond_file.parent
    comparison = schedopt.compare([chain_of(3), folder], "input, dfs", evaluations=None, seeds=2)
    assert comparison.graphs == ("chain", "diamond")
    assert len(comparison.cells) == comparison.planned == 8
    assert repr(comparison) == comparison.summary()
    assert "reference" in comparison.summary()
    for suffix, start in ((".csv", "graph,"), (".json", "{"), (".html", "<!DOCTYPE")):
        comparison.save(tmp_path / f"c{suffix}")
        assert (tmp_path / f"c{suffix}").read_text().startswith(start)
    with pytest.raises(schedopt.UsageError, match=r"c\.txt: the name must end in one of \.csv"):
        comparison.save(tmp_path / "c.txt")
    assert isinstance(comparison.plot(), Figure)
    with pytest.raises(schedopt.UsageError, match="methods are names such as 'auto', not 5"):
        schedopt.compare(diamond, 5)
    with pytest.raises(schedopt.UsageError, match="seeds must be at least 1"):
        schedopt.compare(diamond, "input", seeds=0)


def test_compare_goes_on_where_it_stopped(diamond, tmp_path):
    first = schedopt.compare(diamond, ["random"], resume=tmp_path / "runs.jsonl")
    again = schedopt.compare(diamond, ["random"], resume=tmp_path / "runs.jsonl")
    assert first.cells == again.cells


def test_methods_are_listed_with_their_parameters():
    methods = {method.name: method for method in schedopt.methods()}
    assert {"auto", "brkga", "cp-sat", "topoformer", "regal"} <= methods.keys()
    assert methods["brkga"].parameters["elites"].default == 20
    assert all(method.summary and method.source for method in methods.values())
    assert "elites=20" in repr(schedopt.methods())


def test_import_model_reads_files(tmp_path):
    dot = tmp_path / "net.dot"
    dot.write_text("digraph { a [size=4, runtime=1]; b; a -> b }")
    graph = schedopt.import_model(dot, default_size="1KiB")
    assert (graph.name, graph.tensor_size.tolist()) == ("net", [4, 1024])
    with pytest.raises(schedopt.FormatError, match=r"none\.onnx: no such file"):
        schedopt.import_model("none.onnx")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((42,), {}, "a model is a path, module:function, or a PyTorch module, not a int"),
        (("net.dot", 1), {}, "inputs are for a PyTorch module; net.dot has its own"),
        (("net.dot",), {"costs": "free"}, "unknown costs 'free'; choose roofline or measured"),
        (("net.dot",), {"device": "abacus"}, "unknown device 'abacus'; choose cpu or cuda"),
        (("net.dot",), {"training": "sgd"}, "has no use for --training"),
        (("net.dot",), {"default_size": "much"}, "default size 'much' is not understood"),
    ],
)
def test_what_cannot_be_imported_is_a_usage_error(tmp_path, monkeypatch, arguments, options, message):
    monkeypatch.chdir(tmp_path)
    Path("net.dot").write_text("digraph { a [size=4] }")
    with pytest.raises(schedopt.UsageError, match=message):
        schedopt.import_model(*arguments, **options)


def test_import_model_takes_a_module():
    torch = pytest.importorskip("torch")
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).eval()
    graph = schedopt.import_model(network, torch.ones(2, 4))
    assert graph.tensor_size.max() == 2 * 8 * 4
    step = schedopt.import_model(network.train(), torch.ones(2, 4), training="sgd")
    assert step.num_ops > graph.num_ops
    exported = torch.export.export(network.eval(), (torch.ones(2, 4),))
    assert schedopt.import_model(exported) == graph
    with pytest.raises(schedopt.UsageError, match="with example inputs"):
        schedopt.import_model(network)
    with pytest.raises(schedopt.UsageError, match="default_size and graph are for graph files"):
        schedopt.import_model(network, torch.ones(2, 4), default_size=4)


@st.composite
def graphs(draw):
    """Any graph: several outputs, views, repeated reads, control, finals, costs of all kinds."""
    builder = schedopt.GraphBuilder(draw(st.sampled_from(["net", "net.v1", "a/b"])))
    made = []
    for op in range(draw(st.integers(1, 8))):
        inputs = draw(st.lists(st.sampled_from(made), max_size=4)) if made else []
        sizes = draw(st.lists(st.integers(0, 10**9), max_size=3))
        aliases = [draw(st.integers(-1, len(inputs) - 1)) if inputs else -1 for _ in sizes]
        builder.add_op(
            draw(st.sampled_from(["", "x", f"op{op}"])),
            inputs=inputs,
            control=sorted(draw(st.sets(st.integers(0, op - 1), max_size=2))) if op else [],
            outputs=[0 if alias >= 0 else size for alias, size in zip(aliases, sizes, strict=True)],
            aliases=aliases,
            is_final=[draw(st.booleans()) for _ in sizes],
            runtime=draw(st.floats(0, 1e6)),
            workspace=draw(st.integers(0, 10**6)),
            persistent=draw(st.integers(0, 10**6)),
        )
        made += [(op, port) for port in range(len(sizes))]
    return builder.build()


@given(graphs())
def test_networkx_and_back_is_the_same_graph(graph):
    back = schedopt.from_networkx(schedopt.to_networkx(graph))
    assert back == graph
    assert back.name == graph.name


def test_networkx_attributes_may_be_texts_tuples_and_arrays():
    model = nx.DiGraph()
    model.add_node(1, size=("4KiB", 2), runtime="2ms", final=np.array([True, False]))
    model.add_node(("b", 2), output_size=np.int64(7), workspace="1kB")
    model.add_edge(1, ("b", 2), port=1)
    graph = schedopt.from_networkx(model, name="mine")
    assert (graph.name, graph.op_names) == ("mine", ("1", "('b', 2)"))
    assert graph.tensor_size.tolist() == [4096, 2, 7]
    assert graph.is_final.tolist() == [True, False, False]
    assert (graph.runtime.tolist(), graph.workspace.tolist()) == ([2000.0, 0.0], [0, 1000])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nx.Graph([("a", "b")]), "the networkx graph is undirected"),
        (nx.DiGraph(), "graph: the networkx graph has no nodes"),
        ({"a": ["b"]}, "a networkx DiGraph is wanted, not a dict"),
        (nx.DiGraph([(1, "1")]), "two nodes of the networkx graph have the same text"),
    ],
)
def test_what_is_no_networkx_graph_of_ops(model, message):
    with pytest.raises(schedopt.UsageError, match=message):
        schedopt.from_networkx(model, default_size=1)


def test_a_networkx_node_without_size_is_named():
    with pytest.raises(schedopt.FormatError, match="g: node 'a' has no size"):
        schedopt.from_networkx(nx.DiGraph([("a", "b")], name="g"))
    graph = schedopt.from_networkx(nx.DiGraph([("a", "b")]), default_size="1KiB")
    assert graph.tensor_size.tolist() == [1024, 1024]
    with pytest.raises(schedopt.UsageError, match="a CostGraph is wanted, not a DiGraph"):
        schedopt.to_networkx(nx.DiGraph())


def test_a_graph_builder_refuses_costs_that_there_are_not():
    with pytest.raises(TypeError, match="runtme"):
        schedopt.GraphBuilder("g").add_op("a", runtme=1.0)
