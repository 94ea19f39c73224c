"""Sequences, and their annealing, against plain-Python twins, which price every sequence from its beginning."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.sequences import KINDS, SequenceCase
from schedopt import Problem, Schedule
from schedopt.core.kernels.metropolis import Walk
from schedopt.core.kernels.placements import incremental_makespan as courses
from schedopt.core.kernels.placements.incremental_makespan import SWAPPED, anneal_sequence, new_course
from schedopt.core.kernels.placements.sequences import Sequence
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify

SEEDS = seeds(40, quick=8)
DEVICES = (1, 2, 3, 5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_run_sequence_sends_late_and_prices_its_steps(seed, kind):
    devices = DEVICES[seed // 2 % 4]
    case = SequenceCase(seed, devices)
    order, placement = case.random_sequence()
    aim = case.aim(kind)
    steps = naive.sequence_steps(case.plain, order, placement, aim.together)
    columns = naive.schedule_of(case.plain, placement, steps)
    (count, energy, excess, *values), items, targets = case.run(order, placement, aim)
    assert count == len(steps)
    assert items.tolist() == columns[0]
    assert targets.tolist() == columns[2]
    assert [energy, *values] == pytest.approx(case.cost(aim)(order, placement), rel=1e-9)
    assert excess == max(0, values[0] - case.limit)

    problem = Problem(case.graph, "runtime", devices, None, *case.costs.values())
    simulation = simulate(problem, Schedule.from_steps(*columns))
    verify(problem, Schedule.from_steps(*columns), runtime=simulation.runtime)
    assert values[1] == simulation.runtime
    assert not aim.memory or values[0] == simulation.peak


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS[1:])
def test_annealing_of_sequences(seed, kind, monkeypatch):
    devices, temperature = DEVICES[seed // 4 % 4], (0.5, 0.02)[seed // 2 % 2]
    monkeypatch.setattr(courses, "MOST_CELLS", 40 if seed % 3 == 0 else 2**22)  # rows far apart, too
    monkeypatch.setattr(courses, "MOST_READERS", 0 if seed % 5 == 1 else 32)  # sequences just in time that are only run
    case = SequenceCase(seed, devices, most_ops=24)
    aim = case.aim(kind)
    order, placement = case.random_sequence()
    draws, groups = case.draws_and_groups(80, with_groups=seed % 4 > 1)
    start = case.cost(aim)(order, placement)[0]
    walk = naive.Walk(aim, case.cost(aim), start, case.limit)
    swapped = 0.0 if case.costs and devices > 1 else SWAPPED
    expected = naive.anneal_sequence(case.plain, walk, order, placement, devices, temperature, draws, swapped, groups)

    present, position = np.array(order, np.int32), np.empty(len(order), np.int32)
    position[present] = np.arange(len(order))
    case.state.placement[:] = placement
    best, best_order, best_placement = np.full(2, np.inf), present.copy(), case.state.placement.copy()
    course, energy = new_course(case.arrays, case.graph.input_order, case.machine), start
    sequence = Sequence(present, position, case.state.placement, np.empty(0, bool))
    for half in (draws[:50], draws[50:]):
        moves = Walk(temperature, half, best, (best_order, best_placement), case.grouped(groups))
        energy = anneal_sequence(case.arrays, case.state, course, sequence, aim, case.machine, energy, moves)
    assert (present.tolist(), case.state.placement.tolist()) == expected
    assert position[present].tolist() == list(range(len(order)))
    assert energy == pytest.approx(walk.energy, rel=1e-9)
    if walk.best < (0, case.cost(aim)(order, placement)[2]):
        assert tuple(best) == pytest.approx(walk.best, rel=1e-9)
        assert (best_order.tolist(), best_placement.tolist()) == walk.found
