"""Chromosomes of lazy keys: priced as they decode."""

import numpy as np
import pytest
from models.sequences import SequenceCase
from models.small_graphs import sketch
from schedopt import Problem, Search
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements import chromosomes
from schedopt.core.solvers.placements.chromosomes import LazyChromosomes


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
        assert tuple(row) == problem.fitness([simulation.peak], simulation.runtime)


@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_a_search_that_meets_its_bound_prices_as_many_keys_on_any_number_of_threads(task, monkeypatch):
    """Ops that wait for nothing are on two devices at once, as is proven."""
    monkeypatch.setattr(chromosomes, "MOST_UNSEEN", 0.0)
    problem = Problem(sketch("; ".join(f"op{op} -> 1024 us=1" for op in range(20)), "apart"), task, 2)
    spent = [solve(problem, "brkga:decoder=lazy", evaluations=1000, jobs=jobs).evaluations for jobs in (1, 2, 3)]
    assert spent[0] == spent[1] == spent[2] < 1000
