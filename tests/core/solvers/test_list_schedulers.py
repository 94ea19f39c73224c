"""HEFT, CPOP and list scheduling: gaps that ops are inserted in, and the example of their paper."""

import naive
import numpy as np
import pytest
from models.small_graphs import sketch
from schedopt import Device, GraphBuilder, Machine, Problem
from schedopt.core.bounds.bounds import EdgeCosts
from schedopt.core.search.search import Cancelled
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements.list_schedulers import InsertionSchedule, starting_orders, upward_ranks


@pytest.mark.parametrize("seed", range(8))
def test_an_op_is_inserted_in_the_first_gap_that_is_long_enough(seed):
    """What takes no time fits between two ops without a gap; there is a gap wherever no other op is."""
    rng = np.random.default_rng([7, seed])
    loose = sketch("; ".join(f"op{number} -> 1 us={rng.integers(0, 4)}" for number in range(60)))
    problem = Problem(loose, "runtime", machine=Machine.equal(1))
    made, busy = InsertionSchedule(problem, EdgeCosts(problem)), []
    for op, takes in enumerate(problem.graph.runtime.tolist()):
        ready = float(rng.integers(0, 90))
        moments = sorted({ready, *(end for _, end in busy if end > ready)})
        expected = next(t for t in moments if all(t + takes <= begin or t >= end for begin, end in busy))
        assert made.first_gap(0, ready, takes) == expected
        made.put(op, 0, expected)
        if takes:
            busy.append((expected, expected + takes))


def test_heft_is_as_in_the_paper():
    """The example of Topcuoglu, Hariri and Wu 2002, figures 2 and 4: 80."""
    times = [
        (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
        (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16),
    ]  # fmt: skip
    edges = {
        (1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23,
        (4, 8): 27, (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13,
    }  # fmt: skip
    builder = GraphBuilder("example")
    inputs = {op: [] for op in range(1, 11)}
    outputs = {op: [] for op in range(1, 11)}
    for (source, target), size in edges.items():
        inputs[target].append((source - 1, len(outputs[source])))
        outputs[source].append(size)
    for op in range(1, 11):
        builder.add_op(f"n{op}", inputs=inputs[op], outputs=outputs[op])
    machine = Machine(
        tuple(Device(f"p{n}", f"p{n}") for n in (1, 2, 3)),
        bandwidth=1e6,
        transfers="beside",
        contention=False,
        op_times={f"n{op}": dict(zip(("p1", "p2", "p3"), map(float, times[op - 1]), strict=True)) for op in inputs},
    )
    problem = Problem(builder.build(), "runtime", machine=machine)
    assert upward_ranks(problem, EdgeCosts(problem)).round(1).tolist() == [
        108.0, 77.0, 80.0, 80.0, 69.0, 63.3, 42.7, 35.7, 44.3, 14.7,
    ]  # fmt: skip
    assert solve(problem, "heft").runtime == 80
    assert solve(problem, "cpop").runtime <= 86


def test_without_time_for_gaps_there_is_a_plan_of_several_devices(monkeypatch):
    """Insertion takes most of the time: what is known by then is offered before."""

    def stopped(*arguments):
        raise Cancelled

    monkeypatch.setattr(InsertionSchedule, "place", stopped)
    found = solve(Problem(sketch("a -> 1 us=5; b -> 1 us=5"), "runtime", machine=Machine.equal(2)), "heft")
    assert found.value == 5.0


@pytest.mark.parametrize("seed", range(6))
def test_list_scheduling_starts_the_most_urgent_op_that_can_where_a_device_is_idle(seed):
    rng = np.random.default_rng([8, seed])
    graph, plain = naive.random_graph(rng, 14)
    kind, takes, priority = rng.integers(2, size=14), rng.integers(1, 9, 14).tolist(), rng.permutation(14)
    times = {name: {"ab"[kind[op]]: takes[op], "ba"[kind[op]]: None} for op, name in enumerate(graph.op_names)}
    devices = tuple(Device(str(at), "abb"[at]) for at in range(3))
    problem = Problem(graph, "runtime", machine=Machine(devices, transfers="beside", contention=False, op_times=times))
    expected, end, now = [], {}, 0
    while len(expected) < 14:
        free = [1, 2] - np.bincount([kind[op] for op in end if end[op] > now], minlength=2)
        done = {op for op in end if end[op] <= now}
        can = [op for op in plain.ops if op not in end and plain.before[op] <= done and free[kind[op]]]
        if can:
            expected.append(op := max(can, key=lambda op: priority[op]))
            end[op] = now + takes[op]
        else:
            now = min(moment for moment in end.values() if moment > now)
    orders, ends = starting_orders(problem, np.stack([priority, -priority]).astype(float))
    assert orders[0].tolist() == expected and ends[0] == max(end.values())
    assert (listed := solve(problem, "list-scheduling").value) <= solve(problem, "direct:decode=rule").value
    assert solve(problem, "auto", evaluations=30).value <= listed
