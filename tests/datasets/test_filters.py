"""Filters of REGAL A.1.2 and A.1.4."""

import pickle
import re
from types import SimpleNamespace

import numpy as np
import pytest
from schedopt.core.graph.builder import GraphBuilder
from schedopt.datasets.filters import KeepImproving, KeepWithRoom, has_room, has_single_order


def build(*ops):
    """Ops as `(inputs, size, runtime)`."""
    builder = GraphBuilder("graph")
    for number, (inputs, size, runtime) in enumerate(ops):
        builder.add_op(str(number), inputs=[(i, 0) for i in inputs], outputs=[size], runtime=runtime)
    return builder.build()


SINGLE = build(([], 5, 5))
CHAIN = build(([], 5, 1), ([0], 9, 2), ([1], 2, 3))
# 0 and 1 make 9 bytes, of which 2 and 3 keep 1: the file's order holds 19 bytes, 0 2 1 3 holds 11.
PAIRS = build(([], 9, 2), ([], 9, 2), ([0], 1, 2), ([1], 1, 2), ([2, 3], 1, 1))
PAIRS_IN_ORDER = build(([], 9, 2), ([0], 1, 2), ([], 9, 2), ([2], 1, 2), ([1, 3], 1, 1))
FREE = build(([], 0, 0), ([], 0, 0), ([0, 1], 0, 0))


@pytest.mark.parametrize(
    ("graph", "task", "devices", "expected"),
    [
        (SINGLE, "memory", 1, False),
        (SINGLE, "runtime", 2, False),
        (CHAIN, "memory", 1, False),
        (CHAIN, "runtime", 2, False),
        (FREE, "memory", 1, False),
        (FREE, "runtime", 2, False),
        (PAIRS, "memory", 1, True),
        (PAIRS, "runtime", 2, True),
        (PAIRS, "runtime", 1, False),
        (PAIRS_IN_ORDER, "memory", 1, True),
    ],
)
def test_room(graph, task, devices, expected):
    assert has_room(task, devices, graph) is expected


def test_an_order_that_meets_the_bound_has_no_room():
    # The last op needs 10 + 1 bytes whatever comes before it.
    graph = build(([], 5, 1), ([], 5, 1), ([0, 1], 1, 1))
    assert not has_single_order(graph)
    assert not has_room("memory", 1, graph)


def test_a_chain_with_final_outputs_has_a_single_order():
    builder = GraphBuilder("chain")
    builder.add_op("a", outputs=[5], final=True)
    builder.add_op("b", control=[0], outputs=[5])
    graph = builder.build()
    assert has_single_order(graph) and not has_room("memory", 1, graph)
    assert not has_single_order(PAIRS)


@pytest.mark.parametrize(("few", "many", "kept"), [(100, 82, True), (100, 81, True), (100, 83, False), (0, 0, False)])
def test_improvement_is_measured_from_1000_to_10000_evaluations(monkeypatch, few, many, kept):
    calls = []

    def solve(problem, method, *, evaluations, seed):
        calls.append((problem.task, problem.devices, method, evaluations, seed))
        return SimpleNamespace(value=float(few if evaluations == 1000 else many))

    monkeypatch.setattr("schedopt.core.solve.solve.solve", solve)
    assert KeepImproving(0.18)(PAIRS, np.random.default_rng(0)) is kept
    assert [call[:4] for call in calls] == [("runtime", 2, "brkga", 1000), ("runtime", 2, "brkga", 10000)]
    assert calls[0][4] == calls[1][4]


@pytest.mark.parametrize(
    ("make", "values", "others"), [(KeepImproving, (0.18,), (0.2,)), (KeepWithRoom, ("memory", 1), ("memory", 2))]
)
def test_filters_are_values(make, values, others):
    """What they print is hashed, so it must name what they keep and nothing of the process that they are in."""
    assert make(*values) == make(*values) != make(*others)
    assert pickle.loads(pickle.dumps(make(*values))) == make(*values)
    assert repr(make(*values)) != repr(make(*others))
    assert not re.search("0x|object at", repr(make(*values)))
