"""The cost model, one step at a time, against a twin that works out what is alive from scratch."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.base.arrays import frozen
from schedopt.core.graph.builder import GraphBuilder
from schedopt.core.kernels.cost_model import Steps, new_state, step_through
from schedopt.core.kernels.graph_arrays import graph_arrays
from schedopt.core.kernels.links import Links
from schedopt.core.model.simulator import simulate
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule

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
    memory, ends = np.empty(len(items), np.int64), np.empty(len(items))
    columns = Steps(frozen(items, np.int32), frozen(targets, np.int32))
    wrong = step_through(arrays, state, columns, Links(devices, latency, 1e6 / bandwidth), memory, ends)

    assert wrong == -1
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
    scratch = np.empty(len(items), np.int64), np.empty(len(items))
    columns = Steps(frozen(items, np.int32), frozen(targets, np.int32))
    assert step_through(arrays, state, columns, Links(2, 0.0, 0.0), *scratch) == first


def test_sixty_four_devices_use_every_bit_of_the_target_set():
    """One tensor read on 63 other devices: 63 transfers, each counted once."""
    builder = GraphBuilder("star")
    builder.add_op("source", outputs=[10], runtime=1.0)
    for reader in range(63):
        builder.add_op(f"reader{reader}", inputs=[(0, 0)], outputs=[1], runtime=1.0)
    graph = builder.build()
    plain = naive.plain_of(graph)
    placement = list(range(64))
    steps = [0]
    while choices := naive.runnable(plain, placement, set(steps)):
        steps.append(choices[-1])
    assert len(steps) == 1 + 63 + 63
    expected = naive.replay(plain, placement, steps, 64, latency=0.25)
    result = simulate(
        Problem(graph, devices=64, latency=0.25),
        Schedule.from_steps(*naive.schedule_of(plain, placement, steps)),
    )
    assert result.peak_per_device.tolist() == expected.peaks == [10] + [11] * 63
    assert result.clock_per_device.tolist() == expected.clocks
