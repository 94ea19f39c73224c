"""What every `schedopt train` of a network keeps to: what it says and writes, stops, and each way to be wrong."""

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
import yaml
from models.train_commands import COMMANDS, assert_same_weights, refused
from schedopt import read_graph
from schedopt.cli.commands.train import _left
from schedopt.core.search.registry import METHODS
from schedopt.core.search.settings import plain
from schedopt.policies.regal.network import load_network
from schedopt.policies.regal.training import TrainingParameters
from schedopt.policies.training import run_folder
from schedopt.policies.training.run_folder import CHECKPOINT, CONFIG, CURVE, WEIGHTS, curve_of, read_checkpoint

QUICK = [pytest.param(name, marks=() if name == "direct" else pytest.mark.slow) for name in COMMANDS]
"""Each method, one of them in the quick suite."""


@pytest.fixture(scope="module", params=COMMANDS)
def name(request):
    """Each method, with all its tests in a row."""
    return request.param


@pytest.fixture
def command(name):
    return COMMANDS[name]


@pytest.fixture
def train(name, runs, run):
    """Train with the tiny settings and these options."""
    return lambda *options: run("train", name, *options, "--config", runs.config(name))


def settings_of(command, folder):
    return read_checkpoint(folder, command.kind).parameters


def test_every_trainer_of_the_registry_is_tested_here():
    modules = {method.trainer for method in METHODS.values()} - {"", "grid_search"}
    assert modules == {METHODS[name].trainer for name in COMMANDS}


@pytest.mark.slow
def test_a_run_says_how_it_goes_and_what_its_weights_are_for(name, command, runs, run, diamond_file, tmp_path):
    folder, result = runs.whole(name)
    lines = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
    assert [line.split(":")[0] for line in lines] == command.lines
    assert all(word in line for line in lines for word in command.always)
    assert all(word in lines[at] for at, words in command.said.items() for word in words)
    assert not any(word in lines[at] for at, words in command.unsaid.items() for word in words)
    curve = curve_of(folder)
    for which, line in (("first", curve[0]), ("last", curve[-1])):
        row = next(row for row in result.stdout.splitlines() if f" {which} " in row)
        assert f"{line[command.column]:.2f}" in row
    assert command.title in result.stdout
    last = result.stdout.splitlines()[-1]
    assert last == f"schedopt solve GRAPH {command.use} --weights {folder / WEIGHTS}"
    ops = enumerate(read_graph(diamond_file).op_names)
    times = {op: {"x": 1 if at % 2 else None, "y": 1} for at, op in ops}
    devices = [{"name": "a", "kind": "x"}, {"name": "b", "kind": "y"}]
    machine = {"devices": devices, "default_link": {}, "op_times": times}
    (tmp_path / "machine.yaml").write_text(yaml.safe_dump(machine))
    files = {"GRAPH": diamond_file, "MACHINE": tmp_path / "machine.yaml"}
    words = [files.get(word, word) for word in shlex.split(last)[1:]]
    solved = run(*words, "--evaluations", 200, "--json")
    assert solved.exit_code == 0, solved.stderr
    assert json.loads(solved.stdout)["found_by"] == name


@pytest.mark.slow
def test_the_folder_holds_the_settings_that_make_the_same_run(name, command, runs, run, tmp_path):
    folder, _ = runs.whole(name)
    written = yaml.safe_load((folder / CONFIG).read_text())
    assert written == plain(settings_of(command, folder))
    tiny = command.config
    assert written["network"]["width"] == tiny["network"]["width"]
    for phase, wanted in zip(written["phases"], tiny["phases"], strict=True):
        assert phase["learning_rate"] == float(wanted.get("learning_rate", phase["learning_rate"]))
    result = run("train", name, "--output", tmp_path / "run", "--config", folder / CONFIG, "--quiet")
    assert (result.exit_code, result.stderr) == (0, "")
    assert_same_weights(tmp_path / "run", folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["direct"], indirect=True)
def test_json_is_one_document(name, command, runs, run):
    folder, _ = runs.whole(name)
    result = run("train", name, "--output", folder, "--resume", "--json")
    document = json.loads(result.stdout)
    assert (document["weights"], document["steps"]) == (str(folder / WEIGHTS), 6)
    assert command.score(document["validation"]["best"]) == min(map(command.score, curve_of(folder)))
    assert document["validation"]["last"]["step"] == 6
    assert "is finished; nothing is left to do" in result.stderr
    assert "TensorBoard" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["direct"], indirect=True)
def test_without_tensorboard_a_note_says_how_to_get_it(name, runs, run, monkeypatch):
    monkeypatch.setattr(run_folder, "has_tensorboard", lambda: False)
    folder, _ = runs.whole(name)
    result = run("train", name, "--output", folder, "--resume")
    assert result.stderr.count("pip install 'schedopt[train]'") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK, indirect=True)
def test_given_graphs_are_trained_on_and_searched_once(name, command, runs, train, tmp_path, monkeypatch):
    graphs, valid = runs.folders(name)
    others = ["--output", tmp_path / "run", *command.given]
    assert train(graphs, "--validation", valid, *others, "--quiet").exit_code == 0
    kept = (tmp_path / "run" / command.kept).read_bytes()
    assert command.kept_lines in (None, kept.count(b"\n"))
    if command.searched is not None:
        monkeypatch.setattr(command.searched, lambda *arguments: pytest.fail("everything is known"))
    again = train(graphs, "--validation", valid, *others, "--resume")
    assert again.exit_code == 0, again.stderr
    assert (tmp_path / "run" / command.kept).read_bytes() == kept
    refused(train(graphs, *others, "--resume"), "is of a run on other graphs")
    refused(train(*others, "--resume"), "is of a run on other graphs")
    refused(train(graphs, "--validation", valid, *others, "--resume", "--seed", 5), "is of a run with another seed")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK, indirect=True)
def test_a_tenth_is_set_aside_and_few_graphs_are_validated_on_too(name, runs, train, tmp_path):
    graphs, valid = runs.folders(name)
    result = train(graphs, "--output", tmp_path / "a")
    assert result.exit_code == 0, result.stderr
    assert "1 of 12 graphs are set aside to validate on; name others by --validation" in result.stderr
    result = train(valid, "--output", tmp_path / "b")
    assert result.exit_code == 0, result.stderr
    assert "the graphs are few, so training and validation share them" in result.stderr
    refused(train(valid, "--validation", valid, "--output", tmp_path / "c"), "is also trained on")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "phases.0.epochs=x"], ["phases.0: epochs must be a whole number, not 'x'"]),
        (["--set", "phases.1.speed=1"], ["there is no setting 'phases.1.speed'"]),
        (["--set", "seed"], ["'seed' is not written name=value"]),
        (["--set", "phases=[]"], ["phases must not be empty"]),
        (["--config", "no-such.yaml"], ["no-such.yaml: cannot be read"]),
        (["--start", "no-such"], ["no-such: cannot be read"]),
        (["--resume"], ["holds no checkpoint to go on with; leave out --resume"]),
        (["no-such-graphs"], ["no-such-graphs: no such file or folder"]),
        (["--validation", "no-such-graphs"], ["no-such-graphs: no such file or folder"]),
        (["--output", "/dev/null/run"], ["/dev/null/run: cannot be made"]),
        pytest.param(
            ["--device", "cuda"],
            ["device cuda is not available here; use cpu"],
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_2(name, options, words, runs, run, tmp_path):
    output = [] if "--output" in options else ["--output", tmp_path / "run"]
    options = options if "--config" in options else ["--config", runs.config(name), *options]
    refused(run("train", name, *output, *options), *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", QUICK, indirect=True)
def test_a_folder_that_holds_a_run_is_not_written_over(name, runs, train):
    folder, _ = runs.whole(name)
    before = (folder / CHECKPOINT).read_bytes()
    refused(train("--output", folder), "holds a run already; give --resume")
    assert (folder / CHECKPOINT).read_bytes() == before


def stopped_by(number, folder, count, *options):
    """Send a signal once the curve of a run of `regal` has so many lines; return its exit code, and what it said."""
    words = [sys.executable, "-m", "schedopt", "train", "regal", "--output", folder, *options]
    environment, curve = {**os.environ, "OMP_NUM_THREADS": "1"}, folder / CURVE
    with subprocess.Popen([*map(str, words)], stdout=-1, stderr=-1, text=True, env=environment) as process:
        while process.poll() is None and not (curve.exists() and curve.read_bytes().count(b"\n") >= count):
            time.sleep(0.01)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=120)
    return process.returncode, stdout, stderr


@pytest.mark.slow
def test_stops_lose_nothing(runs, run, tmp_path):
    """Neither Ctrl-C, here of two workers, nor SIGKILL; all methods go on by the same trainer's loop."""
    options = ["--config", runs.config("regal"), "--set", "phases.1.epochs=40"]
    stopped, whole = tmp_path / "run", tmp_path / "whole"
    code, stdout, stderr = stopped_by(signal.SIGINT, stopped, 3, *options, "--jobs", 2)
    assert (code, stdout) == (130, ""), stderr
    assert "Traceback" not in stderr
    assert f"go on with: schedopt train regal --output {stopped} --resume --jobs 2\n" in stderr
    done = len(curve_of(stopped))
    assert 3 <= done < 42
    assert stopped_by(signal.SIGKILL, stopped, done + 2, *options, "--resume")[0] == -signal.SIGKILL
    assert done <= len(curve_of(stopped)) < 42
    for folder, given in ((stopped, ["--resume"]), (whole, options)):
        result = run("train", "regal", "--output", folder, *given, "--quiet")
        assert result.exit_code == 0, result.stderr
    assert_same_weights(stopped, whole)
    assert (stopped / CURVE).read_text().count("\n") == 42


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, []),
        (math.inf, []),
        (0.4, ["about 0 s left"]),
        (99, ["about 99 s left"]),
        (100, ["about 2 min left"]),
        (5990, ["about 100 min left"]),
        (6001, ["about 1.7 h left"]),
        (360_000, ["about 100.0 h left"]),
    ],
)
def test_the_rest_is_in_seconds_minutes_or_hours(seconds, text):
    assert _left(seconds) == text


@pytest.fixture
def config(runs):
    return runs.config("regal")


@pytest.mark.slow
def test_options_win_over_the_file_and_gas_has_an_lstm(config, run, tmp_path):
    options = ["--task", "memory", "--devices", 3, "--seed", 4, "--set", "phases.1.epochs=1"]
    options += ["--set", "network.task=runtime"]
    result = run("train", "gas", "--output", tmp_path, "--config", config, "--quiet", "--json", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    settings = read_checkpoint(tmp_path, TrainingParameters).parameters
    shape = load_network(tmp_path / WEIGHTS).parameters_
    assert (settings.seed, settings.phases[1].epochs) == (4, 1)
    assert (shape.task, shape.devices, shape.encoder, shape.width) == ("memory", 3, "lstm", 8)
    assert settings.network.actions.scheduling == 2
    result = run("train", "gas", "--output", tmp_path, "--resume")
    assert result.stdout.splitlines()[-1].startswith("schedopt solve GRAPH --method gas --task memory --devices 3 ")
    refused(run("train", "regal", "--output", tmp_path, "--resume"), "is of a run with another network.encoder")


def test_what_the_method_or_the_weights_decide_cannot_be_set(config, run, tmp_path):
    words = ["train", "regal", "--output", tmp_path / "run", "--config", config, "--set"]
    refused(run(*words, "network.encoder=lstm"), "--set network.encoder: is gnn for schedopt train regal")
    started = [*words[:-1], "--start", "regal-runtime", "--set"]
    refused(run(*started, "network.width=9"), "--set network.width: is decided by the weights to start from, regal")
    refused(run(*started, "network.ratios=1"), "ratios must be true or false")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["regal", "direct"])
def test_graphs_without_runtimes_teach_no_makespan(method, runs, run, tmp_path):
    words = ["train", method, runs.folders("topoformer")[0], "--output", tmp_path / "run", "--config"]
    refused(run(*words, runs.config(method)), "every op has runtime 0, so its least makespan is 0; leave it out")


@pytest.mark.parametrize("file", [CURVE, WEIGHTS])
def test_a_finished_run_that_lost_a_file_says_so(file, runs, run, tmp_path):
    shutil.copytree(runs.whole("direct")[0], tmp_path / "run")
    (tmp_path / "run" / file).unlink()
    refused(run("train", "direct", "--output", tmp_path / "run", "--resume"), f"{file}: is gone or damaged, though")
