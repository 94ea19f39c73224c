"""Least peak on several devices: lifetimes, their annealing and the placement beam against plain-Python twins."""

import naive
import numpy as np
import pytest
from schedopt.core.costs.simulator import simulate
from schedopt.core.costs.verifier import verify
from schedopt.core.kernels.graph_arrays import graph_arrays
from schedopt.core.kernels.several_devices.lifetimes import (
    anneal_lifetimes,
    new_lifetimes,
    price_lifetimes,
    read_delays,
    write_steps,
)
from schedopt.core.kernels.several_devices.placement_beam import (
    extend_beam,
    new_choices,
    new_route,
    new_states,
    start_beam,
    trace_beam,
)
from schedopt.core.problem import Problem
from schedopt.core.solve import solve
from schedopt.core.solvers.several_devices.lazy_keys import as_schedule

SEEDS = range(30)
ODD = np.uint64(2) * np.arange(10**6, 10**6 + 8, dtype=np.uint64) ** np.uint64(3) + np.uint64(1)


class Sequence:
    """A random graph, order, placement and delays; the delays of half of them are all 1."""

    def __init__(self, seed, devices, most_ops=12):
        self.rng = rng = np.random.default_rng([110, seed, devices])
        self.graph, self.plain = naive.random_graph(rng, int(rng.integers(1, most_ops)))
        self.devices = devices
        self.order = naive.random_order(rng, self.plain)
        self.placement = rng.integers(0, devices, self.graph.num_ops).tolist()
        self.delay = rng.random((self.graph.num_tensors, devices), dtype=np.float32)
        if seed % 2:
            self.delay[:] = 1
        self.arrays = graph_arrays(self.graph)

    def scratch(self):
        order, position = np.array(self.order, np.int32), np.empty(len(self.order), np.int32)
        position[order] = np.arange(len(order))
        placement = np.array(self.placement, np.int32)
        lifetimes = new_lifetimes(self.arrays, self.devices)
        return self.arrays, lifetimes, order, position, placement, self.delay.ravel().copy(), self.devices


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("devices", [1, 2, 3, 5])
def test_lifetimes(seed, devices):
    case = Sequence(seed, devices)
    expected = naive.lifetimes_cost(case.plain, case.order, case.placement, case.delay, devices, 50.0)
    energy, peak = price_lifetimes(*case.scratch(), 50.0, np.inf)
    assert energy == pytest.approx(expected[0], rel=1e-9)
    assert peak == expected[1]
    if energy > 0:
        assert price_lifetimes(*case.scratch(), 50.0, energy * 0.999)[0] == np.inf


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("devices", [2, 3])
def test_lifetimes_are_those_of_a_schedule(seed, devices):
    case = Sequence(seed, devices)
    after = naive.sent_after(case.plain, case.order, case.placement, case.delay)
    steps = []
    for at, op in enumerate(case.order):
        steps += [op, *(send for send, place in after.items() if place == at)]
    run = naive.replay(case.plain, case.placement, steps, devices)
    _, peak = price_lifetimes(*case.scratch(), 50.0, np.inf)
    fixed = [sum(p for op, p in enumerate(case.plain.persistent) if case.placement[op] == d) for d in range(devices)]
    assert peak <= max(run.peaks)
    if seed % 2:
        assert max(peak, *fixed) == max(run.peaks)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_transfers_are_listed_and_read_back(seed, devices):
    case = Sequence(seed, devices)
    cells, after = np.empty((2, case.graph.num_tensors * devices), np.int32)
    arguments = case.scratch()
    count = write_steps(*arguments, cells, after)
    found = {(*divmod(c, devices), a) for c, a in zip(cells[:count].tolist(), after[:count].tolist(), strict=True)}
    sent = naive.sent_after(case.plain, case.order, case.placement, case.delay)
    assert found == {(case.plain.index[t], target, place) for (t, target), place in sent.items()}

    place_of_cell = np.zeros(case.graph.num_tensors * devices, np.int32)
    place_of_cell[cells[:count]] = after[:count]
    delay = np.full(case.graph.num_tensors * devices, np.nan, np.float32)
    read_delays(*arguments[:5], delay, devices, place_of_cell)
    again = np.empty_like(after)
    assert write_steps(*arguments[:5], delay, devices, cells, again) == count
    assert again[:count].tolist() == after[:count].tolist()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_annealing_of_lifetimes(seed, devices):
    case = Sequence(seed, devices)
    draws = case.rng.random((40, 6))
    draws[::3, 5] /= 10
    expected = naive.anneal_lifetimes(case.plain, case.order, case.placement, case.delay, devices, 50.0, 0.5, draws)
    arguments = case.scratch()
    energy, start = price_lifetimes(*arguments, 50.0, np.inf)
    found = [a.copy() for a in (arguments[2], arguments[4], arguments[5])]
    energy, peak = anneal_lifetimes(*arguments, 50.0, 0.5, draws, energy, start, *found)
    order, placement, delay, expected_energy, expected_peak = expected
    assert arguments[2].tolist() == order
    assert arguments[3][order].tolist() == list(range(len(order)))
    assert arguments[4].tolist() == placement
    assert arguments[5].tolist() == delay.ravel().tolist()
    assert energy == pytest.approx(expected_energy, rel=1e-9)
    assert peak == expected_peak
    order, position = found[0], np.argsort(found[0]).astype(np.int32)
    best = price_lifetimes(case.arrays, arguments[1], order, position, *found[1:], devices, 50.0, np.inf)
    assert best[1] == peak


def beam(graph, order, devices, limit, size):
    """The schedule that the beam finds, or None."""
    arrays = graph_arrays(graph)
    route, slots = new_route(arrays, np.array(order, np.int32))
    states, choices = new_states(size, slots, devices), new_choices(size, graph.num_ops, devices)
    dead = np.empty(graph.num_tensors, np.int32)
    limits = limit, int(graph.persistent.sum()) // devices
    start_beam(arrays, route, slots, states)
    count, half = 1, graph.num_ops // 2
    for first, last in ((0, half), (half, graph.num_ops)):
        scratch = arrays, route, slots, states, choices, size
        count, expanded = extend_beam(*scratch, *limits, ODD, dead, first, last, count)
        assert 0 <= expanded <= size * (last - first)
        if count == 0:
            return None
    items, targets = np.empty((2, graph.num_ops + graph.num_tensors * devices), np.int32)
    steps = trace_beam(arrays, route, slots, states, choices, *limits, dead, count, items, targets)
    items, targets = items[:steps], targets[:steps]
    placement = np.empty(graph.num_ops, np.int32)
    placement[items[items >= 0]] = targets[items >= 0]
    return as_schedule(arrays.producer, placement, items, targets)


@pytest.mark.parametrize("seed", range(60))
def test_a_wide_beam_finds_a_placement_when_its_rules_allow_one(seed):
    rng = np.random.default_rng([111, seed])
    devices = 2 + seed % 2
    graph, plain = naive.random_graph(rng, int(rng.integers(2, 8)))
    order = naive.random_order(rng, plain)
    one = naive.order_peak(plain, order)
    for part in (0.5, 0.7, 0.8, 0.9, 1.0):
        limit = int(one * part)
        schedule = beam(graph, order, devices, limit, 3**8)
        fits = any(naive.placements_under(plain, order, devices, limit))
        assert (schedule is not None) <= fits
        # With persistent bytes equal states may differ in how much more these may grow.
        assert (schedule is not None) == fits or any(plain.persistent)
        if schedule is not None:
            problem = Problem(graph, "memory", devices, limit)
            simulation = simulate(problem, schedule)
            assert simulation.peak <= limit
            verify(problem, schedule)
            assert schedule.op_order().tolist() == order


@pytest.mark.parametrize("seed", SEEDS)
def test_on_one_device_the_beam_fits_as_the_order_does(seed):
    rng = np.random.default_rng([112, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 20)))
    order = naive.random_order(rng, plain)
    peak = naive.order_peak(plain, order)
    assert beam(graph, order, 1, peak, 4) is not None
    assert beam(graph, order, 1, peak - 1, 4) is None


@pytest.mark.parametrize("seed", range(20))
def test_narrow_beams_keep_the_limit_too(seed):
    rng = np.random.default_rng([113, seed])
    graph, plain = naive.random_graph(rng, 60)
    order = naive.random_order(rng, plain)
    problem = Problem(graph, "memory", 4)
    limit = naive.order_peak(plain, order)
    while (schedule := beam(graph, order, 4, limit, 8)) is not None:
        peak = simulate(problem, schedule).peak
        assert peak <= limit
        limit = peak - 1
    assert limit < naive.order_peak(plain, order)


@pytest.mark.parametrize("seed", range(20))
def test_the_optimum_on_small_graphs(seed):
    rng = np.random.default_rng([114, seed])
    graph, plain = naive.random_graph(rng, 5, aliases=bool(seed % 2))
    _, optimum = naive.best_schedule(plain, 2, "memory")
    result = solve(Problem(graph, "memory", 2), "auto", evaluations=3000, seed=seed)
    assert optimum <= result.value <= 1.1 * optimum
    assert result.lower_bound <= optimum
