"""Chromosomes of lazy keys: priced as they decode."""

import naive
import numpy as np
import pytest
from models.sequences import SequenceCase
from schedopt.core.costs.simulator import simulate
from schedopt.core.costs.verifier import verify
from schedopt.core.problem import Problem
from schedopt.core.search.search import Search
from schedopt.core.solvers.several_devices import lazy_keys
from schedopt.core.solvers.several_devices.lazy_keys import LazyChromosomes, bottom_levels


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("task", ["memory", "runtime"])
@pytest.mark.parametrize("limit", [None, 60])
def test_lazy_chromosomes_are_priced_as_they_decode(seed, task, limit):
    case = SequenceCase(seed, 1 + seed % 5)
    problem = Problem(case.graph, task, case.devices, limit, *case.costs.values())
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


@pytest.mark.parametrize(("task", "estimate"), [("memory", "seconds_to_spread"), ("runtime", "seconds_to_decode")])
@pytest.mark.parametrize(("seconds", "rows"), [(1e-9, 18_000), (0.02, 2), (10.0, 1)])
def test_keys_that_take_long_to_decode_are_few_between_two_looks_at_the_clock(
    task, estimate, seconds, rows, monkeypatch
):
    monkeypatch.setattr(lazy_keys, estimate, lambda problem: seconds)
    graph, _ = naive.random_graph(np.random.default_rng(98), 25)
    found = LazyChromosomes(Search(Problem(graph, task, 2))).rows_at_once
    assert found == rows if rows < 18_000 else found > rows // 2
