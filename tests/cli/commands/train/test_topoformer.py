"""`schedopt train topoformer`: what is its own beside `test_trainers.py`."""

import os
import signal

import pytest
from models.train_commands import COMMANDS, refused
from schedopt.policies.topoformer import searched_orders
from schedopt.policies.topoformer import training as topoformer_training
from schedopt.policies.topoformer.network import load_network
from schedopt.policies.training.run_folder import CHECKPOINT, WEIGHTS


@pytest.fixture
def config(runs):
    return runs.config("topoformer")


@pytest.mark.slow
def test_weights_to_start_from_decide_the_shape(runs, config, run, tmp_path):
    folder, _ = runs.whole("topoformer")
    options = ["--start", folder / WEIGHTS, "--config", config, "--set", "network.width=16", "--quiet"]
    result = run("train", "topoformer", "--output", tmp_path, *options)
    assert result.exit_code == 0, result.stderr
    assert load_network(tmp_path / WEIGHTS).parameters_.width == 8


def test_sizes_out_of_range_are_one_sentence_and_exit_2(config, run, tmp_path):
    options = ["--config", config, "--set", "phases.0.nodes=[10, 100000]"]
    refused(
        run("train", "topoformer", "--output", tmp_path / "run", *options), "nodes must be two sizes from 1 to 10000"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_graph_that_is_too_large_is_refused_before_any_search(runs, run, tmp_path, monkeypatch):
    monkeypatch.setattr(topoformer_training, "MOST_OPS", 9)
    monkeypatch.setattr(searched_orders, "_search", lambda *arguments: pytest.fail("there is no need for orders"))
    config = tmp_path / "small.yaml"
    config.write_text(COMMANDS["topoformer"].config.replace("12]", "9]"))
    result = run("train", "topoformer", runs.folders("topoformer")[0], "--output", tmp_path, "--config", config)
    refused(result, "has 10 ops, and training takes up to 9; leave it out")


@pytest.mark.slow
def test_a_loss_that_is_no_number_is_one_sentence(config, run, tmp_path, monkeypatch):
    monkeypatch.setattr(topoformer_training, "advantages", lambda costs, rollout: costs * float("nan"))
    result = run("train", "topoformer", "--output", tmp_path, "--config", config, "--quiet")
    refused(result, "step 5: the loss or its gradient is not a number any more", f"stays in {tmp_path}")
    assert (tmp_path / CHECKPOINT).exists()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_during_the_search_for_orders_keeps_them(runs, config, run, tmp_path, monkeypatch):
    search = searched_orders._search
    searched = []

    def interrupted(evaluations, seed, problem):
        searched.append(problem.graph.name)
        if len(searched) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return search(evaluations, seed, problem)

    monkeypatch.setattr(searched_orders, "_search", interrupted)
    graphs = runs.folders("topoformer")[0]
    command = ["train", "topoformer", graphs, "--output", tmp_path, "--config", config, "--quiet"]
    result = run(*command)
    assert (result.exit_code, result.stdout) == (130, "")
    assert "go on with: the same command" in result.stderr
    assert run(*command).exit_code == 0
    assert len(searched) == len(set(searched)) == 12
