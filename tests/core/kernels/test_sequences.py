"""Sequences, and their annealing, against plain-Python twins, which price every sequence from its beginning."""

import naive
import pytest
from models.seeds import seeds
from models.sequences import KINDS, SequenceCase
from schedopt import Problem, Schedule
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
