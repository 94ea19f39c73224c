"""Timelines: what is alive at each step adds up to what the simulator and the verifier say is there."""

from functools import partial

import numpy as np
import pytest
from models.small_graphs import sketch
from models.timelines import input_timeline, random_timeline
from schedopt.core.model.timeline import freed_after
from schedopt.core.model.verifier import Replay

drawn = partial(random_timeline, 620, ops=None)

SEEDS = range(12)


def columns(schedule):
    return zip(schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist(), strict=True)


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_alive_adds_up_to_the_memory_of_every_step(seed, devices):
    timeline = drawn(seed, devices)
    graph = timeline.problem.graph
    for step, (item, _, target) in enumerate(columns(timeline.schedule)):
        for device in range(devices):
            alive = timeline.persistent[device] + sum(h.size for h in timeline.alive(step, device))
            workspace = graph.workspace[item] if item >= 0 and device == target else 0
            assert alive + workspace == timeline.memory(device)[step]
        assert timeline.memory(target)[step] == timeline.simulation.step_memory[step]
    peaks = [int(timeline.memory(device).max()) for device in range(devices)]
    assert peaks == timeline.simulation.peak_per_device.tolist()
    assert timeline.memory(timeline.fullest_device)[timeline.peak_step] == timeline.simulation.peak


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_memory_is_what_the_verifier_has_resident(seed, devices):
    timeline = drawn(seed, devices)
    found = Replay(timeline.problem, timeline.schedule).run()
    memory = [timeline.memory(device) for device in range(devices)]
    assert [memory[device][step] for step, device in enumerate(timeline.schedule.targets.tolist())] == found.steps
    assert [int(held.max()) for held in memory] == found.peaks
    for step, freed in enumerate(freed_after(timeline.problem, timeline.schedule)):
        assert set(freed) == found.freed[step]


def members_of(timeline, holding):
    """Return the tensors that share a holding's bytes: views of it, and of views, that are made on its device."""
    graph, placement = timeline.problem.graph, timeline.schedule.placement(timeline.problem.graph)
    members = {holding.tensor}
    for _ in range(graph.num_tensors):
        for tensor in np.flatnonzero(placement[graph.tensor_producer] == holding.device).tolist():
            if int(graph.alias_of[tensor]) in members:
                members.add(tensor)
    return members


@pytest.mark.parametrize("seed", SEEDS)
def test_a_holding_lasts_until_nothing_reads_or_extends_it(seed):
    timeline = drawn(seed, 3)
    graph, steps = timeline.problem.graph, list(columns(timeline.schedule))
    for holding in timeline.holdings:
        members, readers, uses = members_of(timeline, holding), [], [holding.first]
        for step, (item, source, target) in enumerate(steps):
            if item >= 0 and target == holding.device:
                reads = set(graph.read_tensor[graph.read_ptr[item] : graph.read_ptr[item + 1]].tolist())
                readers += [step] * bool(reads & members)
                uses += [step] * bool(set(graph.outputs(item)) & members)
            elif item < 0 and source == holding.device:
                readers += [step] * (~item in members)
        assert list(holding.readers) == readers
        assert holding.last == (len(steps) - 1 if holding.is_final else max(readers + uses))


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_over_time_keeps_the_peak_and_ends_with_the_results(seed):
    for timeline in (drawn(seed, 2), drawn(seed, 3, latency=1.0)):
        for device in range(timeline.problem.devices):
            times, memory = timeline.memory_over_time(device)
            assert np.all(np.diff(times) >= 0)
            assert memory.max() == max(timeline.simulation.peak_per_device[device], timeline.persistent[device])
            kept = sum(h.size for h in timeline.holdings if h.device == device and h.is_final)
            assert memory[-1] == timeline.persistent[device] + kept


def test_by_hand_with_a_view_and_a_result():
    graph = sketch("a -> 10 keep=5; view: a -> 10@0; b: view -> 3f work=2; c: b -> 1", "hand")
    timeline = input_timeline(graph)
    assert [tuple(holding) for holding in timeline.holdings] == [
        (0, 0, 10, 0, 2, False, (1, 2), (0, 1)),
        (2, 0, 3, 2, 3, True, (3,), (2,)),
        (3, 0, 1, 3, 3, False, (), (3,)),
    ]
    assert timeline.memory(0).tolist() == [15, 15, 20, 9]
    assert timeline.memory_after(0).tolist() == [15, 15, 8, 8]
    assert (timeline.peak_step, timeline.step_name(2)) == (2, "b")
    assert [column.tolist() for column in timeline.times] == [[0, 1, 2, 3], [1, 2, 3, 4]]  # nothing takes any time
