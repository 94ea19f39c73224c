"""Training of Topoformer: settings, graphs, searched orders, and what its losses push."""

import dataclasses
import itertools
import math
from functools import partial

import naive
import numpy as np
import pytest
import torch
from models.runs import gradient, weights_of
from models.small_graphs import chain_of
from models.trainers import METHODS, TOPOFORMER, layered
from schedopt import Problem, Schedule, UsageError
from schedopt.core.base.parallel import chunks
from schedopt.core.files.costgraph import graph_hash
from schedopt.core.kernels.orders.priority_orders import price_orders
from schedopt.core.model.verifier import verify
from schedopt.core.solve.solve import solve
from schedopt.policies.networks.shipped import weights_file
from schedopt.policies.topoformer import training
from schedopt.policies.topoformer.decoding import Decoded
from schedopt.policies.topoformer.network import PriorityPolicy, load_network
from schedopt.policies.topoformer.training import (
    VALIDATION,
    Phase,
    Source,
    Trainer,
    TrainingParameters,
    advantages,
    encoded_examples,
    good_order,
    order_search,
)
from schedopt.policies.training import run_folder, settings

TINY = TOPOFORMER.network
with_phase = METHODS["topoformer"].with_phase


class Enumerated:
    """A trainer on small graphs, all of whose orders are known."""

    def __init__(self, folder, parameters, pairs):
        shape = dataclasses.replace(TINY, eigenvectors=0)  # no signs are drawn
        self.trainer = Trainer(folder, dataclasses.replace(parameters, network=shape))
        self.examples = encoded_examples([graph for graph, _ in pairs], [], 0)
        self.orders = [np.array(list(naive.all_orders(plain)), np.int32) for _, plain in pairs]
        rows = zip(pairs, self.orders, strict=True)
        self.costs = [price_orders(graph.buffers, orders) for (graph, _), orders in rows]
        self.greedy = [float(d.peaks[0]) for d in self.policy().greedy()]

    def policy(self, numbers=None):
        encoded = [example.encoded for example in self.examples]
        numbers = range(len(encoded)) if numbers is None else numbers
        return self.trainer.network([encoded[number] for number in numbers])

    def log_probabilities(self, number):
        return self.policy([number]).log_probability([self.orders[number]])[0].double()

    def gradient_of(self, loss):
        self.trainer.network.zero_grad()
        loss.backward()
        return gradient(self.trainer.network)

    def expected_gradient_of_steps(self, samples, monkeypatch):
        """Return the mean gradient of the trainer's loss over all that it may sample, by its probability."""
        probabilities = [self.log_probabilities(number).exp().detach().tolist() for number in range(len(self.orders))]
        assert all(sum(p) == pytest.approx(1) for p in probabilities)
        choices = [list(itertools.product(range(len(p)), repeat=samples)) for p in probabilities]
        total = 0.0
        for chosen in itertools.product(*choices):
            drawn = [
                Decoded(orders[list(rows)], costs[list(rows)])
                for orders, costs, rows in zip(self.orders, self.costs, chosen, strict=True)
            ]
            monkeypatch.setattr(PriorityPolicy, "sample", lambda policy, count, rng, drawn=drawn: drawn)
            weight = math.prod(p[row] for p, rows in zip(probabilities, chosen, strict=True) for row in rows)
            loss = self.trainer._loss(self.trainer.parameters.phases[0], self.examples)
            total = total + weight * self.gradient_of(loss)
        return total


def small_graphs(count, most, seed):
    """Return graphs with a few orders, of different costs, as `(CostGraph, Plain)` pairs."""
    rng = np.random.default_rng(seed)
    found = []
    while len(found) < count:
        graph, plain = naive.random_graph(rng, 5)
        costs = {naive.order_peak(plain, order) for order in naive.all_orders(plain)}
        if len(costs) > 1 and len(list(naive.all_orders(plain))) <= most and min(costs) > 0:
            found.append((graph, plain))
    return found


@pytest.mark.slow
def test_greedy_rollout_steps_follow_the_gradient_of_the_expected_cost(tmp_path, monkeypatch):
    """Equation 9 with 10, by enumeration; each graph's cost is relative to its baseline, and a batch is a mean."""
    case = Enumerated(tmp_path, with_phase(samples=1, baseline="greedy-rollout"), small_graphs(2, 5, seed=1))
    expected_cost = sum(
        (case.log_probabilities(number).exp() * torch.from_numpy(case.costs[number])).sum() / case.greedy[number] / 2
        for number in range(2)
    )
    wanted = case.gradient_of(expected_cost)
    assert wanted.abs().max() > 1e-3
    found = case.expected_gradient_of_steps(1, monkeypatch)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_leave_one_out_steps_are_unbiased(tmp_path, monkeypatch):
    """The other sample is independent, so it scales the gradient by the mean of 1 / cost and adds nothing."""
    for number, pair in enumerate(small_graphs(2, 6, seed=2)):
        case = Enumerated(tmp_path / str(number), with_phase(samples=2, baseline="leave-one-out"), [pair])
        probabilities, costs = case.log_probabilities(0).exp(), torch.from_numpy(case.costs[0]).double()
        scale = (probabilities.detach() / costs).sum()
        wanted = case.gradient_of(scale * (probabilities * costs).sum())
        assert wanted.abs().max() > 1e-3
        found = case.expected_gradient_of_steps(2, monkeypatch)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


def test_imitation_is_the_mean_log_probability_per_op(tmp_path):
    pairs = [naive.random_graph(np.random.default_rng(seed), 6 + seed) for seed in range(2)]
    case = Enumerated(tmp_path, with_phase(reinforce=0.0, imitation=0.5), pairs)
    case.examples = encoded_examples([g for g, _ in pairs], [o[-1] for o in case.orders], 0)
    wanted = -0.5 * sum(case.log_probabilities(at)[-1] / len(case.orders[at][0]) for at in range(2)) / 2
    loss = case.trainer._loss(case.trainer.parameters.phases[0], case.examples)
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-4)


def test_advantages_are_shares_of_the_baseline():
    costs = np.array([[4.0, 8.0, 6.0], [10.0, 10.0, 10.0]])
    rollout = advantages(costs, np.array([[8.0], [5.0]]))
    np.testing.assert_allclose(rollout, [[-0.5, 0, -0.25], [1, 1, 1]])
    others = advantages(costs, None)
    np.testing.assert_allclose(others, [[4 / 7 - 1, 8 / 5 - 1, 0], [0, 0, 0]])


@pytest.mark.slow
def test_the_rollout_is_refreshed_when_greedy_gets_better(tmp_path, monkeypatch):
    """C.4: the baseline stays the best so far on the validation graphs, the initial network included."""
    trainer = Trainer(tmp_path, with_phase(epochs=5, samples=1))
    gaps = iter([10.0, 12.0, 9.0, 9.0, 9.5, 3.0])
    histories = [], []

    def validate(network, must_stop, on_graph):
        histories[0].append(weights_of(network))
        histories[1].append(weights_of(trainer.rollout))
        return dict(zip(Trainer.validated, (next(gaps), 1.0, 1.0), strict=True))

    monkeypatch.setattr(trainer, "validate", validate)
    assert trainer.run()
    network, rollout = histories
    copied_from = [next(at for at in range(6) if torch.equal(network[at], weights)) for weights in rollout]
    assert copied_from == [0, 0, 0, 2, 2, 2]
    assert torch.equal(weights_of(trainer.rollout), network[5])


@pytest.mark.slow
def test_graphs_that_are_too_large_or_have_no_orders_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"graph chain has 10,001 ops, and training takes up to 10,000; leave it out"):
        Trainer(tmp_path, TOPOFORMER, validation=[chain_of(training.MOST_OPS + 1)])
    with pytest.raises(UsageError, match="given graphs need orders to imitate"):
        Trainer(tmp_path, TOPOFORMER, graphs=layered(10))


def test_the_shipped_recipe_is_that_of_the_shipped_weights(tmp_path, monkeypatch):
    recipe = partial(Trainer.recipe, "topoformer", None, None)
    assert load_network(weights_file("topoformer-layered")).parameters_ == recipe().network
    monkeypatch.setattr(settings, "WEIGHTS", tmp_path)
    assert recipe() == TrainingParameters()
    card = tmp_path / "topoformer-layered.yaml"
    card.write_text("curve: []\nrecipe: {seed: 3, device: cuda, phases: [{epochs: 2}]}\n")
    assert recipe() == TrainingParameters(seed=3, phases=(Phase(epochs=2),))


SOURCE = Source(seed=3, nodes=(10, 20), eigenvectors=4, teacher_width=20)


def hashes(examples):
    return [graph_hash(example.encoded.graph) for example in examples]


def drawn(source, epoch, graphs, size, first=0):
    return [hashes(source.examples(epoch, part)) for part in chunks(graphs, size)[first:]]


def joined(batches):
    return list(itertools.chain(*batches))


@pytest.mark.slow
def test_graphs_depend_on_seed_epoch_and_number_alone():
    """An epoch begun in the middle or cut into other batches has the same graphs."""
    whole = drawn(SOURCE, 1, 10, 4)
    assert list(map(len, whole)) == [4, 4, 2]
    assert drawn(SOURCE, 1, 10, 4, first=1) == whole[1:]
    assert joined(drawn(SOURCE, 1, 10, 3)) == joined(whole)
    other_seed = Source(seed=4, nodes=(10, 20), eigenvectors=4)
    everything = joined(whole + drawn(SOURCE, 0, 10, 4) + drawn(other_seed, 1, 10, 4))
    everything += hashes(SOURCE.examples(0, range(VALIDATION, VALIDATION + 10)))
    assert len(set(everything)) == 40


def test_orders_to_imitate_are_valid_and_their_peaks_are_those_of_the_simulator():
    for index in range(5):
        example = SOURCE.example(0, index)
        graph = example.encoded.graph
        problem = Problem(graph)
        verify(problem, Schedule.single_device(example.order), peak_per_device=[example.peak])
        assert example.peak <= solve(problem, "bfs").value
    assert Source(seed=3, nodes=(10, 20), eigenvectors=4).example(0, 0).order is None


def test_good_orders_are_optimal_on_small_graphs():
    rng = np.random.default_rng(5)
    for _ in range(10):
        graph, plain = naive.random_graph(rng, 7)
        order = good_order(graph, 1000, rng)
        assert naive.order_peak(plain, order.tolist()) == naive.least_peak(plain)


def test_given_graphs_come_with_their_own_orders():
    graphs = layered(10, 15)
    orders = [graph.input_order for graph in graphs]
    examples = encoded_examples(graphs, orders, eigenvectors=4)
    assert [example.peak for example in examples] == [solve(Problem(graph), "input").value for graph in graphs]
    assert [example.order.tolist() for example in examples] == [order.tolist() for order in orders]


@pytest.fixture
def counted(monkeypatch):
    """Count the searches."""
    names = []

    def search(method, evaluations, seed, problem):
        names.append(problem.graph.name)
        return solve(problem, method, evaluations=evaluations, seed=seed).schedule.op_order()

    monkeypatch.setattr(run_folder, "searched_order", search)
    return names


def test_searched_orders_are_kept_and_not_searched_for_again(counted, tmp_path):
    graphs, path = layered(20, 25, 30), tmp_path / "orders.jsonl"
    seen = []

    def search(graphs, evaluations=50, seed=0):
        return order_search(path, evaluations, seed).found(list(map(Problem, graphs)), on_order=seen.append)

    orders = search([*graphs, graphs[0]])
    assert counted == ["graph-20", "graph-25", "graph-30"]
    assert seen == [0, 1, 2, 3]
    for graph, order in zip([*graphs, graphs[0]], orders, strict=True):
        wanted = solve(Problem(graph), "order-search", evaluations=50).value
        verify(Problem(graph), Schedule.single_device(order), peak_per_device=[wanted])
    again = search(graphs[::-1])
    assert len(counted) == 3
    assert [order.tolist() for order in again] == [order.tolist() for order in orders[2::-1]]
    search(graphs[:1], evaluations=60)
    search(graphs[:1], seed=1)
    assert len(counted) == 5


def test_gaps_count_the_bytes_that_stay(tmp_path):
    (plain,) = layered(30)
    heavy = dataclasses.replace(plain, persistent=np.full(plain.num_ops, 10**9))
    order = good_order(plain, 1, np.random.default_rng(0))[None]
    gaps = []
    for graph in (plain, heavy):
        settings = dataclasses.replace(TOPOFORMER, network=dataclasses.replace(TINY, eigenvectors=0))
        trainer = Trainer(tmp_path, settings, validation=[graph], validation_orders=order)
        gaps.append(trainer.validate(trainer.network)["greedy_gap_percent"])
    assert 0 < abs(gaps[1]) < abs(gaps[0]) / 100
