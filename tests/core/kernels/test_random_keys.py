"""Chromosomes of random keys against their twins."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from naive.machines import random_graph, random_machine
from schedopt import Problem, ScheduleError, Search
from schedopt.core.kernels.placements import random_keys
from schedopt.core.model.simulator import simulate
from schedopt.core.solvers.placements.chromosomes import Chromosomes

SEEDS = seeds(25, quick=5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_decode_runs_the_most_urgent_ready_step(seed, devices):
    rng = np.random.default_rng([seed, devices])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 13)))
    problem = Problem(graph, devices=devices)
    chromosomes = Chromosomes(Search(problem))
    genes = rng.random(chromosomes.genes, dtype=np.float32)
    if seed % 2:  # many ties
        genes = np.floor(genes * 4).astype(np.float32) / 4
    if seed % 5 == 0:
        genes[rng.random(len(genes)) < 0.3] = 1.0
    placement, steps = naive.decode(plain, naive.as_floats(genes), devices, problem.fixed_op)
    items, sources, targets = naive.schedule_of(plain, placement, steps)
    schedule = chromosomes.decode(genes)
    assert schedule.items.tolist() == items
    assert schedule.sources.tolist() == sources
    assert schedule.targets.tolist() == targets


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("transfers", ["blocking", "beside"])
def test_price_is_what_the_simulator_finds_on_machines(seed, transfers):
    rng = np.random.default_rng([seed, 5])
    machine = random_machine(rng, 3, transfers=transfers, limits=bool(seed % 2))
    graph = random_graph(rng, 8, residents=2)
    problem = Problem(graph, ("memory", "runtime")[seed % 2], machine=machine, replicate=bool(rng.random() < 0.3))
    with Chromosomes(Search(problem, jobs=2)) as chromosomes:
        population = rng.random((6, chromosomes.genes), dtype=np.float32)
        fitness = chromosomes.price(population).tolist()
        schedules = [chromosomes.decode(genes) for genes in population]
    for row, schedule in zip(fitness, schedules, strict=True):
        try:
            expected = simulate(problem, schedule)
        except ScheduleError as error:
            assert "no link" in str(error)
            assert row == [np.inf, np.inf]
        else:
            assert row == pytest.approx(problem.fitness(expected.peak_per_device.tolist(), expected.runtime))
            assert chromosomes.decode(chromosomes.encode(schedule)).items.tolist() == schedule.items.tolist()


def test_cross_takes_each_gene_by_its_draw():
    rng = np.random.default_rng(4)
    parents = rng.random((8, 30), dtype=np.float32)
    elites, others = rng.integers(0, 3, 20), rng.integers(3, 8, 20)
    bias = rng.random(30)
    children = rng.random((20, 30), dtype=np.float32)
    draws = children.tolist()
    random_keys.cross(parents, elites, others, bias, children)
    given = (values.tolist() for values in (parents, elites, others, bias))
    assert children.tolist() == naive.crossover(draws, *given)


@pytest.mark.parametrize("seed", SEEDS)
def test_look_up_takes_each_draw_to_its_quantile(seed):
    rng = np.random.default_rng(seed)
    tables = np.sort(rng.random((4, 9), dtype=np.float32), axis=1)
    rows = rng.integers(-1, 4, 30).astype(np.int32)
    draws = rng.random((6, 30), dtype=np.float32)
    draws[0, :10], draws[1, :10], draws[2, :9] = 0.0, np.nextafter(np.float32(1), np.float32(0)), np.arange(9) / 9
    expected = naive.looked_up(naive.as_floats(draws), naive.as_floats(tables), rows.tolist())
    kept = draws[:, rows < 0].copy()
    random_keys.look_up(tables, rows, draws)
    np.testing.assert_allclose(draws, expected, rtol=0, atol=1e-6)
    assert (draws[:, rows < 0] == kept).all()
