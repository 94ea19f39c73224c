"""verify: whatever stands for a schedule, and the broken rule."""

import numpy as np
import pytest
import schedopt
from models.small_graphs import chain_of


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
