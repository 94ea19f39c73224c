"""The cost model, one step at a time, against a twin that works out what is alive from scratch."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.base.arrays import frozen
from schedopt.core.kernels.cost_model import FINE, NOT_THERE, TimedSteps, device_arrays, new_state, step_through
from schedopt.core.kernels.graph_arrays import graph_arrays
from schedopt.core.problem.problem import Problem

SEEDS = seeds(25, quick=5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("devices", [1, 2, 3, 5])
def test_step_through_prices_every_step(seed, devices):
    rng = np.random.default_rng([seed, devices])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 14)))
    placement, steps = naive.random_steps(rng, plain, devices)
    bandwidth, latency = float(rng.integers(1, 50)) * 1e5, float(rng.integers(0, 4))
    expected = naive.replay(plain, placement, steps, devices, bandwidth=bandwidth, latency=latency)

    items, _, targets = naive.schedule_of(plain, placement, steps)
    arrays = graph_arrays(graph, devices)
    state = new_state(arrays, devices, True)
    state.placement[:] = placement
    memory, (starts, ends) = np.empty(len(items), np.int64), np.empty((2, len(items)))
    columns = TimedSteps(frozen(items, np.int32), frozen(targets, np.int32), starts, ends)
    machine = device_arrays(Problem(graph, devices=devices, bandwidth=bandwidth, latency=latency), devices)
    assert step_through(arrays, machine, state, columns, memory) == (-1, FINE)

    assert memory.tolist() == expected.step_memory
    assert ends.tolist() == pytest.approx(expected.step_end, rel=1e-9)
    assert state.peak.tolist() == expected.peaks
    assert state.clock.tolist() == pytest.approx(expected.clocks, rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_step_through_points_at_the_first_step_without_its_inputs(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, 8, edges=2.0)
    placement, steps = naive.random_steps(rng, plain, 2)
    shuffled = [steps[i] for i in rng.permutation(len(steps))]
    done, first = set(), -1
    for at, step in enumerate(shuffled):
        if step not in naive.runnable(plain, placement, done):
            first = at
            break
        done.add(step)

    items, _, targets = naive.schedule_of(plain, placement, shuffled)
    arrays = graph_arrays(graph, 2)
    state = new_state(arrays, 2, True)
    state.placement[:] = placement
    columns = TimedSteps(frozen(items, np.int32), frozen(targets, np.int32), *np.empty((2, len(items))))
    machine = device_arrays(Problem(graph, devices=2), 2)
    found = step_through(arrays, machine, state, columns, np.empty(len(items), np.int64))
    assert found == ((first, NOT_THERE) if first >= 0 else (-1, FINE))
