"""Training: its gradients are those of the paper, it learns, and no stop or kill at any moment changes a bit of it."""

import dataclasses
import itertools
import math
from functools import partial

import naive
import numpy as np
import pytest
import torch
from models.runs import At, assert_same_run, board_of, run_killed_at_any_moment, weights_of
from safetensors import safe_open
from schedopt.core.errors import FormatError, TrainingError, UsageError
from schedopt.core.graph import GraphBuilder
from schedopt.core.kernels.one_device.priority_orders import price_orders
from schedopt.core.solve import solve
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.policies.topoformer import training as training
from schedopt.policies.topoformer.network import NetworkParameters, PriorityPolicy, load_network
from schedopt.policies.topoformer.priorities import Decoded
from schedopt.policies.topoformer.training import (
    KIND,
    Phase,
    Trainer,
    TrainingParameters,
    advantages,
    gap_percent,
    settings_of,
    shipped_recipe,
)
from schedopt.policies.topoformer.training_graphs import encoded_examples
from schedopt.policies.training.run_folder import (
    CHECKPOINT,
    CONFIG,
    CURVE,
    WEIGHTS,
    check_same,
    curve_of,
    has_checkpoint,
)

TINY = NetworkParameters(layers=1, width=8, head_width=4, heads=1, eigenvectors=2)
IMITATE = Phase(epochs=2, graphs=6, nodes=(8, 12), batch=4, reinforce=0.0, imitation=1.0, teacher_width=5)
REINFORCE = Phase(epochs=2, graphs=6, nodes=(8, 12), batch=4, learning_rate=0.01, samples=2)
PARAMETERS = TrainingParameters(
    network=TINY,
    phases=(IMITATE, REINFORCE),
    validation_graphs=2,
    validation_nodes=12,
    checkpoint_seconds=0.0,
)
STEPS = 8


def with_phase(**settings):
    return dataclasses.replace(PARAMETERS, phases=(dataclasses.replace(REINFORCE, **settings),))


def layered(*sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [layered_graph(LayeredParameters(nodes=size), rng, f"graph-{size}") for size in sizes]


def gradient(network):
    return torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in network.parameters()]
    )


class Enumerated:
    """A trainer on small graphs, all of whose orders are known."""

    def __init__(self, folder, parameters, pairs):
        shape = dataclasses.replace(TINY, eigenvectors=0)  # no signs are drawn
        self.trainer = Trainer(folder, dataclasses.replace(parameters, network=shape))
        self.examples = encoded_examples([graph for graph, _ in pairs], [], 0)
        self.orders = [np.array(list(naive.all_orders(plain)), np.int32) for _, plain in pairs]
        self.costs = [
            price_orders(graph.buffers, orders) for (graph, _), orders in zip(pairs, self.orders, strict=True)
        ]
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


def test_sampled_steps_agree_with_the_enumerated_gradient(tmp_path):
    """The same with the trainer's own samples: within four standard errors."""
    (pair,) = small_graphs(1, 8, seed=1)
    case = Enumerated(tmp_path, with_phase(samples=4000, baseline="greedy-rollout"), [pair])
    costs = torch.from_numpy(case.costs[0]) / case.greedy[0]
    wanted = case.gradient_of((case.log_probabilities(0).exp() * costs).sum())
    log_probabilities = case.log_probabilities(0)
    scores = torch.stack([case.gradient_of(case.log_probabilities(0)[row]) for row in range(len(costs))])
    probabilities = log_probabilities.exp().detach()
    terms = (costs - 1)[:, None] * scores
    variance = (probabilities[:, None] * (terms - wanted).square()).sum(0)
    found = case.gradient_of(case.trainer._loss(case.trainer.parameters.phases[0], case.examples))
    assert ((found - wanted).abs() <= 4 * (variance / 4000).sqrt() + 1e-5).all()


def test_imitation_is_the_mean_log_probability_per_op(tmp_path):
    pairs = [naive.random_graph(np.random.default_rng(seed), 6 + seed) for seed in range(2)]
    case = Enumerated(tmp_path, with_phase(reinforce=0.0, imitation=0.5), pairs)
    case.examples = encoded_examples([g for g, _ in pairs], [o[-1] for o in case.orders], 0)
    wanted = -0.5 * sum(case.log_probabilities(at)[-1] / len(case.orders[at][0]) for at in range(2)) / 2
    loss = case.trainer._loss(case.trainer.parameters.phases[0], case.examples)
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-4)


def test_the_policys_own_beam_is_imitated_where_it_beats_the_samples(tmp_path, monkeypatch):
    pairs = small_graphs(2, 20, seed=4)
    case = Enumerated(tmp_path, with_phase(reinforce=1e-9, imitation=1.0, teacher="policy", teacher_width=50), pairs)
    best, worst = [np.argmin(costs) for costs in case.costs], [np.argmax(costs) for costs in case.costs]
    drawn = [
        Decoded(case.orders[0][[worst[0]] * 2], case.costs[0][[worst[0]] * 2]),
        Decoded(case.orders[1][[worst[1], best[1]]], case.costs[1][[worst[1], best[1]]]),
    ]
    monkeypatch.setattr(PriorityPolicy, "sample", lambda policy, count, rng: drawn)
    (beam,) = case.policy([0]).beam(50)
    row = case.orders[0].tolist().index(beam.orders[0].tolist())
    wanted = -case.log_probabilities(0)[row] / len(beam.orders[0]) / 2  # nothing from the second
    loss = case.trainer._loss(case.trainer.parameters.phases[0], case.examples)
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-4)


def test_advantages_are_shares_of_the_baseline():
    costs = np.array([[4.0, 8.0, 6.0], [10.0, 10.0, 10.0]])
    rollout = advantages(costs, np.array([[8.0], [5.0]]))
    np.testing.assert_allclose(rollout, [[-0.5, 0, -0.25], [1, 1, 1]])
    others = advantages(costs, None)
    np.testing.assert_allclose(others, [[4 / 7 - 1, 8 / 5 - 1, 0], [0, 0, 0]])


def test_graphs_without_memory_are_no_division_by_zero():
    assert np.isfinite(advantages(np.zeros((1, 2)), None)).all()
    assert np.isfinite(advantages(np.zeros((1, 2)), np.zeros((1, 1)))).all()
    assert gap_percent(0, 0) == 0
    assert gap_percent(15, 10) == 50


def test_the_rollout_is_refreshed_when_greedy_gets_better(tmp_path, monkeypatch):
    """C.4: the baseline stays the best so far on the validation graphs, the initial network included."""
    trainer = Trainer(tmp_path, with_phase(epochs=5, samples=1))
    gaps = iter([10.0, 12.0, 9.0, 9.0, 9.5, 3.0])
    histories = [], []

    def validate(network, must_stop):
        histories[0].append(weights_of(network))
        histories[1].append(weights_of(trainer.rollout))
        return {"greedy": next(gaps), "sample": 1.0, "beam": 1.0}

    monkeypatch.setattr(trainer, "validate", validate)
    assert trainer.run()
    network, rollout = histories
    copied_from = [next(at for at in range(6) if torch.equal(network[at], weights)) for weights in rollout]
    assert copied_from == [0, 0, 0, 2, 2, 2]
    assert torch.equal(weights_of(trainer.rollout), network[5])


def test_the_weights_of_the_smallest_mean_gap_are_kept(tmp_path, monkeypatch):
    trainer = Trainer(tmp_path, with_phase(epochs=4))
    scores = iter([(9.0, 8.0), (5.0, 7.0), (6.0, 5.5), (5.0, 4.0), (7.0, 3.0)])
    seen = []

    def validate(network, must_stop):
        seen.append(weights_of(network))
        sample, beam = next(scores)
        return {"greedy": 10.0, "sample": sample, "beam": beam}

    monkeypatch.setattr(trainer, "validate", validate)
    assert trainer.run()
    assert torch.equal(weights_of(load_network(tmp_path / WEIGHTS)), seen[3])
    assert trainer.place.best == 4.5


def test_learning_rates_decay_per_epoch_of_each_phase(tmp_path, monkeypatch):
    phases = (
        dataclasses.replace(IMITATE, epochs=2, learning_rate=0.1, decay=0.5),
        dataclasses.replace(REINFORCE, epochs=2, learning_rate=0.01, decay=0.1),
    )
    trainer, rates = Trainer(tmp_path, dataclasses.replace(PARAMETERS, phases=phases)), []
    trainer.run(lambda progress: rates.append(trainer.optimiser.param_groups[0]["lr"]))
    assert rates == pytest.approx([0.1] * 2 + [0.05] * 2 + [0.01] * 2 + [0.001] * 2)


def test_gradients_are_clipped(tmp_path):
    trainer = Trainer(tmp_path, dataclasses.replace(PARAMETERS, clip=1e-3))
    norms = []
    trainer.run(lambda progress: norms.append(float(gradient(trainer.network).norm())))
    assert max(norms) <= 1e-3 * (1 + 1e-5)


def test_learning_works(tmp_path):
    """Imitation brings the samples near the search's orders, REINFORCE the greedy order."""
    common = {"epochs": 1, "nodes": (30, 40), "batch": 16, "learning_rate": 3e-3}
    phases = (
        Phase(**common, graphs=320, reinforce=0.0, imitation=1.0, teacher_width=20),
        Phase(**common, graphs=320, samples=8, baseline="leave-one-out"),
    )
    shape = dataclasses.replace(TINY, width=16)
    parameters = TrainingParameters(network=shape, phases=phases, validation_graphs=12, validation_nodes=40)
    trainer = Trainer(tmp_path, parameters)
    likelihood = []

    def on_step(progress):
        likelihood.extend(trainer._measured.get("imitated_log_probability", [])[-1:])

    trainer.run(on_step)
    before, imitated, reinforced = curve_of(tmp_path)
    assert np.mean(likelihood[15:20]) > np.mean(likelihood[:5]) + 0.1
    assert imitated["sample_gap_percent"] < 0.75 * before["sample_gap_percent"]
    assert reinforced["greedy_gap_percent"] < 0.9 * imitated["greedy_gap_percent"]


@pytest.mark.parametrize(
    ("encoder", "decoder"),
    [
        ("topoformer-edges", "priorities"),
        ("mlp", "priorities"),
        ("transformer", "priorities"),
        ("gat", "priorities"),
        ("gat-bidirectional", "priorities"),
        ("edge-transformer", "autoregressive"),
        ("topoformer", "autoregressive"),
    ],
)
def test_every_network_trains(encoder, decoder, tmp_path):
    shape = dataclasses.replace(TINY, encoder=encoder, decoder=decoder)
    phase = dataclasses.replace(REINFORCE, epochs=1, imitation=1.0, teacher_width=5)
    trainer = Trainer(tmp_path, dataclasses.replace(PARAMETERS, network=shape, phases=(phase,)))
    before = weights_of(trainer.network)
    assert trainer.run()
    assert not torch.equal(weights_of(trainer.network), before)
    assert load_network(tmp_path / WEIGHTS).parameters_ == shape


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the folder of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    assert Trainer(folder, PARAMETERS).run()
    return folder


def test_the_curve_has_a_line_per_epoch_and_one_before(whole):
    curve = curve_of(whole)
    where = [(line["phase"], line["epoch"], line["step"]) for line in curve]
    assert where == [(1, 0, 0), (1, 1, 2), (1, 2, 4), (2, 1, 6), (2, 2, 8)]
    seconds = [line["seconds"] for line in curve]
    assert seconds == sorted(seconds)
    assert {"imitated_log_probability", "loss", "learning_rate"} <= curve[1].keys()
    assert {"sampled_mib", "loss", "learning_rate"} <= curve[3].keys()
    assert "sampled_mib" not in curve[1]
    assert settings_of(whole) == PARAMETERS


def test_tensorboard_shows_the_curve(whole):
    board, curve = board_of(whole), curve_of(whole)
    assert {"loss", "sampled_mib", "greedy_gap_percent", "sample_gap_percent", "beam_gap_percent"} <= board.keys()
    for name, events in board.items():
        wanted = [(line["step"], pytest.approx(line[name], rel=1e-6)) for line in curve if name in line]
        assert events == wanted


def test_the_same_seed_gives_the_same_weights_and_leaves_torchs_generator_alone(whole, two_threads, tmp_path):
    torch.manual_seed(1)
    before, modes = torch.get_rng_state(), set()
    assert Trainer(tmp_path, PARAMETERS).run(lambda progress: modes.add(torch.are_deterministic_algorithms_enabled()))
    assert modes == {True}  # without it, several threads add up gradients in the order in which they come
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.are_deterministic_algorithms_enabled()
    assert_same_run(tmp_path, whole)


def test_every_step_has_random_numbers_of_its_own(tmp_path):
    trainer, numbers = Trainer(tmp_path, PARAMETERS), []
    trainer.run(lambda progress: numbers.extend(trainer._rng(purpose).random() for purpose in (0, 1)))
    assert len(set(numbers)) == 2 * STEPS


def test_another_seed_gives_others(whole, tmp_path):
    trainer = Trainer(tmp_path, dataclasses.replace(PARAMETERS, seed=1))
    trainer.run(must_stop=lambda: trainer.place.step == 1)
    assert not torch.equal(weights_of(trainer.network), weights_of(Trainer(whole, PARAMETERS).network))


def test_jobs_do_not_change_the_weights(whole, tmp_path):
    assert Trainer(tmp_path, PARAMETERS, jobs=2).run()
    assert_same_run(tmp_path, whole)


@pytest.mark.parametrize("often", [1, 2])
def test_a_run_stopped_again_and_again_is_the_same(often, whole, tmp_path):
    """Stopped after each step, or two, and in validations, which ask per graph."""
    stops = 0
    while not Trainer(tmp_path, PARAMETERS).run(must_stop=At(often + stops % 4)):
        assert has_checkpoint(tmp_path)
        stops += 1
        assert stops < 40
    assert stops >= 5
    assert_same_run(tmp_path, whole)


def test_a_run_killed_at_any_moment_is_the_same(whole, tmp_path, monkeypatch):
    modules = ("training.run_folder", "networks.files")
    kills = run_killed_at_any_moment(lambda: Trainer(tmp_path, PARAMETERS), monkeypatch, modules)
    assert kills > 10
    assert_same_run(tmp_path, whole)
    names = {
        path.name for path in tmp_path.iterdir() if "tfevents" not in path.name and not path.name.endswith(".half")
    }
    assert names == {CHECKPOINT, CONFIG, CURVE, WEIGHTS}


def test_what_a_kill_left_half_written_is_removed(tmp_path):
    for name in (CHECKPOINT, WEIGHTS):
        (tmp_path / f".{name}.ab12").write_bytes(b"half")
    trainer = Trainer(tmp_path, PARAMETERS)
    trainer.run(must_stop=lambda: True)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_finished_run_does_nothing(whole):
    before = {path.name: path.read_bytes() for path in whole.iterdir()}
    trainer = Trainer(whole, PARAMETERS)
    assert trainer.is_finished
    assert trainer.run(lambda progress: pytest.fail("there is no step left"))
    assert {path.name: path.read_bytes() for path in whole.iterdir()} == before


def test_checkpoints_are_written_when_their_time_has_come(tmp_path, monkeypatch):
    trainer = Trainer(tmp_path, dataclasses.replace(PARAMETERS, checkpoint_seconds=1000.0))
    steps, write = [], trainer._write_checkpoint
    monkeypatch.setattr(trainer, "_write_checkpoint", lambda: (steps.append(trainer.place.step), write()))
    trainer.run()
    assert steps == [0, 0, 2, 4, 6, 8]


def test_progress_tells_where_a_run_is(tmp_path):
    seen = []
    Trainer(tmp_path, PARAMETERS).run(seen.append)
    assert [progress.place.step for progress in seen] == list(range(1, STEPS + 1))
    assert [progress.share_done for progress in seen] == pytest.approx([at / STEPS for at in range(1, STEPS + 1)])
    assert {progress.batches for progress in seen} == {2}


def test_a_run_with_other_settings_is_refused_by_their_names(whole):
    phases = (IMITATE, dataclasses.replace(REINFORCE, samples=3))
    others = dataclasses.replace(PARAMETERS, phases=phases, seed=4)
    before = (whole / CONFIG).read_text()
    for refuse in (Trainer, partial(check_same, kind=KIND)):
        with pytest.raises(UsageError, match=r"checkpoint.*another seed, phases\.1\.samples; go on with the same"):
            refuse(whole, parameters=others)
    assert (whole / CONFIG).read_text() == before
    check_same(whole, KIND, dataclasses.replace(PARAMETERS, checkpoint_seconds=7.0))


def test_a_run_on_other_graphs_is_refused(whole, tmp_path):
    graphs, parameters = layered(10, 12), with_phase(epochs=1, graphs=2)
    assert Trainer(tmp_path, parameters, graphs=graphs, validation=graphs).run()
    assert Trainer(tmp_path, parameters, graphs=graphs, validation=graphs).is_finished
    for kwargs in ({}, {"graphs": graphs}, {"graphs": graphs, "validation": graphs[:1]}, {"graphs": graphs[::-1]}):
        with pytest.raises(UsageError, match="is of a run on other graphs"):
            Trainer(tmp_path, parameters, **kwargs)
    with pytest.raises(UsageError, match="is of a run on other graphs"):
        Trainer(whole, PARAMETERS, graphs=graphs, orders=[graph.input_order for graph in graphs])


def test_a_checkpoint_from_before_graphs_were_hashed_is_gone_on_with(whole, tmp_path):
    from safetensors.torch import save_file

    with safe_open(str(whole / CHECKPOINT), "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = {name: value for name, value in file.metadata().items() if name not in ("graphs", "shape")}
    save_file(tensors, tmp_path / CHECKPOINT, about)
    assert Trainer(tmp_path, PARAMETERS).is_finished


@pytest.mark.parametrize("damage", ["empty", "cut", "weights", "text"])
def test_a_file_that_is_no_checkpoint_is_refused(damage, whole, tmp_path):
    data = {
        "empty": b"",
        "cut": (whole / CHECKPOINT).read_bytes()[:-10],
        "weights": (whole / WEIGHTS).read_bytes(),
        "text": b"hello",
    }
    (tmp_path / CHECKPOINT).write_bytes(data[damage])
    for read in (settings_of, lambda folder: Trainer(folder, PARAMETERS)):
        with pytest.raises(FormatError, match=r"checkpoint\.safetensors: is not a checkpoint of schedopt train"):
            read(tmp_path)


def test_a_loss_that_is_no_number_ends_the_run_and_the_checkpoint_stays(whole, tmp_path, monkeypatch):
    parameters = dataclasses.replace(PARAMETERS, checkpoint_seconds=1000.0)
    with monkeypatch.context() as patch:
        patch.setattr(training, "advantages", lambda costs, rollout: np.full(costs.shape, np.nan))
        with pytest.raises(TrainingError, match="step 5: the loss or its gradient is not a number any more"):
            Trainer(tmp_path, parameters).run()
    trainer = Trainer(tmp_path, parameters)
    assert trainer.place.step == 4
    assert all(torch.isfinite(value).all() for value in trainer.network.state_dict().values())
    assert trainer.run()
    assert (tmp_path / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()


@pytest.mark.parametrize("at", ["step", "validation"])
def test_weights_that_overflow_end_the_run(at, tmp_path):
    trainer = Trainer(tmp_path, with_phase(epochs=1))

    def break_weights(progress):
        if progress.place.step == (1 if at == "step" else 2):
            with torch.no_grad():
                trainer.network.norm.weight.fill_(float("inf"))

    with pytest.raises(TrainingError, match="network's output is not a number any more"):
        trainer.run(break_weights)


def test_given_graphs_are_trained_and_validated_on(tmp_path):
    """Gaps are to the given orders, or else to the input orders."""
    graphs = layered(10, 14, 12)
    orders = [solve_order(graph) for graph in graphs]
    parameters = dataclasses.replace(PARAMETERS, phases=(dataclasses.replace(IMITATE, epochs=30, learning_rate=0.01),))
    trainer = Trainer(
        tmp_path / "a", parameters, graphs=graphs, orders=orders, validation=graphs, validation_orders=orders
    )
    assert trainer.run()
    curve = curve_of(tmp_path / "a")
    assert curve[-1]["imitated_log_probability"] > curve[1]["imitated_log_probability"] + 0.3
    assert curve[-1]["beam_gap_percent"] < 5
    to_search = trainer.validate(trainer.network)
    to_input = Trainer(tmp_path / "b", parameters, graphs=graphs, orders=orders, validation=graphs)
    to_input.network.load_state_dict(trainer.network.state_dict())
    gaps = to_input.validate(to_input.network)
    peaks = [
        [price_orders(g.buffers, o[None])[0] for g, o in zip(graphs, which, strict=True)]
        for which in (orders, [graph.input_order for graph in graphs])
    ]
    assert gaps["beam"] < to_search["beam"]
    if to_search["beam"] == 0:
        assert gaps["beam"] == pytest.approx(np.mean([100 * (s / i - 1) for s, i in zip(*peaks, strict=True)]))


def solve_order(graph):
    from schedopt.core.problem import Problem

    return solve(Problem(graph), "order-search", evaluations=200).schedule.op_order()


def test_validation_has_the_same_random_choices_each_time(whole):
    trainer = Trainer(whole, PARAMETERS)
    assert trainer.validate(trainer.network) == trainer.validate(trainer.network)
    assert trainer.network.training


def test_what_cannot_be_trained_is_refused(tmp_path):
    builder = GraphBuilder("chain")
    builder.add_op("0", outputs=[1])
    for op in range(1, training.MOST_OPS + 1):
        builder.add_op(str(op), inputs=[(op - 1, 0)], outputs=[1])
    with pytest.raises(UsageError, match=r"graph chain has 10,001 ops, and training takes up to 10,000; leave it out"):
        Trainer(tmp_path, PARAMETERS, validation=[builder.build()])
    with pytest.raises(UsageError, match="given graphs need orders to imitate"):
        Trainer(tmp_path, PARAMETERS, graphs=layered(10))
    with pytest.raises(FormatError, match="no/such"):
        Trainer(tmp_path, dataclasses.replace(PARAMETERS, start="no/such"))
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="device cuda is not available here; use cpu"):
            Trainer(tmp_path, dataclasses.replace(PARAMETERS, device="cuda"))
    (tmp_path / "file").touch()
    with pytest.raises(FormatError, match="file: cannot be written to"):
        Trainer(tmp_path / "file", PARAMETERS).run()
    assert not has_checkpoint(tmp_path)


def test_training_starts_from_weights_and_takes_their_shape(whole, tmp_path):
    """The run goes on when those weights are gone."""
    start = tmp_path / "start.safetensors"
    start.write_bytes((whole / WEIGHTS).read_bytes())
    parameters = dataclasses.replace(PARAMETERS, start=str(start), network=NetworkParameters())
    trainer = Trainer(tmp_path / "run", parameters)
    assert trainer.network.parameters_ == TINY
    assert torch.equal(weights_of(trainer.network), weights_of(load_network(start)))
    trainer.run(must_stop=lambda: trainer.place.step == 1)
    start.unlink()
    again = Trainer(tmp_path / "run", parameters)
    assert again.place.step == 1
    assert torch.equal(weights_of(again.network), weights_of(trainer.network))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"nodes": (5, 4)}, "nodes must be two sizes from 1 to 10000, the smaller first, not"),
        ({"nodes": (5, 20_000)}, "nodes must be two sizes from 1 to 10000"),
        ({"reinforce": 0.0}, "reinforce and imitation must not both be 0"),
        ({"samples": 1, "baseline": "leave-one-out"}, "needs at least 2 samples"),
        ({"learning_rate": float("nan")}, "learning_rate must be from 0.0 to 1.0, not nan"),
    ],
)
def test_a_phase_that_makes_no_sense_is_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        dataclasses.replace(REINFORCE, **settings)


def test_the_shipped_recipe_is_that_of_the_shipped_weights(tmp_path, monkeypatch):
    assert load_network(training.RECIPE.with_suffix(".safetensors")).parameters_ == (shipped_recipe().network)
    recipe = tmp_path / "topoformer-layered.yaml"
    monkeypatch.setattr(training, "RECIPE", recipe)
    assert shipped_recipe() == TrainingParameters()
    recipe.write_text("curve: []\nrecipe: {seed: 3, device: cuda, phases: [{epochs: 2}]}\n")
    assert shipped_recipe() == TrainingParameters(seed=3, phases=(Phase(epochs=2),))
