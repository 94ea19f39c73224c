"""The genetic algorithm: its budget, jobs, memory limits, chromosomes and genes (decoding: test_random_keys)."""

import naive
import numpy as np
import pytest
from models.small_graphs import sketch
from schedopt import Problem, Schedule, Search
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements import brkga
from schedopt.core.solvers.placements.brkga import GeneDistribution, Parameters, evolve
from schedopt.core.solvers.placements.chromosomes import Chromosomes
from scipy.stats import beta as beta_distribution


def brkga_problem(task="memory", **values):
    return Problem(naive.random_graph(np.random.default_rng(94), 30)[0], task, 3, **values)


def same(one, two):
    return all(getattr(one, name).tolist() == getattr(two, name).tolist() for name in ("items", "sources", "targets"))


@pytest.mark.parametrize("method", ["brkga", "brkga:populations=3:exchange=2:chromosomes=20:elites=4:mutants=2"])
@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_the_result_does_not_depend_on_the_number_of_jobs(method, task):
    problem = brkga_problem(task, memory_limit=100, bandwidth=1e6)
    results = [solve(problem, method, evaluations=500, jobs=jobs, seed=3) for jobs in (1, 2, 5)]
    assert all(same(result.schedule, results[0].schedule) for result in results)
    assert len({result.evaluations for result in results}) == 1


@pytest.mark.parametrize("method", ["brkga", "auto"])
@pytest.mark.parametrize(
    ("limit", "status", "peak", "makespan"),
    [
        (None, "optimal", 125, 7.0),  # together, without a transfer
        (100, "feasible", 65, 107.0),  # apart, since the weights do not fit beside each other
        (30, "infeasible", 65, 107.0),  # the least excess, which is also apart
    ],
)
def test_a_memory_limit_ranks_before_the_makespan(method, limit, status, peak, makespan):
    """a feeds b; each has 60 bytes of weights, and a transfer takes 100 us."""
    graph = sketch("a -> 5 us=3 keep=60; b: a -> us=4 keep=60", "pair")
    problem = Problem(graph, "runtime", 2, limit, None, 100.0)
    result = solve(problem, method, evaluations=300)
    assert (result.status, result.simulation.peak, result.value) == (status, peak, makespan)


@pytest.mark.parametrize("seed", range(10))
def test_a_schedule_survives_its_chromosome(seed):
    graph, plain = naive.random_graph(np.random.default_rng([95, seed]), 12)
    problem = Problem(graph, devices=3)
    columns = naive.schedule_of(plain, *naive.random_steps(np.random.default_rng(seed), plain, 3))
    schedule = Schedule.from_steps(*columns)
    chromosomes = Chromosomes(Search(problem))
    home = int(schedule.placement(graph)[problem.fixed_op])
    rename = np.arange(3)
    rename[[0, home]] = home, 0
    decoded = chromosomes.decode(chromosomes.encode(schedule))
    assert decoded.items.tolist() == schedule.items.tolist()
    assert decoded.sources.tolist() == rename[schedule.sources].tolist()
    assert decoded.targets.tolist() == rename[schedule.targets].tolist()


def test_genes_follow_their_distribution():
    """Against the beta distribution itself, of densities bounded and not."""
    alpha = np.array([1.0, 9.0, 3.0, 0.2, 0.5, 1.0])
    beta = np.array([3.0, 3.0, 0.5, 0.2, 0.1, 1.0])
    mutants = GeneDistribution(alpha, beta).sample(np.random.default_rng(92), 20_000, 6).astype(float)
    for gene, (a, b) in enumerate(zip(alpha, beta, strict=True)):
        distribution = beta_distribution(a, b)
        points = distribution.ppf(np.linspace(0.01, 0.99, 99))
        points = points[points < 1 - 1e-6]  # float32 has no more between these and 1
        share = (mutants[:, gene, None] <= points).mean(0)
        assert np.abs(share - distribution.cdf(points)).max() < 0.012  # of true draws, 1% are further off
        assert mutants[:, gene].mean() == pytest.approx(a / (a + b), abs=0.01)
    correlations = np.corrcoef(mutants.T) - np.eye(6)
    assert np.abs(correlations).max() < 0.04


def test_uniform_genes_are_drawn_as_if_all_were():
    """What a policy leaves uniform changes nothing, so that all of it is the plain algorithm."""
    plain = GeneDistribution().sample(np.random.default_rng(1), 7, 5)
    ones = np.ones(5)
    assert (GeneDistribution(ones, ones).sample(np.random.default_rng(1), 7, 5) == plain).all()
    alpha = np.array([1.0, 2.0, 1.0, 1.0, 3.0])
    mixed = GeneDistribution(alpha, ones).sample(np.random.default_rng(1), 7, 5)
    assert ((mixed == plain) == (alpha == 1)).all()
    first = GeneDistribution(2.0, 1.0, first=3).sample(np.random.default_rng(1), 7, 5)
    assert ((first == plain) == [False, False, False, True, True]).all()
    # The method's scalars are for the genes of ops (A.6): for all, they would keep the order of the keys.
    plain, favoured = (solve(brkga_problem("runtime"), f"brkga:alpha={a}", evaluations=100) for a in (1, 3))
    assert not same(plain.schedule, favoured.schedule)


def test_chromosomes_of_very_many_genes_are_fewer(monkeypatch):
    problem = brkga_problem()
    genes = Chromosomes(Search(problem)).genes
    monkeypatch.setattr(brkga, "MOST_KEYS", 10 * genes + 1)
    search = Search(problem, max_evaluations=90)
    assert len(evolve(search, Parameters(), GeneDistribution())[0].priced()) == 10
    assert search.evaluations == 90
    assert "10 chromosomes, not 100" in search.notes[0]
    for rows, elites, mutants in ((10, 9, 0), (10, 1, 8), (100, 97, 1)):
        p = brkga._fitting(search, Parameters(chromosomes=rows, elites=elites, mutants=mutants), 4 * genes)
        assert p.chromosomes == 3


def test_a_generation_is_left_when_the_search_must_stop(monkeypatch):
    monkeypatch.setattr(brkga, "MOST_DRAWN", 1)
    search = Search(brkga_problem())
    monkeypatch.setattr(search, "exhausted", lambda: search.evaluations >= 105)
    final = evolve(search, Parameters(), GeneDistribution())[0].priced()
    assert search.evaluations == 105
    assert len(final) == 25  # elites, and five of the generation that was left


@pytest.mark.parametrize(("bias", "from_elites"), [(1.0, True), (0.0, False)])
def test_children_take_each_gene_by_its_bias(bias, from_elites):
    """Warm-started elites are copied whole at bias 1 and passed over at bias 0."""
    search = Search(brkga_problem(), max_evaluations=38)
    known = np.tile(Chromosomes(search).encode(solve(brkga_problem(), "brkga", evaluations=500).schedule), (2, 1))
    parameters = Parameters(chromosomes=20, elites=2, mutants=0)
    final = evolve(search, parameters, GeneDistribution(bias=bias), known)[0].priced()
    assert search.evaluations == 38
    copies = (final == known[0]).all(1)
    assert copies.sum() == (20 if from_elites else 2)
    assert copies[:2].all()
