"""Training of REGAL: settings, what makes no sense, recipes, and what its losses push."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from models.runs import gradient, weights_of
from models.small_graphs import sketch
from models.trainers import METHODS, REGAL, REGAL_IMITATE, REGAL_REINFORCE, regal_cases, synthetic
from schedopt import Problem, UsageError
from schedopt.core.solve.solve import solve
from schedopt.policies.networks.network import write_network
from schedopt.policies.regal.actions import ActionParameters
from schedopt.policies.regal.network import load_network, multigraph_batch
from schedopt.policies.regal.rewards import found_value
from schedopt.policies.regal.teachers import TEACHERS
from schedopt.policies.regal.training import Trainer, recipe
from schedopt.policies.training import settings
from schedopt.policies.training.run_folder import WEIGHTS, curve_of

SHAPE = REGAL.network
with_phase = METHODS["regal"].with_phase


def pair(name, size, runtime):
    """Return two ops, one after the other."""
    return sketch(f"a -> {size} 3 us={runtime}; b: a -> 5 us=7", name)


def single(name):
    return sketch("a -> 2f us=30", name)


class Enumerated:
    """A trainer on graphs of one or two ops, each with four actions, whose rewards are any function of the actions."""

    def __init__(self, folder, phase, graphs, monkeypatch, **shape):
        actions = ActionParameters(placement=0, scheduling=2)
        shape = dataclasses.replace(SHAPE, width=4, actions=actions, **shape)
        self.trainer = Trainer(folder, dataclasses.replace(with_phase(phase), network=shape))
        with torch.no_grad():
            for weights in self.trainer.network.parameters():
                weights *= 3  # away from uniform
        self.cases = regal_cases(graphs, shape)
        self.actions = [
            torch.tensor(list(itertools.product(range(2), repeat=2 * graph.num_ops))).reshape(-1, graph.num_ops, 2)
            for graph in graphs
        ]
        rng = np.random.default_rng(5)
        self.rewards = [-1 + rng.normal(scale=0.5, size=len(actions)) for actions in self.actions]
        self.monkeypatch = monkeypatch

    def policy(self, numbers):
        return self.trainer.network(multigraph_batch([self.cases[number].searched for number in numbers]))

    def chances(self, number):
        return self.policy([number]).log_probability(self.actions[number])[:, 0].double().exp()

    def expected_reward(self):
        of_graphs = [(self.chances(at) * torch.from_numpy(of_graph)).sum() for at, of_graph in enumerate(self.rewards)]
        return sum(of_graphs) / len(of_graphs)

    def gradient_of(self, loss, network=None):
        network = network or self.trainer.network
        network.zero_grad()
        loss.backward()
        return gradient(network)

    def mean_over_draws(self, samples):
        """Return the mean of the trainer's loss over all that it may draw, by probability."""
        graphs = range(len(self.cases))
        chances = [self.chances(at).tolist() for at in graphs]
        assert all(sum(p) == pytest.approx(1, abs=1e-5) for p in chances)
        trainer, phase, policy = self.trainer, self.trainer.parameters.phases[0], type(self.policy([0]))
        total = 0.0
        for rows in itertools.product(*(range(len(actions)) for actions in self.actions * samples)):
            rows = np.array(rows).reshape(samples, len(graphs))
            rows_of = [[self.actions[at][row] for at, row in enumerate(of_sample)] for of_sample in rows]
            drawn = torch.stack([torch.cat(chosen) for chosen in rows_of])
            rewards = np.stack([self.rewards[at][rows[:, at]] for at in graphs], axis=1)
            self.monkeypatch.setattr(policy, "sample", lambda policy, count, generator, drawn=drawn: drawn)
            self.monkeypatch.setattr(trainer, "_rewards", lambda phase, cases, actions, found=rewards: found[None])
            weight = math.prod(chances[at][row] for of_sample in rows for at, row in enumerate(of_sample))
            total = total + weight * trainer._loss(phase, self.cases)
        return total


@pytest.mark.slow
@pytest.mark.parametrize("shape", [{}, {"encoder": "lstm", "decoder": "autoregressive"}], ids=["gnn", "autoregressive"])
def test_reinforce_follows_the_gradient_of_the_expected_reward(shape, tmp_path, monkeypatch):
    """4.1, by enumeration of the actions of a batch of two graphs; the baseline network changes nothing on average."""
    phase = dataclasses.replace(REGAL_REINFORCE, baseline="network", samples=1)
    case = Enumerated(tmp_path, phase, [pair("two", 9, 2.0), single("one")], monkeypatch, **shape)
    wanted = -case.gradient_of(case.expected_reward())
    assert wanted.abs().max() > 1e-3
    found = case.gradient_of(case.mean_over_draws(1))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_the_baseline_network_learns_the_rewards(tmp_path, monkeypatch):
    """Its gradient is that of the expected squared error, with the paper's weight (A.14)."""
    phase = dataclasses.replace(REGAL_REINFORCE, baseline="network", samples=1)
    case = Enumerated(tmp_path, phase, [pair("two", 9, 2.0)], monkeypatch)
    baseline = case.trainer.baseline
    found = case.gradient_of(case.mean_over_draws(1), baseline)
    expected = baseline(multigraph_batch([case.cases[0].searched]))[0]
    errors = (torch.from_numpy(case.rewards[0]) - expected).square()
    wanted = case.gradient_of(1e-4 * (case.chances(0).detach() * errors).sum(), baseline)
    assert wanted.abs().max() > 1e-6
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-9)


def test_leave_one_out_is_unbiased(tmp_path, monkeypatch):
    case = Enumerated(tmp_path, REGAL_REINFORCE, [single("one")], monkeypatch)
    case.rewards[0] += 10  # a constant is nothing to it
    wanted = -case.gradient_of(case.expected_reward())
    assert wanted.abs().max() > 1e-3
    found = case.gradient_of(case.mean_over_draws(2))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def test_rewards_are_those_of_searches_with_the_actions(tmp_path, monkeypatch):
    """By hand: -o_a / o_s of every sample and graph, from the same random numbers for all samples of a graph."""
    parameters = with_phase(samples=3)
    trainer = Trainer(tmp_path, parameters)
    tmp_path.mkdir(exist_ok=True)
    with trainer._at_work():
        cases = [trainer._training.get((number, 1), 120) for number in (0, 3)]
        actions = torch.randint(0, 2, (3, sum(len(case.searched.nodes) for case in cases), len(SHAPE.heads)))
        actions[2] = actions[0]
        found = trainer._rewards(parameters.phases[0], cases, actions)
        monkeypatch.setattr(
            "schedopt.policies.regal.training.found_value", None
        )  # what was found is not searched again
        assert (trainer._rewards(parameters.phases[0], cases, actions) == found).all()
        monkeypatch.undo()
        monkeypatch.setattr("schedopt.policies.regal.training._MOST_FOUND", 1)  # forgets amid a step
        again = torch.cat((actions, 1 - actions))
        assert (trainer._rewards(parameters.phases[0], cases, again)[:3] == found).all()
        assert (trainer._rewards(parameters.phases[0], cases, again.flip(0))[3:] == found[::-1]).all()
    first = 0
    for at, case in enumerate(cases):
        problem = case.start.problem
        ops = problem.graph.num_ops
        assert case.plain == solve(problem, "brkga", evaluations=120, seed=1).value
        for sample in range(3):
            chosen = actions[sample, first : first + ops].numpy()
            wanted = -found_value(case.start, chosen, SHAPE.actions, 120) / case.plain
            assert found[sample, at] == pytest.approx(wanted)
        first += ops
    assert (found[0] == found[2]).all()
    assert len(np.unique(found)) > 2


@pytest.mark.slow
def test_imitation_raises_the_likelihood(tmp_path):
    trainer = Trainer(tmp_path, with_phase(REGAL_IMITATE, epochs=3, steps=10, learning_rate=0.02))
    assert trainer.run()
    likelihood = [line["imitated_log_probability"] for line in curve_of(tmp_path)[1:]]
    per_choice = np.mean([math.log(head.choices) for head in SHAPE.heads])
    assert likelihood[0] > -per_choice - 0.05
    assert likelihood[2] > likelihood[1] > likelihood[0]
    assert likelihood[2] > -0.5 * per_choice
    (case,) = regal_cases(synthetic(1), SHAPE)
    chosen = trainer.network(multigraph_batch([case.searched])).expected().numpy()
    np.testing.assert_array_equal(chosen, TEACHERS["uniform"](case.searched, SHAPE.actions))


@pytest.mark.slow
def test_training_raises_the_reward(tmp_path):
    """On two graphs, with the same random numbers again and again, and so few evaluations that choices matter most."""
    graphs = synthetic(2, 20, 22, seed=3)
    phase = dataclasses.replace(REGAL_REINFORCE, epochs=3, steps=20, samples=8, learning_rate=0.03, evaluations=20)
    shape = dataclasses.replace(SHAPE, actions=ActionParameters(placement=2, scheduling=2))
    parameters = dataclasses.replace(with_phase(phase), network=shape, seeds=1)
    assert Trainer(tmp_path, parameters, graphs=graphs, validation=graphs).run()
    curve = curve_of(tmp_path)
    assert curve[-1]["reward"] > curve[1]["reward"] + 0.005
    assert curve[-1]["entropy"] < curve[0]["entropy"]


@pytest.mark.slow
@pytest.mark.parametrize("links", [{}, {"bandwidth": 1e6, "latency": 20.0}], ids=["free", "paid"])
def test_validations_tell_how_much_better_than_plain_brkga_the_policy_is(links, tmp_path):
    """What `solve --method regal` gives on given graphs, features included in the budget, and to `brkga`."""
    graphs = synthetic(3, 10, 12, seed=9)
    trainer = Trainer(tmp_path, dataclasses.replace(REGAL, **links), validation=graphs)
    with trainer._at_work():
        found = trainer.validate(trainer.network)
    write_network(tmp_path / "some.safetensors", trainer.network)
    entropies = []
    for graph in graphs:
        (case,) = regal_cases([graph], SHAPE, **links)
        entropies.append(trainer.network(multigraph_batch([case.searched])).entropy("placement").item())
    for actions in ("sample", "most-likely", "expected"):
        method = f"regal:features=100:weights={tmp_path / 'some.safetensors'}:actions={actions}"
        ratios = []
        for graph in graphs:
            problem = Problem(graph, task="runtime", devices=2, **links)
            plain, found_by_method = (solve(problem, m, evaluations=300, seed=0).value for m in ("brkga", method))
            ratios.append(100 * (1 - found_by_method / plain))
        name = actions.replace("-", "_")
        assert found[f"{name}_improvement_percent"] == pytest.approx(np.mean(ratios))
        assert found[f"{name}_matched_percent"] == pytest.approx(100 * np.mean(np.array(ratios) > -1e-9))
        assert len(set(ratios)) > 1
    assert found["placement_entropy"] == pytest.approx(np.mean(entropies), rel=1e-5)
    assert found["entropy"] > found["placement_entropy"]


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "taken"), [("sample", "expected"), ("expected", "sample"), ("", "most-likely")])
def test_the_weights_of_the_largest_improvement_are_kept(keep, taken, tmp_path, monkeypatch):
    shape = dataclasses.replace(SHAPE, taken=taken)
    trainer = Trainer(tmp_path, dataclasses.replace(with_phase(epochs=3), keep=keep, network=shape))
    improvements = iter([(1.0, 1.0, 1.0), (3.0, 2.0, 2.0), (2.0, 5.0, 3.0), (-4.0, 3.0, 4.0)])
    seen = []

    def validate(network, must_stop, on_graph):
        seen.append(weights_of(network))
        names = Trainer.validated
        return dict(zip(names, next(improvements), strict=True))

    monkeypatch.setattr(trainer, "validate", validate)
    assert trainer.run()
    best = {"sample": 1, "most-likely": 2, "expected": 3}[keep or taken]
    assert torch.equal(weights_of(load_network(tmp_path / WEIGHTS)), seen[best])
    assert load_network(tmp_path / WEIGHTS).parameters_ == shape


@pytest.mark.parametrize(("name", "value"), [("task", "memory"), ("devices", 3), ("encoder", "lstm")])
def test_weights_for_something_else_are_not_started_from(name, value, tmp_path):
    write_network(tmp_path / WEIGHTS, Trainer(tmp_path / "run", REGAL).network)
    network = dataclasses.replace(SHAPE, **{name: value})
    with pytest.raises(UsageError, match=f"is a network of {name} .*, not {value}"):
        Trainer(tmp_path / "other", dataclasses.replace(REGAL, start=str(tmp_path / WEIGHTS), network=network))


def test_the_recipe_is_the_papers_until_weights_are_shipped(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "WEIGHTS", tmp_path)
    runtime, memory = (recipe("regal", task, 2).network for task in ("runtime", "memory"))
    assert (runtime.rounds, runtime.update, runtime.aggregation) == (2, "gru", "mean")  # A.16
    assert (runtime.actions.placement, runtime.actions.scheduling) == (2, 16)
    assert (memory.rounds, memory.aggregation, memory.task) == (16, "mean", "memory")  # A.14
    assert recipe("gas", "runtime", 4).network == dataclasses.replace(runtime, encoder="lstm", devices=4)
    (phase,) = recipe("regal", "memory", 2).phases
    assert (phase.graphs, phase.samples, phase.evaluations, phase.learning_rate) == (4, 1, 1000, 1e-4)
    (tmp_path / "regal-memory.yaml").write_text(
        "recipe: {seed: 3, device: cuda, network: {task: memory, rounds: 3}, phases: [{epochs: 2}]}\n"
    )
    shipped = recipe("regal", "memory", 5)
    assert (shipped.seed, shipped.device, shipped.network.rounds, shipped.network.devices) == (3, "cpu", 3, 5)
