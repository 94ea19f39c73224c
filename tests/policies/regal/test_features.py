"""Features of REGAL's networks, and ratios that mean the same in every graph."""

import dataclasses
from pathlib import Path

import naive
import numpy as np
import pytest
import torch
from models.small_graphs import sketch
from models.trainers import REGAL
from naive.machines import random_graph
from schedopt import Device, GraphBuilder, Machine, Problem, Search, read_machine
from schedopt.core.bounds.bounds import lower_bound
from schedopt.core.model.simulator import simulate
from schedopt.core.solvers.placements import brkga
from schedopt.core.solvers.placements.brkga import GeneDistribution, evolve
from schedopt.policies.networks.network import write_network
from schedopt.policies.regal.features import node_features, number_of_ratios, ratios, searched_graph
from schedopt.policies.regal.network import RegalNetwork, RegalNetworkParameters, load_network, multigraph_batch
from schedopt.policies.regal.training import Trainer

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


def test_graphs_without_costs_or_edges():
    for task in ("memory", "runtime"):
        graph = searched(Problem(sketch("a", "bare"), task, 2))
        assert np.isfinite(graph.nodes).all()
        assert graph.edges.shape == (0, 3)
        assert multigraph_batch([graph, graph]).graph.sources.shape == (0,)


MACHINES = Path(__file__).parents[3] / "examples" / "machines"


def chain(runtimes, sizes, unit=1.0):
    """Each op writes one tensor, which the next one reads."""
    builder = GraphBuilder("chain")
    for at, (runtime, size) in enumerate(zip(runtimes, sizes, strict=True)):
        builder.add_op(f"{at}", inputs=[(at - 1, 0)] if at else [], outputs=[size], runtime=runtime * unit)
    return builder.build()


def test_makespan_by_hand():
    """A byte takes 1 us to send, and a transfer 2 us more; a and b side by side, c reads both."""
    graph = sketch("a -> 4 us=6; b -> 1 us=2; c: a b -> 3 us=4", "three")
    found = ratios(Problem(graph, "runtime", 2, bandwidth=1e6, latency=2.0), 15.0)
    sent, got, runtime = np.array([6.0, 3, 5]), np.array([0.0, 0, 9]), np.array([6.0, 2, 4])
    slack, beside = np.array([0.0, 4, 0]), np.array([1, 2, 1])  # b ends at 2 or, at the latest, at 6; a runs beside it
    expected = [
        sent / (sent + runtime),
        got / (got + runtime),
        *(np.log1p(times / 4) / 3 for times in (sent, got, runtime)),
        runtime / 6,
        np.minimum((sent + got) / 6, 1),
        np.array([6, 2, 10]) / 10,
        np.array([10, 6, 4]) / 10,
        slack / 10,
        slack / (slack + sent + got),
        np.log1p(beside) / 4,
        [0, 0.5, 1],
        *([value] * 3 for value in (10 / 12, np.log1p(14 / 3 / 4) / 3, 15 / 12, 14 / 12 / 5, np.log(3) / 8)),
    ]
    assert found == pytest.approx(np.column_stack(expected))


@pytest.mark.parametrize("seed", range(6))
def test_peak_of_random_graphs(seed):
    """What is alive, from sets, as the naive replay has it; the rest from sums."""
    graph, plain = naive.random_graph(np.random.default_rng([70, seed]), 15)
    found = 500.0
    problem = Problem(graph, "memory", 2)
    table = ratios(problem, found)
    order = graph.input_order.tolist()
    assert table.shape == (15, number_of_ratios("memory"))
    writes = np.array(plain.own)
    large = writes >= writes.max() / 2
    alive, of_large = np.zeros(15), np.zeros(15)
    for step, op in enumerate(order):
        held = plain.alive(order[:step]) | {tensor for tensor in plain.outputs[op] if tensor not in plain.alias}
        of_large[op] = sum(plain.size[root] for root in held if large[root[0]])
        alive[op] = sum(plain.size[root] for root in held) + plain.workspace[op] + sum(plain.persistent)
    assert table[:, 0] == pytest.approx(writes / writes.max())
    assert table[:, 2].tolist() == large.tolist()
    assert table[:, 5] == pytest.approx(writes / found)
    assert table[:, 6] == pytest.approx(alive / alive.max())
    assert table[:, 7] == pytest.approx(np.minimum(alive / found, 3) / 2)
    assert table[:, 8] == pytest.approx(np.minimum(of_large / found, 2))
    assert table[:, 9] == pytest.approx(np.minimum((alive - of_large) / found, 2))
    assert (table[:, 13:] == table[0, 13:]).all()
    assert table[0, 18:20] == pytest.approx([min(of_large.max() / found, 2), min((alive - of_large).max() / found, 2)])


def test_only_the_unit_of_bytes_or_of_time_does_not_matter():
    times, sizes = [3.0, 1.0, 5.0, 2.0], [4, 16, 8, 2]
    one, other = (
        ratios(Problem(chain(times, sizes, unit), "runtime", 2, bandwidth=1e6 / unit), 11.0 * unit)
        for unit in (1.0, 8.0)
    )
    assert one == pytest.approx(other)
    faster = ratios(Problem(chain(times, sizes), "runtime", 2, bandwidth=1e7), 11.0)
    assert np.abs(one - faster).max() > 0.1
    one, other = (
        ratios(Problem(chain(times, [unit * size for size in sizes]), "memory", 2), 24.0 * unit) for unit in (1, 64)
    )
    assert one == pytest.approx(other)
    assert np.abs(one - ratios(Problem(chain(times, sizes), "memory", 2), 48.0)).max() > 0.1


@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_machines_and_graphs_without_costs_or_edges(task):
    graph = random_graph(np.random.default_rng(71), 10, residents=2)
    problems = [
        Problem(graph, task, machine=read_machine(MACHINES / "gpu-and-cpu.yaml")),
        Problem(sketch("a", "bare"), task, 2),
        Problem(chain([0.0, 0.0], [5, 7]), task, 2, bandwidth=1e6),
        Problem(chain([1.0, 1.0], [0, 0]), task, 2),
        Problem(graph, task, 2, machine=Machine((Device("a"), Device("b")), bandwidth=0.0)),
    ]
    for problem in problems:
        table = ratios(problem, lower_bound(problem))
        assert table.shape == (problem.graph.num_ops, number_of_ratios(task))
        assert np.isfinite(table).all()
        assert np.abs(table).max() < 10


def seeing(task="runtime", scale=1.0):
    """A network that sees ratios, normalises the rest, and whose corrections by the former are not zero."""
    torch.manual_seed(0)
    shape = RegalNetworkParameters(task, normalise=True, update="residual", rounds=3, width=8, ratios=True)
    network = RegalNetwork(shape).eval()
    with torch.no_grad():
        network.encoder.embed_ratios[2].weight.normal_().mul_(scale)
    return network


def test_networks_see_ratios_though_they_normalise_all_else():
    """The same features of the paper, on links of two speeds: only a network with ratios tells them apart."""
    graph = naive.random_graph(np.random.default_rng(72), 14)[0]
    searched = searched_graph(Search(Problem(graph, "runtime", 2, bandwidth=1e7), max_evaluations=30))
    faster = dataclasses.replace(searched, problem=Problem(graph, "runtime", 2, bandwidth=1e9))
    blind = RegalNetwork(dataclasses.replace(seeing().parameters_, ratios=False)).eval()
    with torch.no_grad():
        for network, differs in ((seeing(), True), (blind, False)):
            one, other = (
                network.encoder(multigraph_batch([which], ratios=network.parameters_.ratios))
                for which in (searched, faster)
            )
            assert torch.equal(one, other) != differs
    means = [seeing().encoder(multigraph_batch([which], ratios=True)).mean(0).detach() for which in (searched, faster)]
    assert (means[0] - means[1]).abs().max() > 0.01  # what normalisation would make equal


@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_weights_without_ratios_are_started_from_as_they_are(task, tmp_path):
    """New columns change nothing at first, and learn."""
    torch.manual_seed(1)
    shape = RegalNetworkParameters(task, normalise=True, update="residual", rounds=2, width=8)
    write_network(tmp_path / "old.safetensors", RegalNetwork(shape))
    old = load_network(tmp_path / "old.safetensors")
    wider = dataclasses.replace(shape, ratios=True)
    parameters = dataclasses.replace(REGAL, network=wider, start=str(tmp_path / "old.safetensors"))
    trainer = Trainer(tmp_path / "run", parameters)
    assert trainer.network.parameters_ == wider
    graph = naive.random_graph(np.random.default_rng(73), 12)[0]
    searched = searched_graph(Search(Problem(graph, task, 2), max_evaluations=30))
    policies = [network(multigraph_batch([searched], ratios=True)) for network in (old, trainer.network)]
    assert all(torch.equal(one, other) for one, other in zip(*(policy.logits for policy in policies), strict=True))
    policies[1].entropy().sum().backward()
    assert trainer.network.encoder.embed_ratios[2].weight.grad.abs().max() > 0
