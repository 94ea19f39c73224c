"""The placement beam against every placement that its rules allow."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt import Problem
from schedopt.core.kernels.cost_model import new_steps
from schedopt.core.kernels.graph_arrays import graph_arrays
from schedopt.core.kernels.placements.placement_beam import (
    Limits,
    extend_beam,
    new_choices,
    new_route,
    new_states,
    start_beam,
    trace_beam,
)
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.search.plans import as_schedule

ODD = np.uint64(2) * np.arange(10**6, 10**6 + 8, dtype=np.uint64) ** np.uint64(3) + np.uint64(1)


def beam(graph, order, devices, limit, size):
    """The schedule that the beam finds, or None."""
    arrays = graph_arrays(graph, devices)
    route, slots = new_route(arrays, np.array(order, np.int32))
    states, choices = new_states(size, slots, devices), new_choices(size, graph.num_ops, devices)
    choices.numbers[:] = ODD
    limits = Limits(size, np.full(devices, limit), int(graph.persistent.sum()) // devices, True)
    start_beam(arrays, route, states)
    count, half = 1, graph.num_ops // 2
    for first, last in ((0, half), (half, graph.num_ops)):
        count, expanded = extend_beam(arrays, route, states, choices, limits, first, last, count)
        assert 0 <= expanded <= size * (last - first)
        if count == 0:
            return None
    written = new_steps(arrays, devices)
    steps = trace_beam(arrays, route, states, choices, limits, count, written)
    items, targets = written.items[:steps], written.targets[:steps]
    placement = np.empty(graph.num_ops, np.int32)
    placement[items[items >= 0]] = targets[items >= 0]
    return as_schedule(arrays.producer, placement, written, steps)


@pytest.mark.parametrize("seed", seeds(60, quick=4))
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
