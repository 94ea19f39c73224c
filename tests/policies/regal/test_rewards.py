"""Rewards of REGAL: searches with a policy's choices, and the plain ones, which are made once and never again."""

import dataclasses
import math

import numpy as np
import pytest
from models.runs import At
from models.trainers import REGAL, regal_cases, synthetic
from schedopt import FormatError, Problem, Search, read_graph
from schedopt.core.base.parallel import Workers
from schedopt.core.files.costgraph import graph_hash
from schedopt.core.files.json_lines import JsonLines
from schedopt.core.solvers.placements import brkga
from schedopt.core.solvers.placements.brkga import GeneDistribution
from schedopt.datasets.filters import topology_hash
from schedopt.datasets.recipe import Recipe, generate
from schedopt.policies.regal import rewards as regal_rewards
from schedopt.policies.regal.actions import dequantise
from schedopt.policies.regal.features import searched_graph
from schedopt.policies.regal.rewards import Cases, Setting, found_value, given_graphs, plain_value
from schedopt.policies.regal.training import DRAWN, PLAIN, Trainer

SHAPE = REGAL.network


def test_searches_go_on_from_the_features_with_the_distributions_of_the_actions():
    """The random numbers that come after the features', as when the policy is used."""
    (case,) = regal_cases(synthetic(1, 20, 20), SHAPE)
    problem = case.start.problem
    rng = np.random.default_rng(3)
    actions = np.column_stack([rng.integers(0, head.choices, problem.graph.num_ops) for head in SHAPE.heads])
    search = Search(problem, seed=0, max_evaluations=400)
    searched_graph(search, 100)
    search.best, search.best_fitness = None, (2**63, math.inf)
    brkga.evolve(search, brkga.Parameters(), dequantise(actions, problem.graph, 2, SHAPE.actions))
    assert found_value(case.start, actions, SHAPE.actions, 300) == search.best_value
    assert found_value(case.start, actions.astype(np.uint8), SHAPE.actions, 300) == search.best_value
    plain = Search(problem, seed=0, max_evaluations=200)
    brkga.evolve(plain, brkga.Parameters(), GeneDistribution())
    assert case.plain == plain.best_value


@pytest.fixture
def counted(monkeypatch):
    """Count what is searched."""
    calls = {"features": [], "plain": []}
    make, plain = regal_rewards.searched_graph, regal_rewards.plain_value

    def searched(search, evaluations):
        calls["features"].append(search.problem.graph.name)
        return make(search, evaluations)

    def value(problem, evaluations, seed):
        calls["plain"].append((problem.graph.name, evaluations, seed))
        return plain(problem, evaluations, seed)

    monkeypatch.setattr(regal_rewards, "searched_graph", searched)
    monkeypatch.setattr(regal_rewards, "plain_value", value)
    return calls


def test_plain_values_and_features_are_searched_once(counted, tmp_path):
    graphs = synthetic(2)
    setting = Setting("runtime", 2, SHAPE.actions, 100)
    asked = [[((0, 0), 120), ((1, 0), 120), ((0, 1), 120)], [((0, 0), 150)], [((0, 0), None)]]
    values = []
    for _ in range(2):
        file = JsonLines(tmp_path / PLAIN, "plain", "delete it")
        with Workers(1) as workers:
            cases = Cases(given_graphs(graphs), setting, workers, file)
            for together in asked * 2:
                for visit, evaluations in together * 2:
                    cases.begin(visit, evaluations, "uniform")
                values.append([cases.get(*which, "uniform").plain for which in together])
        file.close()
    assert values == values[:3] * 4
    assert values[0][0] == plain_value(Problem(graphs[0], task="runtime", devices=2), 120, 0)
    assert values[2] == [None]
    names = [graph.name for graph in graphs]
    searched = [(names[0], 120, 0), (names[0], 120, 1), (names[0], 150, 0), (names[1], 120, 0)]
    assert sorted(counted["plain"]) == sorted(searched)
    assert len(counted["features"]) == 2 * 3
    assert (tmp_path / PLAIN).read_text().count("\n") == 4


def test_plain_values_of_other_links_are_others(tmp_path):
    graphs = synthetic(1)
    links = [{}, {"latency": 50.0}, {"bandwidth": 1e5}]
    file = JsonLines(tmp_path / PLAIN, "plain", "delete it")
    values = []
    with Workers(1) as workers:
        for link in links:
            setting = Setting("runtime", 2, SHAPE.actions, 100, **link)
            values.append(Cases(given_graphs(graphs), setting, workers, file).get((0, 0), 120).plain)
    file.close()
    assert values == [plain_value(Problem(graphs[0], "runtime", devices=2, **link), 120, 0) for link in links]
    assert len(set(values)) == 3


@pytest.mark.slow
def test_a_run_that_goes_on_draws_no_graph_again(monkeypatch, tmp_path):
    """What a filter lets through may have cost many searches: each graph is a file, by what decides it."""
    drawn, draw_graph = [], regal_rewards.draw_graph
    monkeypatch.setattr(regal_rewards, "draw_graph", lambda *a: (drawn.append(a[1]), draw_graph(*a))[1])
    Trainer(tmp_path, REGAL).run(must_stop=At(7))
    before = len(drawn)
    assert before == len(set(drawn)) == len(list((tmp_path / DRAWN).iterdir()))
    assert Trainer(tmp_path, REGAL).run()
    assert len(drawn) == len(set(drawn)) > before
    tests = generate(Recipe(REGAL.synthetic, REGAL.seed), len(drawn))  # `schedopt gen synthetic` with the same seed
    trained = {topology_hash(read_graph(file)) for file in (tmp_path / DRAWN).iterdir()}
    assert trained.isdisjoint(each.topology for each in tests)

    other = dataclasses.replace(REGAL, seed=1)
    graphs = [Trainer(tmp_path / "none", parameters)._graphs().maker(0)() for parameters in (REGAL, other)]
    assert graph_hash(graphs[0]) != graph_hash(graphs[1])
    recipe = Trainer(tmp_path / "none", REGAL)._graphs().name(0)[:16]
    (kept,) = (tmp_path / "none" / DRAWN).glob(f"synthetic-{2**30 + 1}-{recipe}.*")
    assert graph_hash(read_graph(kept)) == graph_hash(graphs[0])


def test_a_file_of_a_drawn_graph_that_is_something_else_is_refused_by_name(tmp_path):
    make = Trainer(tmp_path, REGAL)._graphs().maker(0)
    make()
    (kept,) = (tmp_path / DRAWN).iterdir()
    kept.write_bytes(b"something else")
    with pytest.raises(FormatError, match=kept.name):
        make()
