"""`schedopt train regal` and `train gas`: what is theirs beside `test_trainers.py`."""

import pytest
from models.train_commands import refused
from schedopt.datasets import recipe
from schedopt.policies.regal.network import load_network
from schedopt.policies.regal.training import TrainingParameters
from schedopt.policies.training.run_folder import WEIGHTS, read_checkpoint


@pytest.fixture
def config(runs):
    return runs.config("regal")


@pytest.mark.slow
def test_options_win_over_the_file_and_gas_has_an_lstm(config, run, tmp_path):
    options = ["--task", "memory", "--devices", 3, "--seed", 4, "--set", "phases.1.epochs=1"]
    result = run("train", "gas", "--output", tmp_path, "--config", config, "--quiet", "--json", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    settings, shape = (
        read_checkpoint(tmp_path, TrainingParameters).parameters,
        load_network(tmp_path / WEIGHTS).parameters_,
    )
    assert (settings.seed, settings.phases[1].epochs) == (4, 1)
    assert (shape.task, shape.devices, shape.encoder, shape.width) == ("memory", 3, "lstm", 8)
    assert settings.network.actions.scheduling == 2
    result = run("train", "gas", "--output", tmp_path, "--resume")
    assert result.stdout.splitlines()[-1].startswith("schedopt solve GRAPH --method gas --task memory --devices 3 ")
    refused(run("train", "regal", "--output", tmp_path, "--resume"), "is of a run with another network.encoder")


@pytest.mark.slow
def test_a_filter_that_keeps_nothing_is_one_sentence(config, run, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "TRIES", 5)
    options = ["--config", config, "--quiet", "--set", "improving=1", "--set", "synthetic.nodes_high=8"]
    refused(run("train", "regal", "--output", tmp_path, *options), "no graph of number", "filter less")
