"""Features of REGAL (A.2): by hand, on random graphs, and what the short search adds to them."""

import naive
import numpy as np
import pytest
from schedopt.core.graph.builder import GraphBuilder
from schedopt.core.model.simulator import simulate
from schedopt.core.problem.problem import Problem
from schedopt.core.search.search import Search
from schedopt.core.solvers.placements import brkga
from schedopt.core.solvers.placements.brkga import GeneDistribution, evolve
from schedopt.policies.regal.features import node_features, searched_graph
from schedopt.policies.regal.network import multigraph_batch

COSTS = {"memory": 4, "runtime": 8}


def searched(problem, seed=0, evaluations=150):
    return searched_graph(Search(problem, seed=seed, max_evaluations=evaluations))


@pytest.mark.parametrize(("task", "devices"), [("memory", 2), ("runtime", 2), ("runtime", 5), ("memory", 8)])
@pytest.mark.parametrize("seed", range(4))
def test_features_of_random_graphs(task, devices, seed):
    """The same from sets and sums, in units of the largest; one edge per tensor and reader."""
    spec, plain = naive.random_graph(np.random.default_rng([60, seed]), 15)
    problem = Problem(spec, task, devices)
    graph = searched(problem)
    reads = [sum(plain.size[t] for t in plain.reads[op]) for op in plain.ops]
    writes = [sum(plain.size[t] for t in plain.outputs[op]) for op in plain.ops]
    own = [plain.workspace[op] + plain.persistent[op] for op in plain.ops]
    most = max(*reads, *writes, *own, *plain.size.values())
    needs = [reads[op] + writes[op] + plain.workspace[op] for op in plain.ops]
    columns = [np.array(column) / most for column in (reads, writes, own)]
    columns.append([op == needs.index(max(needs)) for op in plain.ops])
    if task == "runtime":
        times = plain.runtime
        before = [sum(times[u] for u in plain.before[op]) for op in plain.ops]
        after = [sum(times[u] for u in plain.after[op]) for op in plain.ops]
        columns += [np.array(column) / max(times) for column in (before, after, times)]
        columns.append([op == times.index(max(times)) for op in plain.ops])
    assert graph.nodes.shape == (15, node_features(task, devices)) == (15, COSTS[task] + devices + 1)
    assert graph.nodes[:, : COSTS[task]] == pytest.approx(np.column_stack(columns), rel=1e-6)
    edges = {
        (tensor[0], reader, at): (plain.size[tensor] / most, tensor[1] == naive.CONTROL)
        for at, tensor in enumerate(plain.tensors)
        for reader in plain.readers[tensor]
    }
    size, is_control, index = graph.edges.T
    places = (index * (len(plain.tensors) - 1)).round().astype(int)
    triples = list(zip(graph.producers.tolist(), graph.consumers.tolist(), places.tolist(), strict=True))
    assert sorted(triples) == sorted(edges)
    assert [edges[triple][1] for triple in triples] == is_control.tolist()
    assert [edges[triple][0] for triple in triples] == pytest.approx(size.tolist(), rel=1e-6)
    assert len(edges) > 10


@pytest.mark.parametrize(
    ("task", "devices", "evaluations"), [("memory", 2, 250), ("runtime", 3, 250), ("runtime", 2, 7)]
)
def test_what_the_search_found_is_averaged(task, devices, evaluations):
    """Over the schedules of its last population that were priced, each decoded by hand."""
    cost_graph, plain = naive.random_graph(np.random.default_rng(61), 12)
    problem = Problem(cost_graph, task, devices)
    search = Search(problem, seed=3, max_evaluations=evaluations)
    population = evolve(search, brkga.Parameters(), GeneDistribution())[0].priced()
    assert len(population) == {250: 90, 7: 7}[evaluations]  # 100, 80, and 70 of 80 beside 20 elites
    expected = np.zeros((12, devices + 1))
    values = []
    for chromosome in population:
        placement, steps = naive.decode(plain, naive.as_floats(chromosome), devices, problem.fixed_op)
        totals = naive.replay(plain, placement, steps, devices)
        values.append(max(totals.peaks if task == "memory" else totals.clocks))
        for place, op in enumerate(step for step in steps if isinstance(step, int)):
            expected[op, placement[op]] += 1 / len(population)
            expected[op, devices] += place / 11 / len(population)
    graph = searched(problem, seed=3, evaluations=evaluations)
    assert graph.nodes[:, COSTS[task] :] == pytest.approx(expected, abs=1e-6)
    assert graph.value == pytest.approx(min(values))
    assert graph.evaluations == evaluations
    totals = simulate(problem, graph.best)
    assert problem.value(totals.peak, totals.runtime) == graph.value


@pytest.mark.parametrize(("budget", "asked", "spent"), [(1000, 400, 400), (1000, 120, 120), (90, 400, 90), (1, 1, 1)])
def test_the_budget_of_the_features(budget, asked, spent):
    """What is left of the search's own goes on being its own."""
    problem = Problem(naive.random_graph(np.random.default_rng(63), 10)[0], "memory", 2)
    search = Search(problem, max_evaluations=budget)
    search.evaluations = 0.0
    graph = searched_graph(search, asked)
    assert graph.evaluations == search.evaluations == spent
    assert search.evaluations_left == budget - spent
    assert graph.best is search.best


def test_graphs_without_costs_or_edges():
    builder = GraphBuilder("bare")
    builder.add_op("a")
    for task in ("memory", "runtime"):
        graph = searched(Problem(builder.build(), task, 2))
        assert np.isfinite(graph.nodes).all()
        assert graph.edges.shape == (0, 3)
        assert multigraph_batch([graph, graph]).producers.shape == (0,)
