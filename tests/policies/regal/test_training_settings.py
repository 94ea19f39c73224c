"""Settings of REGAL's training: what makes no sense is refused, and recipes are the paper's or the weights'."""

import dataclasses

import pytest
from models.trainers import REGAL, REGAL_REINFORCE
from schedopt.core.base.errors import UsageError
from schedopt.policies.regal.training import recipe
from schedopt.policies.training import settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"reward": 0.0}, "reward and imitation must not both be 0"),
        ({"imitation": 1.0}, "imitation needs a teacher"),
        ({"teacher": "nobody"}, "teacher must be one of uniform"),
        ({"evaluations": 1}, "evaluations must be at least 2"),
    ],
)
def test_a_phase_that_makes_no_sense_is_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        dataclasses.replace(REGAL_REINFORCE, **settings)


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(UsageError, match="validation_evaluations must be at least twice the 200"):
        dataclasses.replace(REGAL, features=200)


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
