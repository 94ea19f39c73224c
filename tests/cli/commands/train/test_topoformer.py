"""`schedopt train topoformer`: runs on layered and given graphs, gone on with after Ctrl-C and SIGKILL, and misused."""

import json
import os
import signal

import pytest
import torch
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
from schedopt.policies.topoformer import searched_orders
from schedopt.policies.topoformer import training as topoformer_training
from schedopt.policies.topoformer import training_settings as topoformer_settings
from schedopt.policies.topoformer.network import load_network
from schedopt.policies.topoformer.training import KIND
from schedopt.policies.training.run_folder import CHECKPOINT, CONFIG, WEIGHTS, curve_of, read_checkpoint

CONFIG_TEXT = """
network: {layers: 1, width: 8, head_width: 4, heads: 1, eigenvectors: 2}
phases:
- {epochs: 2, graphs: 4, nodes: [8, 12], batch: 2, learning_rate: 1e-3, reinforce: 0, imitation: 1, teacher_width: 5}
- {epochs: 1, graphs: 4, nodes: [8, 12], batch: 2, learning_rate: 1e-2, samples: 2, baseline: leave-one-out}
validation_graphs: 2
validation_nodes: 12
checkpoint_seconds: 0
search_evaluations: 50
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return write_config(tmp_path_factory, CONFIG_TEXT)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make_folders(tmp_path_factory, "layered", 10)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    return finish_run(tmp_path_factory, "topoformer", config)


def test_a_run_says_how_it_goes_and_what_its_weights_are_for(whole, run, diamond_file):
    folder, result = whole
    lines = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
    assert [line.split(":")[0] for line in lines] == [
        "before training",
        "phase 1/2 epoch 1",
        "phase 1/2 epoch 2",
        "phase 2/2 epoch 1",
    ]
    assert "sampled peak" in lines[3]
    assert all("gap greedy/sample/beam" in line for line in lines)
    curve = curve_of(folder)
    for which, line in (("first", curve[0]), ("last", curve[-1])):
        row = next(row for row in result.stdout.splitlines() if f" {which} " in row)
        assert f"{line['greedy_gap_percent']:.2f}" in row
    weights = str(folder / WEIGHTS)
    assert result.stdout.splitlines()[-1] == f"schedopt solve GRAPH --method topoformer --weights {weights}"
    solved = run("solve", diamond_file, "--method", "topoformer", "--weights", weights, "--json")
    assert solved.exit_code == 0, solved.stderr
    assert json.loads(solved.stdout)["found_by"] == "topoformer"


def test_the_folder_holds_the_settings_that_make_the_same_run(whole, run, tmp_path):
    folder, _ = whole
    written = yaml.safe_load((folder / CONFIG).read_text())
    assert written == plain(read_checkpoint(folder, KIND).parameters)
    assert written["phases"][0]["learning_rate"] == 0.001
    result = run("train", "topoformer", "--output", tmp_path / "run", "--config", folder / CONFIG, "--quiet")
    assert (result.exit_code, result.stderr) == (0, "")
    assert_same_weights(tmp_path / "run", folder)


def test_json_is_one_document(whole, run):
    folder, _ = whole
    result = run("train", "topoformer", "--output", folder, "--resume", "--json")
    document = json.loads(result.stdout)
    assert document["weights"] == str(folder / WEIGHTS)
    assert document["steps"] == 6
    gaps = [min(line["sample_gap_percent"], line["beam_gap_percent"]) for line in curve_of(folder)]
    best = document["validation"]["best"]
    assert min(best["sample_gap_percent"], best["beam_gap_percent"]) == min(gaps)
    assert document["validation"]["last"]["step"] == 6
    assert "is finished; nothing is left to do" in result.stderr


def test_options_win_over_the_file(config, run, tmp_path):
    options = ["--seed", 4, "--precision", "bfloat16", "--set", "phases.1.epochs=2", "--set", "validation_nodes=9"]
    result = run("train", "topoformer", "--output", tmp_path, "--config", config, "--quiet", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    settings = read_checkpoint(tmp_path, KIND).parameters
    assert (settings.seed, settings.precision, settings.validation_nodes) == (4, "bfloat16", 9)
    assert [phase.epochs for phase in settings.phases] == [2, 2]
    assert len(curve_of(tmp_path)) == 5


def test_without_a_file_the_shipped_recipe_is_taken(config, run, tmp_path, monkeypatch):
    recipe = tmp_path / "topoformer-layered.yaml"
    recipe.write_text(yaml.safe_dump({"recipe": yaml.safe_load(CONFIG_TEXT)}))
    monkeypatch.setattr(topoformer_settings, "RECIPE", recipe)
    result = run("train", "topoformer", "--output", tmp_path / "run", "--quiet", "--set", "phases.0.epochs=1")
    assert result.exit_code == 0, result.stderr
    assert [phase.epochs for phase in read_checkpoint(tmp_path / "run", KIND).parameters.phases] == [1, 1]


def test_training_goes_on_from_weights(whole, config, run, tmp_path):
    folder, _ = whole
    options = ["--start", folder / WEIGHTS, "--config", config, "--set", "network.width=16", "--quiet"]
    result = run("train", "topoformer", "--output", tmp_path, *options, "--json")
    assert result.exit_code == 0, result.stderr
    assert load_network(tmp_path / WEIGHTS).parameters_.width == 8
    first = json.loads(result.stdout)["validation"]["first"]
    best = min(curve_of(folder), key=lambda line: min(line["sample_gap_percent"], line["beam_gap_percent"]))
    assert first["beam_gap_percent"] == best["beam_gap_percent"]


def test_orders_of_given_graphs_are_searched_once(folders, config, run, tmp_path, monkeypatch):
    train, valid = folders
    command = ["train", "topoformer", train, "--validation", valid, "--output", tmp_path / "run", "--config", config]
    assert run(*command, "--quiet").exit_code == 0
    orders = (tmp_path / "run" / "orders.jsonl").read_bytes()
    assert orders.count(b"\n") == 15
    monkeypatch.setattr(searched_orders, "_search", lambda *arguments: pytest.fail("all orders are known"))
    again = run(*command, "--resume")
    assert again.exit_code == 0, again.stderr
    assert (tmp_path / "run" / "orders.jsonl").read_bytes() == orders
    refused(run(*command[:3], *command[5:], "--resume"), "is of a run on other graphs")
    refused(run(*command[:2], *command[5:], "--resume"), "is of a run on other graphs")
    refused(run(*command, "--resume", "--seed", 5), "is of a run with another seed")


def test_a_tenth_is_set_aside_and_few_graphs_are_validated_on_too(folders, config, run, tmp_path):
    train, valid = folders
    result = run("train", "topoformer", train, "--output", tmp_path / "a", "--config", config)
    assert result.exit_code == 0, result.stderr
    assert "1 of 12 graphs are set aside to validate on; name others by --validation" in result.stderr
    result = run("train", "topoformer", valid, "--output", tmp_path / "b", "--config", config)
    assert result.exit_code == 0, result.stderr
    assert "so few graphs are validated on, too" in result.stderr
    refused(
        run("train", "topoformer", valid, "--validation", valid, "--output", tmp_path / "c", "--config", config),
        "is also trained on",
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *BAD_USAGE,
        (["--set", "seed"], ["'seed' is not written name=value"]),
        (["--set", "phases.0.nodes=[10, 100000]"], ["nodes must be two sizes from 1 to 10000"]),
        (["--set", "phases=[]"], ["phases must not be empty"]),
        (["--validation", "no-such-graphs"], ["no-such-graphs: no such file or folder"]),
        pytest.param(
            ["--device", "cuda"],
            ["device cuda is not available here; use cpu"],
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_2(options, words, config, run, tmp_path):
    check_bad_usage("topoformer", options, words, config, run, tmp_path)


def test_a_wrong_file_is_named(run, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text("phases: [{epochs: 0}]\n")
    refused(
        run("train", "topoformer", "--output", tmp_path, "--config", path),
        "wrong.yaml: phases.0: epochs must be at least 1",
    )


def test_a_folder_that_holds_a_run_is_not_written_over(whole, config, run):
    folder, _ = whole
    before = (folder / CHECKPOINT).read_bytes()
    refused(run("train", "topoformer", "--output", folder, "--config", config), "holds a run already; give --resume")
    assert (folder / CHECKPOINT).read_bytes() == before


def test_a_graph_that_is_too_large_is_refused_before_any_search(folders, run, tmp_path, monkeypatch):
    monkeypatch.setattr(topoformer_training, "MOST_OPS", 9)
    monkeypatch.setattr(searched_orders, "_search", lambda *arguments: pytest.fail("there is no need for orders"))
    config = tmp_path / "small.yaml"
    config.write_text(CONFIG_TEXT.replace("12]", "9]"))
    result = run("train", "topoformer", folders[0], "--output", tmp_path, "--config", config)
    refused(result, "has 10 ops, and training takes up to 9; leave it out")


def test_a_loss_that_is_no_number_is_one_sentence(config, run, tmp_path, monkeypatch):
    monkeypatch.setattr(topoformer_training, "advantages", lambda costs, rollout: costs * float("nan"))
    result = run("train", "topoformer", "--output", tmp_path, "--config", config, "--quiet")
    refused(result, "step 5: the loss or its gradient is not a number any more", f"stays in {tmp_path}")
    assert (tmp_path / CHECKPOINT).exists()


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_loses_nothing(config, run, tmp_path):
    options = ["--config", config, "--set", "phases.0.epochs=30"]
    check_that_stops_lose_nothing("topoformer", options, 32, run, tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_during_the_search_for_orders_keeps_them(folders, config, run, tmp_path, monkeypatch):
    search = searched_orders._search
    searched = []

    def interrupted(evaluations, seed, graph):
        searched.append(graph.name)
        if len(searched) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return search(evaluations, seed, graph)

    monkeypatch.setattr(searched_orders, "_search", interrupted)
    command = ["train", "topoformer", folders[0], "--output", tmp_path, "--config", config, "--quiet"]
    result = run(*command)
    assert (result.exit_code, result.stdout) == (130, "")
    assert "go on with: the same command" in result.stderr
    assert run(*command).exit_code == 0
    assert len(searched) == len(set(searched)) == 12
