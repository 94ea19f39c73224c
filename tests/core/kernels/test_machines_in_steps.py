"""The fast evaluators on machines with blocking transfers, residents and groups, against the verifier."""

from dataclasses import replace

import numpy as np
import pytest
from models.seeds import seeds
from naive.machines import random_graph, random_machine
from schedopt import Machine, Problem
from schedopt.core.kernels.cost_model import NO_STEPS, machine_arrays, new_state, new_steps
from schedopt.core.kernels.metropolis import Walk
from schedopt.core.kernels.placements import incremental_makespan as courses
from schedopt.core.kernels.placements.heads import path_ends
from schedopt.core.kernels.placements.incremental_makespan import anneal_sequence, new_course
from schedopt.core.kernels.placements.incremental_peak import Scale, anneal_lifetimes, new_lifetimes, price_lifetimes
from schedopt.core.kernels.placements.lazy_keys import decode_for_makespan, new_lazy
from schedopt.core.kernels.placements.sequences import NO_GROUPS, Groups, Sequence, places_of, run_sequence
from schedopt.core.kernels.placements.step_moves import Edit, Scene, anneal_steps, new_plan, run_plan
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.search.plans import Plans, as_schedule, objective_of, topological

SEEDS = seeds(40, quick=6)


class Case:
    """A random problem on a fully linked machine with limits, some of its ops together, and a placement of it."""

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng([211, seed])
        graph = random_graph(rng, int(rng.integers(2, 12)), residents=int(rng.integers(0, 3)))
        drawn = random_machine(rng, int(rng.integers(2, 5)), transfers="blocking", limits=True)
        while not any(device.speed for device in drawn.devices):
            drawn = random_machine(rng, 3, transfers="blocking", limits=True)
        count = len(drawn.devices)
        together = ((graph.op_names[0], graph.op_names[-1]),) if seed % 2 else ()
        bandwidth, latency = rng.choice([1e6, 5e5], (count, count)), rng.choice([0.5, 3.0], (count, count))
        latency[0, -1] += 0.25  # never a machine of equal devices, whose residents may stay with their op
        machine = Machine(drawn.devices, bandwidth, latency, together=together)
        self.problem = Problem(graph, "runtime", machine=machine, replicate=seed % 3 == 0)
        roomy = replace(machine, devices=tuple(replace(device, memory=None) for device in machine.devices))
        self.unlimited = replace(self.problem, machine=roomy)
        self.graph, self.ops = self.problem.graph, self.problem.graph.num_ops
        self.arrays, self.machine = machine_arrays(self.problem)
        self.rules, self.plans = self.problem.rules, Plans(self.problem)
        self.state = new_state(self.arrays, count, True)
        self.aim = objective_of(self.problem, bound=100.0)._replace(memory=True)
        first, last = np.sort(rng.choice(self.ops + 1, 2, replace=False)).astype(np.int32)
        self.groups = Groups(rng.permutation(self.ops).astype(np.int32), np.array([first]), np.array([last]))
        self.lazy = new_lazy(self.arrays, self.machine, self.places(NO_GROUPS))
        draws = np.where(self.rules.allowed, rng.random(self.rules.allowed.shape), -1.0)
        self.placement = draws.argmax(axis=1)[self.rules.group].astype(np.int32)
        self.order = self.plans.homes_first(topological(self.plans.graph, rng.permutation(self.ops)))

    def places(self, groups):
        return places_of(self.rules.group, self.rules.allowed, groups, 0.5)

    def sequence(self, aim, order):
        """Run a sequence on the placement that the state holds, and let the verifier price it."""
        steps = new_steps(self.arrays, self.problem.devices)
        count, *cost = run_sequence(self.arrays, self.state, self.lazy.due, order, aim, self.machine, np.inf, steps)
        self.check(self.state.placement, steps, count, cost)
        return cost

    def check(self, placement, steps, count, cost):
        schedule = as_schedule(self.arrays.producer, placement, steps, count)
        costs = simulate(self.problem, schedule)
        verify(self.unlimited, schedule, runtime=costs.runtime)
        _, excess, peak, runtime = cost
        assert runtime == pytest.approx(costs.runtime)
        assert peak == costs.peak
        assert (excess, runtime) == pytest.approx(self.problem.fitness(costs.peak_per_device.tolist(), costs.runtime))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("together", [True, False])
def test_sequences_are_priced_as_verified_after_each_annealing(seed, together, monkeypatch):
    monkeypatch.setattr(courses, "MOST_CELLS", 40 if seed % 3 == 0 else 2**22)  # rows far apart, too
    monkeypatch.setattr(courses, "MOST_READERS", 0 if seed % 5 == 1 else 32)  # sequences just in time that are only run
    case = Case(seed)
    aim = case.aim._replace(together=together)
    case.state.placement[:] = case.placement
    energy, *_ = case.sequence(aim, case.order)
    position, best = np.argsort(case.order).astype(np.int32), np.full(2, np.inf)
    course = new_course(case.arrays, case.graph.input_order, case.machine)
    for memory in (False, True) if together or not course.has_hubs else (True,):
        heeded = aim._replace(memory=memory)
        found = case.order.copy(), case.placement.copy()
        walk = Walk(0.2, case.rng.random((60, 6)), best, found, case.places(case.groups))
        present = Sequence(case.order, position, case.state.placement, np.empty(0, bool))
        energy = anneal_sequence(case.arrays, case.state, course, present, heeded, case.machine, 1e9, walk)
        given = case.arrays, case.state, case.lazy.due, case.order, heeded, case.machine
        cost = run_sequence(*given, np.inf, NO_STEPS)
        assert energy == pytest.approx(cost[1], rel=1e-9)
        case.sequence(aim, case.order)
        assert position[case.order].tolist() == list(range(case.ops))


@pytest.mark.parametrize("seed", SEEDS)
def test_decoded_keys_keep_the_rules(seed):
    case = Case(seed)
    keys = case.rng.random(case.ops + 1, dtype=np.float32)
    decode_for_makespan(case.arrays, case.state, case.lazy, keys, case.machine)
    case.sequence(case.aim, case.lazy.order)


@pytest.mark.parametrize("seed", SEEDS)
def test_lists_of_steps_are_priced_as_verified_after_annealing(seed):
    case = Case(seed)
    least = case.machine.times.min(axis=1)
    tail = path_ends(case.graph.input_order[::-1], *case.graph.successors, least) - least
    sent = np.empty(case.graph.num_tensors, np.uint64)
    scene = Scene(case.arrays, case.state, sent, case.machine, least, tail, float(least.sum()))
    present, other, best = (new_plan(case.arrays, case.problem.devices) for _ in range(3))
    case.state.placement[:] = case.placement
    present.items[: case.ops] = case.order
    nowhere = Edit(np.int64(-1), -1)
    count, energy, *_ = run_plan(scene, present, case.ops, nowhere, case.aim, np.inf, other)
    present, other = other, present
    kept = best, case.placement.copy()
    walk = Walk(0.2, case.rng.random((80, 6)), np.full(2, np.inf), kept, case.places(case.groups))
    count, energy, _ = anneal_steps(scene, (present, other), (count, energy, 0), case.aim, walk)
    again, cost, *rest = run_plan(scene, present, count, nowhere, case.aim, np.inf, other)
    assert (again, cost) == (count, pytest.approx(energy, rel=1e-9))
    case.check(case.state.placement, other, count, (cost, *rest))


@pytest.mark.parametrize("seed", SEEDS)
def test_lifetimes_after_moves_are_those_of_pricing_anew(seed):
    case = Case(seed)
    devices = case.problem.devices
    lifetimes = new_lifetimes(case.arrays, case.machine)
    late = case.rng.random(case.graph.num_tensors * devices) < 0.5
    position = np.argsort(case.order).astype(np.int32)
    present = Sequence(case.order, position, case.placement, late)
    scale = Scale(20.0, 300.0, case.rng.choice([1.0, 2.0], devices))
    _, peak = price_lifetimes(case.arrays, lifetimes, present, scale)
    found = Sequence(*(array.copy() for array in present))
    kept = [lifetimes.changes.amount, lifetimes.persistent, lifetimes.end, *lifetimes.present]
    for temperature in (10.0, 0.1):
        walk = Walk(temperature, case.rng.random((100, 6)), np.array([0.0, peak]), found, case.places(NO_GROUPS))
        anneal_lifetimes(case.arrays, lifetimes, present, scale, case.machine.first_home, walk)
        peak = walk.found[1]
        known = [array.copy() for array in kept]
        price_lifetimes(case.arrays, lifetimes, present, scale)
        assert all(np.allclose(array, before, rtol=1e-9, atol=0) for array, before in zip(kept, known, strict=True))
    found.position[found.order] = np.arange(case.ops)
    assert price_lifetimes(case.arrays, lifetimes, found, scale)[1] == peak, "the best is as good as it says"
    late[:] = True
    even = Scale(0.0, 300.0, np.empty(0))
    _, least = price_lifetimes(case.arrays, lifetimes, present, even)
    case.state.placement[:] = case.placement
    peak = case.sequence(case.aim._replace(together=False), case.order)[2]
    fixed = np.bincount(case.placement, case.arrays.persistent, devices).max()
    assert max(least, fixed) == peak, "those of late transfers are those of a sequence just in time"
