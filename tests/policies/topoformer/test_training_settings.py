"""Settings of Topoformer's training: what makes no sense is refused, and the recipe is that of the weights."""

import dataclasses
from functools import partial

import pytest
from models.trainers import TOPOFORMER_REINFORCE
from schedopt.core.base.errors import UsageError
from schedopt.policies.networks.shipped import weights_file
from schedopt.policies.topoformer.network import load_network
from schedopt.policies.topoformer.training import Phase, Trainer, TrainingParameters
from schedopt.policies.training import settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"nodes": (5, 4)}, "nodes must be two sizes from 1 to 10000, the smaller first, not"),
        ({"nodes": (5, 20_000)}, "nodes must be two sizes from 1 to 10000"),
        ({"reinforce": 0.0}, "reinforce and imitation must not both be 0"),
    ],
)
def test_a_phase_that_makes_no_sense_is_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        dataclasses.replace(TOPOFORMER_REINFORCE, **settings)


def test_the_shipped_recipe_is_that_of_the_shipped_weights(tmp_path, monkeypatch):
    recipe = partial(Trainer.recipe, "topoformer", None, None)
    assert load_network(weights_file("topoformer-layered")).parameters_ == recipe().network
    monkeypatch.setattr(settings, "WEIGHTS", tmp_path)
    assert recipe() == TrainingParameters()
    card = tmp_path / "topoformer-layered.yaml"
    card.write_text("curve: []\nrecipe: {seed: 3, device: cuda, phases: [{epochs: 2}]}\n")
    assert recipe() == TrainingParameters(seed=3, phases=(Phase(epochs=2),))
