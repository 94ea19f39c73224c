"""What every trainer keeps to: no stop, kill, worker or thread changes a bit of a run, and what is wrong is refused."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from models.runs import At, assert_same_run, board_of, gradient, run_killed_at_any_moment, weights_of
from models.trainers import METHODS
from schedopt import FormatError, TrainingError, UsageError
from schedopt.policies.training.run_folder import (
    CHECKPOINT,
    CONFIG,
    CURVE,
    WEIGHTS,
    check_ready,
    curve_of,
    has_checkpoint,
    read_checkpoint,
)
from schedopt.policies.training.trainable import Work

STEPS = 8


QUICK = [pytest.param(name, marks=() if name == "topoformer" else pytest.mark.slow) for name in METHODS]
"""Each method, one of them in the quick suite."""


@pytest.fixture(scope="module", params=METHODS)
def method(request):
    """Each method, with all its tests in a row."""
    return METHODS[request.param]


@pytest.fixture(scope="module")
def whole(method, tmp_path_factory):
    """Return the folder of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    assert method.trainer(folder).run()
    return folder


@pytest.mark.slow
def test_the_curve_has_a_line_per_epoch_and_one_before(method, whole):
    curve = curve_of(whole)
    assert [(line["phase"], line["epoch"], line["step"]) for line in curve] == method.epochs
    seconds = [line["seconds"] for line in curve]
    assert seconds == sorted(seconds)
    every = set().union(*method.measured)
    for line, measured in zip(curve, method.measured, strict=True):
        assert every & line.keys() == measured
        assert method.validated <= line.keys()
        assert ("learning_rate" in line) == (line["step"] > 0)


def test_tensorboard_shows_the_curve(method, whole):
    board, curve = board_of(whole), curve_of(whole)
    assert {*method.validated, *set().union(*method.measured), "learning_rate"} <= board.keys()
    for name, events in board.items():
        wanted = [(line["step"], pytest.approx(line[name], rel=1e-6)) for line in curve if name in line]
        assert events == wanted


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights_and_leaves_torchs_generator_alone(method, whole, two_threads, tmp_path):
    torch.manual_seed(1)
    before, modes = torch.get_rng_state(), set()
    trainer = method.trainer(tmp_path)
    assert trainer.run(lambda progress: modes.add(torch.are_deterministic_algorithms_enabled()))
    assert modes == {True}  # without it, several threads add up gradients in the order in which they come
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.are_deterministic_algorithms_enabled()
    assert_same_run(tmp_path, whole)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["topoformer", "regal"], indirect=True)
def test_jobs_do_not_change_the_weights(method, whole, tmp_path):
    assert method.trainer(tmp_path, jobs=2).run()
    assert_same_run(tmp_path, whole)


@pytest.mark.parametrize("method", QUICK, indirect=True)
@pytest.mark.parametrize("often", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_stopped_again_and_again_is_the_same(often, method, whole, tmp_path):
    """Stopped after each step, or two, and in validations, which ask per graph."""
    stops = 0
    while not method.trainer(tmp_path).run(must_stop=At(often + stops % 5)):
        assert has_checkpoint(tmp_path)
        stops += 1
        assert stops < 60
    assert stops >= 5
    assert_same_run(tmp_path, whole)


@pytest.mark.slow
@pytest.mark.parametrize("method", QUICK, indirect=True)
def test_a_run_killed_at_any_moment_is_the_same(method, whole, tmp_path, monkeypatch):
    kills = run_killed_at_any_moment(lambda: method.trainer(tmp_path), monkeypatch)
    assert kills > 10
    assert_same_run(tmp_path, whole)
    names = {path.name for path in tmp_path.iterdir() if not re.search(r"tfevents|\.half$", path.name)}
    assert names == {CHECKPOINT, CONFIG, CURVE, WEIGHTS, *method.files}


@pytest.mark.slow
def test_a_whole_run_step_by_step(method, tmp_path, monkeypatch):
    """Where it is, how much is done, its random numbers, its clipped gradients, and when it writes checkpoints."""
    parameters = dataclasses.replace(method.parameters, checkpoint_seconds=1000.0, clip=1e-3)
    trainer = method.trainer(tmp_path, parameters)
    seen, numbers, norms, written = [], [], [], []
    write = trainer._write_checkpoint
    monkeypatch.setattr(trainer, "_write_checkpoint", lambda: (written.append(trainer.place.step), write()))

    def on_step(progress):
        seen.append(progress)
        numbers.extend(trainer._rng(purpose).random() for purpose in (0, 1))
        norms.append(float(gradient(trainer.network).norm()))

    assert trainer.run(on_step)
    assert [progress.place.step for progress in seen] == list(range(1, STEPS + 1))
    done = np.cumsum(method.work) / sum(method.work)
    assert [progress.share_done for progress in seen] == pytest.approx(done.tolist())
    assert {progress.phase.steps for progress in seen} == {2}
    assert len(set(numbers)) == 2 * STEPS
    assert 0 < max(norms) <= 1e-3 * (1 + 1e-5)
    assert written == [0, 0, 2, 4, 6, 8]


@pytest.mark.slow
def test_learning_rates_decay_per_epoch_of_each_phase(method, tmp_path):
    phases = tuple(
        dataclasses.replace(method.reinforce, epochs=2, learning_rate=rate, decay=decay)
        for rate, decay in ((0.1, 0.5), (0.01, 0.1))
    )
    trainer, rates = method.trainer(tmp_path, dataclasses.replace(method.parameters, phases=phases)), []
    assert trainer.run(lambda progress: rates.append(trainer.optimiser.param_groups[0]["lr"]))
    assert rates == pytest.approx([0.1] * 2 + [0.05] * 2 + [0.01] * 2 + [0.001] * 2)
    of_epochs = [line["learning_rate"] for line in curve_of(tmp_path)[1:]]
    assert of_epochs == pytest.approx([0.1, 0.05, 0.01, 0.001])


def test_what_a_kill_left_half_written_is_removed(method, tmp_path):
    for name in (CHECKPOINT, WEIGHTS, CONFIG, CURVE):
        (tmp_path / f".{name}.ab12").write_bytes(b"half")
    method.trainer(tmp_path).run(must_stop=lambda: True)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_finished_run_does_nothing(method, whole):
    before = {path.name: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    trainer = method.trainer(whole)
    assert trainer.is_finished
    assert trainer.run(lambda progress: pytest.fail("there is no step left"))
    assert {path.name: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before


def test_a_run_with_other_settings_is_refused_by_their_names(method, whole):
    first, second, *rest = method.parameters.phases
    phases = (first, dataclasses.replace(second, samples=3), *rest)
    others = dataclasses.replace(method.parameters, phases=phases, seed=4)
    before = (whole / CONFIG).read_text()

    def check(folder, parameters):
        check_ready(Work(folder, parameters, [], [], 1, True))

    for refuse in (method.trainer, check):
        with pytest.raises(UsageError, match=r"checkpoint.*another seed, phases\.1\.samples; go on with the same"):
            refuse(whole, others)
    assert (whole / CONFIG).read_text() == before
    check(whole, dataclasses.replace(method.parameters, checkpoint_seconds=7.0))


@pytest.mark.slow
def test_a_run_on_other_graphs_is_refused(method, whole, tmp_path):
    parameters, graphs = method.with_phase(epochs=1, graphs=2), method.graphs[:2]
    assert method.trainer(tmp_path, parameters, graphs=graphs, validation=graphs).run()
    assert method.trainer(tmp_path, parameters, graphs=graphs, validation=graphs).is_finished
    for kwargs in ({}, {"graphs": graphs}, {"graphs": graphs, "validation": graphs[:1]}, {"graphs": graphs[::-1]}):
        with pytest.raises(UsageError, match="is of a run on other graphs"):
            method.trainer(tmp_path, parameters, **kwargs)
    with pytest.raises(UsageError, match="is of a run on other graphs"):
        method.trainer(whole, validation=graphs)


@pytest.mark.parametrize("damage", ["empty", "cut", "weights", "text", "missing"])
def test_a_file_that_is_no_checkpoint_is_refused(damage, method, whole, tmp_path):
    data = {
        "empty": b"",
        "cut": (whole / CHECKPOINT).read_bytes()[:-10],
        "weights": (whole / WEIGHTS).read_bytes(),
        "text": b"hello",
    }
    readers = [lambda folder: read_checkpoint(folder, method.training.TrainingParameters)]
    if damage != "missing":
        (tmp_path / CHECKPOINT).write_bytes(data[damage])
        readers.append(method.trainer)
    for read in readers:
        with pytest.raises(FormatError, match=r"checkpoint\.safetensors: is not a checkpoint of schedopt train"):
            read(tmp_path)


@pytest.mark.slow
def test_a_gradient_that_is_no_number_ends_the_run_and_the_checkpoint_stays(method, whole, tmp_path, monkeypatch):
    parameters = dataclasses.replace(method.parameters, checkpoint_seconds=1000.0)
    add = method.training.Trainer._add_gradients

    def break_gradients(self, phase, batch):
        add(self, phase, batch)
        if self.place.step == 4:
            next(p.grad for p in self.network.parameters() if p.grad is not None).fill_(float("nan"))

    with monkeypatch.context() as patch:
        patch.setattr(method.training.Trainer, "_add_gradients", break_gradients)
        with pytest.raises(TrainingError, match="step 5: the loss or its gradient is not a number any more"):
            method.trainer(tmp_path, parameters).run()
    trainer = method.trainer(tmp_path, parameters)
    assert trainer.place.step == 4
    assert all(torch.isfinite(value).all() for value in trainer.network.state_dict().values())
    assert trainer.run()
    assert (tmp_path / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("at", ["step", "validation"])
def test_weights_that_overflow_end_the_run(at, method, tmp_path):
    trainer = method.trainer(tmp_path, method.with_phase(epochs=1))

    def break_weights(progress):
        if progress.place.step == (1 if at == "step" else 2):
            with torch.no_grad():
                next(trainer.network.parameters()).fill_(float("inf"))

    with pytest.raises(TrainingError, match="is not a number any more"):
        trainer.run(break_weights)


def test_training_starts_from_weights_and_takes_their_shape(method, whole, tmp_path):
    """The run goes on when those weights are gone."""
    start = tmp_path / "start.safetensors"
    start.write_bytes((whole / WEIGHTS).read_bytes())
    shape = type(method.parameters.network)()
    parameters = dataclasses.replace(method.parameters, start=str(start), network=shape)
    trainer = method.trainer(tmp_path / "run", parameters)
    assert trainer.network.parameters_ == method.parameters.network != shape
    assert torch.equal(weights_of(trainer.network), weights_of(method.load(start)))
    trainer.run(must_stop=lambda: trainer.place.step == 1)
    start.unlink()
    again = method.trainer(tmp_path / "run", parameters)
    assert again.place.step == 1
    assert torch.equal(weights_of(again.network), weights_of(trainer.network))


def test_a_baseline_of_other_samples_needs_some(method):
    with pytest.raises(UsageError, match="needs at least 2 samples"):
        dataclasses.replace(method.reinforce, samples=1, baseline="leave-one-out")
