"""solve: what it takes for a graph, units, a schedule, and a sentence for each wrong type."""

import networkx as nx
import numpy as np
import pytest
import schedopt


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
