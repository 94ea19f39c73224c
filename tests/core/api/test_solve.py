"""solve: what it takes for a graph, units, a schedule, and a sentence for each wrong type."""

import networkx as nx
import numpy as np
import pytest
import schedopt
from matplotlib.figure import Figure
from models.small_graphs import chain_of


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


WRONG = {
    "unit": ({"memory_limit": "5 parsecs"}, "memory_limit='5 parsecs' has an unknown unit"),
    "negative": ({"time_limit": -1}, "time_limit= must not be negative, not '-1'"),
    "no time": ({"time_limit": 0}, "time_limit= must be more than 0, not '0'"),
    "nan": ({"latency": float("nan")}, "latency='nan' is not understood; write it like 5us"),
    "task": ({"task": "speed"}, "unknown task 'speed'; choose memory or runtime"),
    "list": ({"memory_limit": [5]}, r"memory_limit= must be a number, or a text like 16GiB.*, not \[5\]"),
    "truth": ({"bandwidth": True}, "bandwidth= must be a number, or a text like 10GB/s, not True"),
    "devices": ({"devices": "2"}, "devices= must be a whole number, not '2'"),
    "too many": ({"devices": 65}, "devices= must be from 1 to 64, not 65"),
    "evaluations": ({"evaluations": 0}, "evaluations= must be at least 1, not 0"),
    "half": ({"evaluations": 0.5}, "evaluations= must be a whole number, not 0.5"),
    "seed": ({"seed": -1}, "seed= must be at least 0, not -1"),
    "jobs": ({"jobs": None}, "jobs= must be a whole number, not None"),
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
        (42, r"a graph is a CostGraph or the path of a graph or model, not 42 \(int\)"),
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


@pytest.mark.parametrize(
    "option", [{"task": "memory"}, {"devices": 1}, {"memory_limit": 5}, {"bandwidth": 1.0}, {"latency": 0}]
)
def test_a_problem_has_its_own_settings(diamond, option):
    (name,) = option
    with pytest.raises(schedopt.UsageError, match=f"a Problem has its own {name}"):
        schedopt.solve(schedopt.Problem(diamond), **option)


def test_solving_goes_on_from_whatever_stands_for_a_schedule(diamond, tmp_path):
    worse = schedopt.solve(diamond, "bfs")
    worse.save(tmp_path / "s.json")
    for initial in (worse, worse.schedule, worse.order, list(worse.order), tmp_path / "s.json"):
        found = schedopt.solve(diamond, "brkga", evaluations=1, initial=initial)
        assert (found.found_by, found.order) == ("initial", worse.order)
    with pytest.raises(schedopt.UnknownNameError, match="names the op 'nobody', which diamond does not have"):
        schedopt.solve(diamond, "brkga", initial=["nobody"])


@pytest.mark.slow
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
    with pytest.raises(schedopt.UsageError, match="seeds= must be at least 1"):
        schedopt.compare(diamond, "input", seeds=0)


def test_compare_goes_on_where_it_stopped(diamond, tmp_path):
    first = schedopt.compare(diamond, ["random"], resume=tmp_path / "runs.jsonl")
    again = schedopt.compare(diamond, ["random"], resume=tmp_path / "runs.jsonl")
    assert first.cells == again.cells


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
    with pytest.raises(schedopt.UsageError, match="a list of op names, not float"):
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


def test_what_a_file_claims_is_checked_under_any_problem(diamond, tmp_path):
    result, path = schedopt.solve(diamond, "input", devices=2, latency="3us"), tmp_path / "s.json"
    text = result.json()
    path.write_text(text.replace(f'"peak_memory": {result.peak_memory}', '"peak_memory": 1'))
    for problem in (diamond, result.problem, schedopt.Problem(diamond, devices=2, latency=5.0)):
        with pytest.raises(schedopt.ScheduleError, match="claims a peak of 1 bytes"):
            schedopt.verify(problem, path)


def test_files_and_graphs_of_the_wrong_type_are_one_sentence(diamond, tmp_path):
    with pytest.raises(schedopt.UsageError, match="a schedule is read for a CostGraph, not for a str"):
        schedopt.read_schedule(tmp_path / "s.json", "graph.pb")
    with pytest.raises(schedopt.UsageError, match="a CostGraph is written, not str"):
        schedopt.write_graph("graph.pb", tmp_path / "x.pb")
    with pytest.raises(schedopt.UsageError, match="the path of a file is wanted, not int"):
        schedopt.solve(diamond, "input").save(3)
    for read in (schedopt.read_graph, lambda path: schedopt.read_schedule(path, diamond)):
        with pytest.raises(schedopt.UsageError, match="the path of a file is wanted, not NoneType"):
            read(None)
        with pytest.raises(schedopt.FormatError, match=r"cannot be read: .*null"):
            read("a\0b")
