"""`schedopt train regal` and `train gas`: runs on synthetic and given graphs, stopped, killed, and misused."""

import json
import os

import pytest
import yaml
from models.train_commands import (
    BAD_USAGE,
    assert_same_weights,
    check_bad_usage,
    check_that_stops_lose_nothing,
    finish_run,
    make_folders,
    refused,
    write_config,
)
from schedopt.core.search.settings import plain
from schedopt.datasets import recipe
from schedopt.policies.regal import training_settings as regal_settings
from schedopt.policies.regal.network import load_network
from schedopt.policies.regal.training import KIND, PLAIN, VALIDATED
from schedopt.policies.training.run_folder import CHECKPOINT, CONFIG, WEIGHTS, curve_of, read_checkpoint

CONFIG_TEXT = """
network: {task: runtime, width: 8, rounds: 1, actions: {placement: 2, scheduling: 2}}
phases:
- {epochs: 1, steps: 2, graphs: 2, reward: 0, imitation: 1, teacher: uniform, learning_rate: 1e-2}
- {epochs: 2, steps: 2, graphs: 2, samples: 2, baseline: leave-one-out, evaluations: 120}
synthetic: {nodes_low: 8, nodes_high: 12}
improving: 0
training_graphs: 4
features: 100
validation_graphs: 2
validation_evaluations: 300
checkpoint_seconds: 0
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return write_config(tmp_path_factory, CONFIG_TEXT)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make_folders(tmp_path_factory, "synthetic", "8-12")


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    return finish_run(tmp_path_factory, "regal", config)


def test_a_run_says_how_it_goes_and_what_its_weights_are_for(whole):
    folder, result = whole
    lines = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
    assert [line.split(":")[0] for line in lines] == [
        "before training",
        "phase 1/2 epoch 1",
        "phase 2/2 epoch 1",
        "phase 2/2 epoch 2",
    ]
    assert all("improvement by drawn/likely/expected actions" in line and "entropy" in line for line in lines)
    assert "imitated log-probability" in lines[1] and "reward" not in lines[1]
    assert "reward -" in lines[2]
    curve = curve_of(folder)
    for which, line in (("first", curve[0]), ("last", curve[-1])):
        row = next(row for row in result.stdout.splitlines() if f" {which} " in row)
        assert f"{line['sample_improvement_percent']:.2f}" in row
    assert "improvement over brkga with 300 evaluations" in result.stdout
    weights = str(folder / WEIGHTS)
    command = f"schedopt solve GRAPH --method regal --task runtime --devices 2 --weights {weights}"
    assert result.stdout.splitlines()[-1] == command


def test_the_folder_holds_the_settings_that_make_the_same_run(whole, run, tmp_path):
    folder, _ = whole
    written = yaml.safe_load((folder / CONFIG).read_text())
    assert written == plain(read_checkpoint(folder, KIND).parameters)
    assert written["network"]["actions"]["scheduling"] == 2
    result = run("train", "regal", "--output", tmp_path / "run", "--config", folder / CONFIG, "--quiet")
    assert (result.exit_code, result.stderr) == (0, "")
    assert_same_weights(tmp_path / "run", folder)


def test_json_is_one_document(whole, run):
    folder, _ = whole
    result = run("train", "regal", "--output", folder, "--resume", "--json")
    document = json.loads(result.stdout)
    assert (document["weights"], document["steps"]) == (str(folder / WEIGHTS), 6)
    improvements = [line["sample_improvement_percent"] for line in curve_of(folder)]
    assert document["validation"]["best"]["sample_improvement_percent"] == max(improvements)
    assert "is finished; nothing is left to do" in result.stderr


def test_options_win_over_the_file_and_gas_has_an_lstm(config, run, tmp_path):
    options = ["--task", "memory", "--devices", 3, "--seed", 4, "--set", "phases.1.epochs=1"]
    result = run("train", "gas", "--output", tmp_path, "--config", config, "--quiet", "--json", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    settings, shape = read_checkpoint(tmp_path, KIND).parameters, load_network(tmp_path / WEIGHTS).parameters_
    assert (settings.seed, settings.phases[1].epochs) == (4, 1)
    assert (shape.task, shape.devices, shape.encoder, shape.width) == ("memory", 3, "lstm", 8)
    result = run("train", "gas", "--output", tmp_path, "--resume")
    assert result.stdout.splitlines()[-1].startswith("schedopt solve GRAPH --method gas --task memory --devices 3 ")
    refused(run("train", "regal", "--output", tmp_path, "--resume"), "is of a run with another network.encoder")


def test_without_a_file_the_shipped_recipe_is_taken(config, run, tmp_path, monkeypatch):
    (tmp_path / "regal-runtime.yaml").write_text(yaml.safe_dump({"recipe": yaml.safe_load(CONFIG_TEXT)}))
    monkeypatch.setattr(regal_settings, "SHIPPED", tmp_path)
    options = ["--task", "runtime", "--quiet", "--set", "phases.1.epochs=1"]
    result = run("train", "regal", "--output", tmp_path / "run", *options)
    assert result.exit_code == 0, result.stderr
    assert [phase.epochs for phase in read_checkpoint(tmp_path / "run", KIND).parameters.phases] == [1, 1]
    assert read_checkpoint(tmp_path / "run", KIND).parameters.network.width == 8


def test_training_goes_on_from_weights(whole, config, run, tmp_path):
    folder, _ = whole
    options = ["--start", folder / WEIGHTS, "--config", config, "--quiet", "--json"]
    result = run("train", "regal", "--output", tmp_path / "run", *options)
    assert result.exit_code == 0, result.stderr
    first = json.loads(result.stdout)["validation"]["first"]
    best = max(curve_of(folder), key=lambda line: line["sample_improvement_percent"])
    for name in VALIDATED:
        assert first[f"{name}_improvement_percent"] == best[f"{name}_improvement_percent"]
    command = ["train", "regal", "--output", tmp_path / "other", *options, "--task", "memory"]
    refused(run(*command), "is a network of task runtime, not memory")


def test_given_graphs_are_trained_on(folders, config, run, tmp_path):
    train, valid = folders
    command = ["train", "regal", train, "--validation", valid, "--output", tmp_path / "run", "--config", config]
    command += ["--set", "phases.1.steps=6"]
    assert run(*command, "--quiet").exit_code == 0
    assert (tmp_path / "run" / PLAIN).read_text().count("\n") == 3 + 12
    again = run(*command, "--resume")
    assert again.exit_code == 0, again.stderr
    refused(run(*command[:3], *command[5:], "--resume"), "is of a run on other graphs")
    refused(run(*command, "--resume", "--seed", 5), "is of a run with another seed")
    result = run("train", "regal", train, "--output", tmp_path / "b", "--config", config)
    assert "1 of 12 graphs are set aside to validate on; name others by --validation" in result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *BAD_USAGE,
        (["--set", "phases.1.samples=1"], ["the leave-one-out baseline needs at least 2 samples"]),
        (
            ["--set", "phases.0.teacher=nobody"],
            ["teacher must be one of uniform, ordered, cut-and-time-4, ", "not 'nobody'"],
        ),
        (["--set", "network.actions.placement=1"], ["placement must be 0, for no choice, or from 2 to 64, not 1"]),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_2(options, words, config, run, tmp_path):
    check_bad_usage("regal", options, words, config, run, tmp_path)


def test_a_folder_that_holds_a_run_is_not_written_over(whole, config, run):
    folder, _ = whole
    before = (folder / CHECKPOINT).read_bytes()
    refused(run("train", "regal", "--output", folder, "--config", config), "holds a run already; give --resume")
    assert (folder / CHECKPOINT).read_bytes() == before


def test_a_filter_that_keeps_nothing_is_one_sentence(config, run, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "TRIES", 5)
    options = ["--config", config, "--quiet", "--set", "improving=1", "--set", "synthetic.nodes_high=8"]
    refused(run("train", "regal", "--output", tmp_path, *options), "no graph of number", "filter less")


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_and_sigkill_lose_nothing(config, run, tmp_path):
    options = ["--config", config, "--set", "phases.1.epochs=40"]
    check_that_stops_lose_nothing("regal", options, 42, run, tmp_path, jobs=2, sigkill=True)
