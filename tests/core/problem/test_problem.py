"""The problem: which values it takes, how it ranks schedules, and which op it pins to device 0."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from models.small_graphs import sketch
from schedopt import Device, GraphBuilder, Machine, Problem, Schedule, UsageError


def graph_of(**last):
    """a (10 bytes, 5 us) -> b (reads it twice, makes 1 byte, 2 us), and c."""
    builder = GraphBuilder("net")
    builder.add_op("a", outputs=[10], runtime=5.0)
    builder.add_op("b", inputs=[(0, 0), (0, 0)], outputs=[1], runtime=2.0)
    builder.add_op("c", **last)
    return builder.build()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task": "speed"}, "unknown task 'speed'.*memory or runtime"),
        ({"devices": 0}, "devices must be from 1 to 64, not 0"),
        ({"memory_limit": 0}, "memory limit .* not 0"),
        ({"bandwidth": 0.0}, "bandwidth must be positive"),
        ({"bandwidth": math.nan}, "bandwidth"),
        ({"latency": -1.0}, "latency .* not -1.0"),
        ({"latency": math.inf}, "latency"),
    ],
)
def test_values_out_of_range(values, message):
    with pytest.raises(UsageError, match=message):
        Problem(graph_of(), **values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"latency": 1e308}, "a latency of 1e+308 us and an infinite bandwidth all transfers"),
        ({"bandwidth": 1e-320}, "a latency of 0 us and a bandwidth of 1e-320 bytes per second all transfers"),
    ],
)
def test_transfers_that_no_clock_adds_up(values, words):
    with pytest.raises(UsageError) as caught:
        Problem(graph_of(), devices=2, **values)
    assert words in str(caught.value)


@pytest.mark.parametrize("link", [{"latency": 1e308}, {"bandwidth": 1e-320}])
def test_links_that_no_clock_adds_up(link):
    machine = Machine((Device("a"), Device("b")), **link)
    with pytest.raises(UsageError, match="net: over the slowest link all transfers could take more than 2\\^63 - 1 us"):
        Problem(graph_of(), "runtime", machine=machine)


def test_bytes_of_all_devices_together_must_fit():
    graph = graph_of(workspace=2**60, persistent=2**60)
    assert Problem(graph, devices=3).devices == 3
    with pytest.raises(UsageError, match="net: all bytes times 4 devices exceed"):
        Problem(graph, devices=4)


@pytest.mark.parametrize(
    ("task", "last", "fixed"),
    [
        ("runtime", {"runtime": 5.0}, 0),  # the first of equals
        ("runtime", {"runtime": 6.0}, 2),
        ("memory", {}, 1),  # 10 bytes read, counted once, and 1 made
        ("memory", {"workspace": 12}, 2),
        ("memory", {"persistent": 100}, 1),  # the paper's memory of an op: inputs, outputs and workspace
        ("memory", {"outputs": [6, 6]}, 2),
    ],
)
def test_the_op_of_largest_memory_or_runtime_stays_on_device_0(task, last, fixed):
    assert Problem(graph_of(**last), task, 2).fixed_op == fixed


@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_feasible_first_then_least_excess_then_value(task):
    """(peak, makespan), from best to worst under a limit of 100 bytes."""
    schedules = {
        "memory": [(90, 9.0), (100, 1.0), (101, 1.0), (150, 0.5)],
        "runtime": [(100, 1.0), (90, 9.0), (101, 5.0), (150, 0.5)],
    }[task]
    limited = Problem(graph_of(), task, memory_limit=100)
    assert sorted(schedules, key=lambda s: limited.fitness([s[0]], s[1])) == schedules
    assert [limited.is_feasible([peak]) for peak, _ in schedules] == [True, True, False, False]
    free = Problem(graph_of(), task)
    assert [free.fitness([peak], time) for peak, time in schedules] == [(0, free.value(*s)) for s in schedules]
    assert free.is_feasible([2**62])


def test_a_machine_keeps_the_tighter_of_two_limits():
    machine = Machine((Device("a", memory=80), Device("b", memory=200), Device("c")))
    problem = Problem(graph_of(), memory_limit=100, machine=machine)
    assert problem.memory_limits == (80, 100, 100)
    assert problem.fitness([90, 90, 120], 0.0)[0] == 20


def test_a_problem_for_another_graph_keeps_everything_else():
    problem = Problem(graph_of(), "runtime", 3, 100, 2e6, 0.5)
    other = replace(problem, graph=graph_of(runtime=9.0))
    assert (other.fixed_op, problem.fixed_op) == (2, 0)
    assert replace(other, graph=problem.graph) == problem
    assert replace(Problem(graph_of(), devices=2, bandwidth=5.0), bandwidth=math.inf) == Problem(graph_of(), devices=2)
    assert problem.machine.mean_link == (0.5, 0.5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"graph": "graph.pb"}, "the graph of a Problem is a CostGraph, not str"),
        ({"memory_limit": "5MiB"}, "the memory_limit of a Problem is a whole number of bytes or None, not '5MiB'"),
        ({"bandwidth": "1GB/s"}, "the bandwidth of a Problem"),
    ],
)
def test_a_problem_takes_numbers(values, message):
    with pytest.raises(UsageError, match=message):
        Problem(**{"graph": graph_of(), **values})


def test_numbers_of_other_libraries_become_plain_ones_that_json_can_hold():
    given = Problem(graph_of(), "memory", np.int64(2), np.int32(70), np.float32(0.5), Fraction(1, 4))
    kept = [given.devices, given.memory_limit, given.bandwidth, given.latency]
    assert kept == [2, 70, 0.5, 0.25]
    assert [type(value) for value in kept] == [int, int, float, float]
    for name in ("bandwidth", "latency"):
        with pytest.raises(UsageError, match=f"the {name} must"):
            Problem(graph_of(), devices=2, **{name: 10**400})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([0, 1], [0], [0, 0]), r"a number per step, not the shapes \(2,\), \(1,\), \(2,\)"),
        (([[0, 1]], [[0, 0]], [[0, 0]]), "a number per step"),
        (([0.5, 1.7], [0, 0], [0, 0]), "whole numbers of 32 bits"),
        (([0, 2**40], [0, 0], [0, 0]), "whole numbers of 32 bits"),
        ((["a"], [0], [0]), "whole numbers of 32 bits"),
    ],
)
def test_steps_are_columns_of_whole_numbers(columns, message):
    with pytest.raises(UsageError, match=message):
        Schedule.from_steps(*columns)


@pytest.mark.parametrize(
    ("change", "is_equal"),
    [
        ({}, True),
        ({"latency": 3.0, "bandwidth": 1e9}, True),
        ({"contention": False}, True),
        ({"devices": (Device("a", memory=5), Device("b", memory=5))}, True),
        ({"devices": (Device("a", memory=5), Device("b"))}, False),
        ({"devices": (Device("a", speed=2.0), Device("b"))}, False),
        ({"devices": (Device("a", speed=0.0), Device("b", speed=0.0))}, False),
        ({"transfers": "beside"}, False),
        ({"bandwidth": 0.0}, False),
        ({"latency": [[0, 1], [2, 0]]}, False),
        ({"pins": [("op", "a")]}, False),
        ({"together": [("op",)]}, False),
        ({"op_times": {"op": {}}}, False),
    ],
)
def test_which_devices_are_equal(change, is_equal):
    assert Machine(**{"devices": (Device("a"), Device("b")), **change}).is_equal == is_equal


def test_a_machine_of_equal_devices_is_what_devices_mean():
    graph = sketch("a -> 10 us=5", "net")
    two = Problem(graph, devices=2, bandwidth=1e9, latency=2.0)
    assert two.machine == Machine.equal(2, 1e9, 2.0)
    assert two == Problem(graph, machine=Machine.equal(2, 1e9, 2.0)) == replace(two, task="memory", graph=graph)
    assert replace(two, devices=3, latency=0.0) == Problem(graph, devices=3, bandwidth=1e9)
    assert replace(two, devices=1) == Problem(graph) == replace(two, machine=Machine.equal(1))
    assert repr(two).endswith(", devices=2, bandwidth=1000000000.0, latency=2.0)")
    other = replace(two, machine=Machine((Device("a"), Device("b"))))
    assert repr(other).endswith(", machine=Machine('a', 'b'))")
    assert not other.machine.is_anonymous
    assert replace(other, task="runtime", devices=2).machine == other.machine
    for changes, message in (({"devices": 3}, "has 2 devices, not 3"), ({"latency": 1.0}, "its own bandwidths")):
        with pytest.raises(UsageError, match=message):
            replace(other, **changes)
