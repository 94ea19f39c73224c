"""Addresses of schedules: what is packed holds by the verifier, and each way to be wrong is named."""

from dataclasses import replace

import naive
import numpy as np
import pytest
import schedopt
from models.repeated_runs import random_graph
from models.seeds import seeds
from models.small_graphs import sketch
from schedopt import Problem, Schedule, ScheduleError
from schedopt.core.addresses.placing import place_schedule
from schedopt.core.graph.annotations import Annotations, Resident
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify_addresses
from schedopt.core.problem.schedule import Addresses, Arena


def one_device(seed):
    rng = np.random.default_rng([33, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 25)), edges=2.0)
    return Problem(graph), Schedule.single_device(np.array(naive.random_order(rng, plain)))


@pytest.mark.parametrize("alignment", [1, 16])
@pytest.mark.parametrize("seed", seeds(25, quick=4))
def test_one_device(seed, alignment):
    problem, schedule = one_device(seed)
    addresses = place_schedule(problem, schedule, alignment, 0.1)
    verify_addresses(problem, schedule, addresses)
    (arena,) = addresses.arenas
    peak = simulate(problem, schedule).peak - int(problem.graph.persistent.sum())
    assert arena.size >= arena.bound >= peak
    if alignment == 1:
        assert arena.bound == peak


@pytest.mark.parametrize("seed", seeds(25, quick=4))
def test_several_devices_have_an_arena_each(seed):
    rng = np.random.default_rng([34, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(2, 20)), edges=2.0)
    schedule = Schedule.from_steps(*naive.schedule_of(plain, *naive.random_steps(rng, plain, 3)))
    problem = Problem(graph, devices=3)
    addresses = place_schedule(problem, schedule, 1, 0.1)
    verify_addresses(problem, schedule, addresses)
    assert len(addresses.arenas) == 3


@pytest.mark.parametrize("seed", range(15))
def test_each_run_of_an_op_has_its_own(seed):
    rng = np.random.default_rng([35, seed])
    graph = random_graph(rng, 12)
    order = graph.input_order.tolist()
    again = [op for op in order if not graph.runs_once[op] and not np.diff(graph.successors[0])[op]]
    problem, schedule = Problem(graph, recompute=True), Schedule.single_device(np.array([*order, *again]))
    addresses = place_schedule(problem, schedule, 4, 0.1)
    verify_addresses(problem, schedule, addresses)
    assert len(addresses.made) == len(order) + len(again)


@pytest.fixture
def solved():
    """Make 10 bytes, read them beside 8 of workspace, view them from byte 2 on, and read the view."""
    notes = Annotations(view_offsets={(2, 0): 2})
    graph = sketch("a -> 10; b: a -> 6 work=8; c: a -> 0@0; d: b c -> 4f", "net", notes)
    problem, schedule = Problem(graph), Schedule.single_device(graph.input_order)
    return problem, schedule, place_schedule(problem, schedule, 4, 0.1)


def test_a_view_starts_within_what_it_is_a_view_of(solved):
    problem, schedule, addresses = solved
    assert addresses.made[2][0] == addresses.made[0][0] + 2
    assert addresses.arenas == (Arena(28, 28),)  # 12 + 8 + 8 while b runs
    verify_addresses(problem, schedule, addresses)


def changed(addresses, step, offset):
    made = [list(own) for own in addresses.made]
    made[step] = [offset]
    return replace(addresses, made=tuple(map(tuple, made)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: changed(a, 1, a.made[0][0]), "at 1, 'b:0' at .* overlaps|at 1, .* overlaps 'b:0'"),
        (lambda a: changed(a, 1, 6), "'b:0' has the offset 6, which is no multiple of 4"),
        (lambda a: changed(a, 3, 28), "'d:0' has the addresses 28 to 32, outside of its arena of 28 bytes"),
        (lambda a: changed(a, 3, -4), "'d:0' has the addresses -4 to 0, outside of its arena"),
        (lambda a: changed(a, 2, a.made[0][0]), "'c:0' has the offset .*, but as a view of 'a:0' it has"),
        (
            lambda a: replace(a, workspace=np.full(4, a.made[0][0])),
            "the workspace of op 'b' .*overlaps|overlaps the work",
        ),
        (lambda a: replace(a, arenas=(Arena(28, 24),)), "claims a bound of 24 bytes, but 28 live at once"),
        (lambda a: replace(a, arenas=(Arena(30, 28),)), "has 30 bytes, which is no multiple of the alignment of 4"),
        (lambda a: replace(a, arenas=()), "addresses for 0 devices and 4 steps, but 1 and 4 are needed"),
        (lambda a: replace(a, made=a.made[:3]), "addresses for 1 devices and 3 steps"),
        (lambda a: replace(a, made=((), *a.made[1:])), "step 1 makes 1 tensors, but 0 have offsets"),
    ],
)
def test_each_way_to_be_wrong(solved, change, message):
    problem, schedule, addresses = solved
    with pytest.raises(ScheduleError, match=message):
        verify_addresses(problem, schedule, change(addresses))


def test_what_is_sent_beside_work_stays_until_it_has_arrived():
    """While x is sent, until 74 us, another op of its device makes y, from 10 us on."""
    graph = sketch("x -> 64 us=10; y -> 64 us=100; z: x -> 0 us=1", "a")
    machine = schedopt.Machine((schedopt.Device("one"), schedopt.Device("two")), 1e6, 0.0, "beside")
    problem = Problem(graph, task="runtime", machine=machine)
    schedule = Schedule.from_steps([0, ~0, 2, 1], [0, 0, 1, 0], [0, 1, 1, 0])
    right = Addresses(64, (Arena(128, 128), Arena(64, 64)), ((0,), (0,), (0,), (64,)), np.zeros(4, np.int64))
    verify_addresses(problem, schedule, right)
    wrong = replace(right, arenas=(Arena(64, 64), Arena(64, 64)), made=((0,), (0,), (0,), (0,)))
    with pytest.raises(ScheduleError, match="overlaps"):
        verify_addresses(problem, schedule, wrong)


def test_a_weight_lies_outside_of_the_arena():
    notes = Annotations(residents=(Resident("w", "parameter", 128, 0, (0, 1)),))
    problem = Problem(sketch("a -> 64 keep=128; b: a -> 64f", "homes", notes), devices=2, replicate=True)
    schedule = Schedule.from_steps([2, 0, ~0, 1], [0, 0, 0, 1], [0, 0, 1, 1])
    right = Addresses(64, (Arena(64, 64), Arena(128, 128)), ((), (0,), (0,), (64,)), np.zeros(4, np.int64))
    verify_addresses(problem, schedule, right)
    with pytest.raises(ScheduleError, match="step 1 makes 0 tensors, but 1 have offsets"):
        verify_addresses(problem, schedule, replace(right, made=((64,), *right.made[1:])))


def test_a_view_beyond_its_buffer_is_refused(solved):
    problem, schedule, _ = solved
    graph = replace(problem.graph, annotations=Annotations(view_offsets={(2, 0): 11}))
    addresses = place_schedule(Problem(graph), schedule, 4, 0.1)
    with pytest.raises(ScheduleError, match="as a view of 'a:0' it has"):
        verify_addresses(Problem(graph), schedule, addresses)
