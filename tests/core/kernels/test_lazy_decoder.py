"""The lazy decoder, sequences and their annealing against their plain-Python twins; BRKGA on lazy keys."""

from itertools import pairwise

import naive
import numpy as np
import pytest
from schedopt.core.costs.simulator import simulate
from schedopt.core.costs.verifier import verify
from schedopt.core.kernels.cost_model import new_state
from schedopt.core.kernels.graph_arrays import graph_arrays
from schedopt.core.kernels.several_devices.lazy_decoder import anneal_keys, arrange, new_lazy
from schedopt.core.kernels.several_devices.memory_greedy import spread
from schedopt.core.kernels.several_devices.sequences import Aim, anneal_sequence, new_due, run_sequence
from schedopt.core.problem import Problem
from schedopt.core.schedule import Schedule
from schedopt.core.search.search import Search
from schedopt.core.solve import solve
from schedopt.core.solvers.several_devices.lazy_keys import LazyChromosomes, bottom_levels

SEEDS = range(25)
NOTHING = np.empty(0, np.int32)


class Case:
    """A random graph, links (free or paid) and the kernels' scratch."""

    def __init__(self, seed, devices, most_ops=14):
        self.rng = rng = np.random.default_rng([97, seed, devices])
        # Whole runtimes and a quarter of a microsecond: sums are exact, so twins break ties alike.
        self.graph, self.plain = naive.random_graph(rng, int(rng.integers(1, most_ops)), whole_runtimes=True)
        pointers, tensors = (a.tolist() for a in self.graph.inputs)
        self.plain.inputs = [[self.plain.tensors[t] for t in tensors[a:b]] for a, b in pairwise(pointers)]
        self.devices = devices
        self.links = {"bandwidth": 1e6, "latency": 0.25} if seed % 2 else {}
        self.arrays = graph_arrays(self.graph)
        self.state = new_state(self.arrays, devices, True)
        self.due, self.lazy = new_due(self.arrays, devices), new_lazy(self.arrays, devices)
        self.costs = (0.25, 1.0) if seed % 2 else (0.0, 0.0)

    def keys(self):
        keys = self.rng.random(self.graph.num_ops + 1, dtype=np.float32)
        return np.floor(keys * 4).astype(np.float32) / 4 if self.rng.random() < 0.5 else keys

    def aim(self, kind):
        return {
            "peak": Aim(True, 50.0, 0.0, 0.0, True, False, 60),
            "makespan": Aim(False, 1.0, 0.01, 0.0, False, True, 2**62),
            "limited": Aim(False, 40.0, 0.01, 10.0, True, True, 40),
            "limited, just in time": Aim(False, 40.0, 0.01, 10.0, True, False, 40),
        }[kind]

    def random_sequence(self):
        placement = self.rng.integers(0, self.devices, self.graph.num_ops).tolist()
        return naive.random_order(self.rng, self.plain), placement

    def cost(self, aim):
        def price(order, placement):
            energy, peak, runtime = naive.sequence_cost(self.plain, order, placement, self.devices, aim, **self.links)
            return energy, peak if aim.memory else 0, runtime

        return price

    def run(self, order, placement, aim, bar=np.inf, record=True):
        self.state.placement[:] = placement
        most = self.graph.num_ops + self.graph.num_tensors * self.devices if record else 0
        items, targets = np.empty(most, np.int32), np.empty(most, np.int32)
        order = np.array(order, np.int32)
        out = run_sequence(
            self.arrays, self.state, self.due, order, aim, self.devices, *self.costs, bar, items, targets
        )
        return out, items[: out[0]], targets[: out[0]]


KINDS = ("peak", "makespan", "limited", "limited, just in time")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("devices", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_run_sequence_sends_late_and_prices_its_steps(seed, devices, kind):
    case = Case(seed, devices)
    order, placement = case.random_sequence()
    aim = case.aim(kind)
    steps = naive.sequence_steps(case.plain, order, placement, aim.together)
    columns = naive.schedule_of(case.plain, placement, steps)
    (count, *values), items, targets = case.run(order, placement, aim)
    assert count == len(steps)
    assert items.tolist() == columns[0]
    assert targets.tolist() == columns[2]
    assert values == pytest.approx(case.cost(aim)(order, placement), rel=1e-9)

    problem = Problem(case.graph, "runtime", devices, None, *case.links.values())
    simulation = simulate(problem, Schedule.from_steps(*columns))
    verify(problem, Schedule.from_steps(*columns), runtime=simulation.runtime)
    assert values[2] == simulation.runtime
    assert not aim.memory or values[1] == simulation.peak


@pytest.mark.parametrize("seed", SEEDS)
def test_run_sequence_gives_up_above_the_bar(seed):
    case = Case(seed, 3)
    order, placement = case.random_sequence()
    aim = case.aim("peak")
    energy = case.cost(aim)(order, placement)[0]
    assert case.run(order, placement, aim, energy * 1.0001, record=False)[0][1] == pytest.approx(energy)
    if energy > 0:
        assert case.run(order, placement, aim, energy * 0.9999, record=False)[0][1] == np.inf


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("devices", [1, 2, 3, 5])
def test_arrange(seed, devices):
    case = Case(seed, devices, 20)
    keys = case.keys()
    if seed % 4 == 1:
        keys[-1] = 0.0
    arrange(case.arrays, case.state, case.lazy, case.due, keys, devices, *case.costs)
    order, placement = naive.arrange(case.plain, naive.as_floats(keys), devices, **case.links)
    assert case.lazy.order.tolist() == order
    assert case.state.placement.tolist() == placement


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("devices", [1, 2, 3, 5])
def test_spread(seed, devices):
    case = Case(seed, devices, 20)
    keys, z = case.keys(), case.lazy
    if seed % 3 == 0:
        keys[-1] = 0
    placement = case.state.placement
    spread(
        case.arrays, keys, keys[-1], devices, z.pending, z.left, case.due.sent, z.resident, z.ready, z.order, placement
    )
    expected = naive.spread(case.plain, naive.as_floats(keys), devices)
    assert (z.order.tolist(), placement.tolist()) == expected


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_annealing_of_sequences(seed, devices, kind):
    case = Case(seed, devices)
    aim = case.aim(kind)
    order, placement = case.random_sequence()
    draws = case.rng.random((40, 5))
    start = case.cost(aim)(order, placement)[0]
    walk = naive.Walk(aim, case.cost(aim), start)
    expected = naive.anneal_sequence(case.plain, walk, order, placement, devices, 0.5, 0.01, draws)

    present, position = np.array(order, np.int32), np.empty(len(order), np.int32)
    position[present] = np.arange(len(order))
    case.state.placement[:] = placement
    best, best_order, best_placement = np.full(2, np.inf), present.copy(), case.state.placement.copy()
    scratch = case.arrays, case.state, case.due, present, position, aim, devices, *case.costs
    energy = anneal_sequence(*scratch, 0.5, 0.01, draws, start, best, best_order, best_placement, NOTHING)
    assert (present.tolist(), case.state.placement.tolist()) == expected
    assert position[present].tolist() == list(range(len(order)))
    assert energy == pytest.approx(walk.energy, rel=1e-9)
    assert tuple(best) == pytest.approx(walk.best, rel=1e-9)
    assert walk.found is None or (best_order.tolist(), best_placement.tolist()) == walk.found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_annealing_of_keys(seed, kind):
    devices = 1 + seed % 4
    case = Case(seed, devices)
    aim, keys = case.aim(kind), case.keys()
    draws = case.rng.random((30, 6))

    def decode(values):
        floats = naive.as_floats(values)
        return (
            naive.spread(case.plain, floats, devices)
            if aim.is_peak
            else naive.arrange(case.plain, floats, devices, **case.links)
        )

    start = case.cost(aim)(*decode(keys))[0]
    walk = naive.Walk(aim, case.cost(aim), start)
    expected = naive.anneal_keys(walk, keys.copy(), decode, sum(case.costs) > 0, 0.5, 0.01, draws)
    best, found = np.full(2, np.inf), (np.empty(len(keys) - 1, np.int32), np.empty(len(keys) - 1, np.int32))
    scratch = case.arrays, case.state, case.lazy, case.due, keys, aim, devices, *case.costs
    energy = anneal_keys(*scratch, 0.5, 0.01, draws, start, best, *found, NOTHING)
    assert keys.tolist() == expected.tolist()
    assert energy == pytest.approx(walk.energy, rel=1e-9)
    assert tuple(best) == pytest.approx(walk.best, rel=1e-9)
    assert walk.found is None or tuple(f.tolist() for f in found) == walk.found


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("task", ["memory", "runtime"])
@pytest.mark.parametrize("limit", [None, 60])
def test_lazy_chromosomes_are_priced_as_they_decode(seed, task, limit):
    case = Case(seed, 1 + seed % 5)
    problem = Problem(case.graph, task, case.devices, limit, *case.links.values())
    chromosomes = LazyChromosomes(Search(problem))
    population = case.rng.random((5, chromosomes.genes), dtype=np.float32)
    fitness = chromosomes.price(population)
    for row, keys in zip(fitness, population, strict=True):
        schedule = chromosomes.decode(keys)
        simulation = simulate(problem, schedule)
        verify(problem, schedule, runtime=simulation.runtime, enforce_limit=False)
        assert tuple(row) == problem.fitness(simulation.peak, simulation.runtime)


def test_bottom_levels_are_longest_paths():
    graph, plain = naive.random_graph(np.random.default_rng(98), 25)

    def level(op):
        return plain.runtime[op] + max((level(v) for v in plain.after[op]), default=0.0)

    assert bottom_levels(graph).tolist() == pytest.approx([level(op) for op in plain.ops])


@pytest.mark.parametrize("devices", [2, 64])
@pytest.mark.parametrize("task", ["memory", "runtime"])
@pytest.mark.parametrize("method", ["annealing", "auto", "brkga:decoder=lazy"])
def test_the_budget_is_spent_exactly_and_seeds_repeat(devices, task, method):
    graph, _ = naive.random_graph(np.random.default_rng(99), 60)
    problem = Problem(graph, task, devices, 150, 1e6, 3.0)
    for evaluations in (1, 6, 777):
        results = [solve(problem, method, evaluations=evaluations, seed=5, jobs=jobs) for jobs in (1, 2)]
        columns = [(r.schedule.items.tolist(), r.schedule.targets.tolist()) for r in results]
        assert columns[0] == columns[1]
        assert results[0].is_repeatable
        # A beam's states count in fractions, so that less than one evaluation may be left.
        spent = results[0].evaluations
        assert evaluations - 1 < spent < evaluations + 1e-6 or results[0].status == "optimal"


def test_a_memory_limit_that_binds_is_kept():
    graph, _ = naive.random_graph(np.random.default_rng(100), 60)
    free = solve(Problem(graph, "runtime", 2), "auto", evaluations=2000)
    least = solve(Problem(graph, "memory", 2), "auto", evaluations=2000)
    limit = (free.simulation.peak + least.simulation.peak) // 2
    assert least.simulation.peak < limit < free.simulation.peak
    kept = solve(Problem(graph, "runtime", 2, limit), "auto", evaluations=3000)
    assert kept.is_feasible
    assert kept.simulation.peak <= limit
    assert kept.value < float(graph.runtime.sum())
