"""Moves of single steps against their plain-Python twins."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.sequences import KINDS, SequenceCase
from naive.step_moves import mended, moved, plan_cost
from schedopt import Problem, Schedule
from schedopt.core.kernels.placements.step_moves import Edit, Scene, new_plan, run_plan
from schedopt.core.model.verifier import verify
from schedopt.core.solvers.placements.chromosomes import bottom_levels

SEEDS = seeds(24, quick=6)
NO_EDIT = Edit(np.int64(-1), -1)


class PlanCase(SequenceCase):
    """A random schedule of a random graph, and the kernels' scratch for lists of steps."""

    def __init__(self, seed, devices):
        super().__init__(seed, devices)
        self.placement, self.steps = naive.random_steps(self.rng, self.plain, devices)
        self.plans = new_plan(self.arrays, devices), new_plan(self.arrays, devices)

    @property
    def scene(self):
        sent, runtime = np.empty(self.graph.num_tensors, np.uint64), self.graph.runtime.copy()
        tail = bottom_levels(self.graph) - runtime
        return Scene(self.arrays, self.state, sent, self.machine, runtime, tail, float(runtime.sum()))

    def write(self, plan, steps, placement):
        items, _, targets = naive.schedule_of(self.plain, placement, steps)
        plan.items[: len(steps)], plan.targets[: len(steps)] = items, targets
        for op in self.plain.ops:
            plan.place[op] = steps.index(op)

    def price(self, aim):
        def price(steps, placement):
            energy, peak, runtime = plan_cost(self.plain, steps, placement, self.devices, aim, **self.costs)
            return energy, peak if aim.memory else 0, runtime

        return price

    def run(self, aim, edit=NO_EDIT, bar=np.inf):
        return run_plan(self.scene, self.plans[0], len(self.steps), edit, aim, bar, self.plans[1])

    def read(self, count, plan, placement):
        columns = plan.items[:count].tolist(), plan.targets[:count].tolist()
        moved = zip(*columns, strict=True)
        return [item if item >= 0 else (self.plain.tensors[~item], target) for item, target in moved]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_run_plan_mends_and_prices_what_an_edit_makes(seed, kind):
    """A step goes anywhere after the inputs of an op, and the placement changes besides."""
    devices = 1 + seed % 3
    case = PlanCase(seed, devices)
    case.write(case.plans[0], case.steps, case.placement)
    aim = case.aim(kind)
    placement = [d if case.rng.random() < 0.7 else int(case.rng.integers(devices)) for d in case.placement]
    here = int(case.rng.integers(len(case.steps)))
    first, last = 0, len(case.steps)
    if not isinstance(case.steps[here], tuple):
        first = max((case.steps.index(v) + 1 for v in case.plain.before[case.steps[here]]), default=0)
        last = min((case.steps.index(v) for v in case.plain.after[case.steps[here]]), default=last)
    before = int(case.rng.integers(first, last + 1))
    case.state.placement[:] = placement
    count, energy, _, *values = case.run(aim, Edit(np.int64(here), before))
    values = [energy, *values]
    expected = mended(case.plain, moved(case.steps, here, before), placement)
    assert case.read(count, case.plans[1], placement) == expected
    assert case.plans[1].place.tolist() == [expected.index(op) for op in case.plain.ops]
    assert values == pytest.approx(case.price(aim)(expected, placement), rel=1e-9)
    schedule = Schedule.from_steps(*naive.schedule_of(case.plain, placement, expected))
    verify(Problem(case.graph, "runtime", devices, None, *case.costs.values()), schedule, runtime=values[2])
