"""`devices=2, bandwidth, latency` and `Machine.equal(2, ...)` are one problem."""

from dataclasses import replace

import pytest
from schedopt.core.base.errors import UsageError
from schedopt.core.graph.builder import GraphBuilder
from schedopt.core.problem.machine import Device, Machine
from schedopt.core.problem.problem import Problem


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
    builder = GraphBuilder("net")
    builder.add_op("a", outputs=[10], runtime=5.0)
    graph = builder.build()
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
