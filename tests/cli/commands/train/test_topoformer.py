"""`schedopt train topoformer`: what is its own beside `test_trainers.py`."""

import os
import signal

import pytest
from models.train_commands import refused
from schedopt.policies.training import run_folder


@pytest.fixture
def config(runs):
    return runs.config("topoformer")


def test_sizes_out_of_range_are_one_sentence_and_exit_2(config, run, tmp_path):
    options = ["--config", config, "--set", "phases.0.nodes=[10, 100000]"]
    result = run("train", "topoformer", "--output", tmp_path / "run", *options)
    refused(result, "nodes must be two sizes from 1 to 10000")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_ctrl_c_during_the_search_for_orders_keeps_them(runs, config, run, tmp_path, monkeypatch):
    search = run_folder.searched_order
    searched = []

    def interrupted(method, evaluations, seed, problem):
        searched.append(problem.graph.name)
        if len(searched) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return search(method, evaluations, seed, problem)

    monkeypatch.setattr(run_folder, "searched_order", interrupted)
    graphs = runs.folders("topoformer")[0]
    command = ["train", "topoformer", graphs, "--output", tmp_path, "--config", config, "--quiet"]
    result = run(*command)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.endswith(f"go on with: the same command, with --output {tmp_path}\n")
    assert run(*command).exit_code == 0
    assert len(searched) == len(set(searched)) == 12


@pytest.mark.slow
def test_the_command_for_weights_without_priorities_decodes_them_by_beam(config, run, tmp_path, diamond_file):
    options = ["--config", config, "--set", "network.decoder=autoregressive", "--quiet"]
    result = run("train", "topoformer", "--output", tmp_path / "run", *options)
    assert result.exit_code == 0, result.stderr
    words = result.stdout.splitlines()[-1].replace("GRAPH", str(diamond_file)).split()
    assert words[4] == "topoformer:decode=beam"
    assert run(*words[1:]).exit_code == 0
