"""Tiny runs of every `schedopt train` of a network: their settings, what is said of them, and how to stop one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from schedopt.cli.main import app
from schedopt.policies.direct import training as direct_training
from schedopt.policies.regal import training as regal_training
from schedopt.policies.topoformer import training as topoformer_training
from schedopt.policies.training.run_folder import CHECKPOINT, CURVE, WEIGHTS, curve_of
from typer.testing import CliRunner


class TrainCommand(NamedTuple):
    """A subcommand of `train`, and a run of four lines.

    Parameters
    ----------
    config
        Settings of the run, as YAML.
    generator, nodes
        How `schedopt gen` makes graphs for it.
    kind
        Of its runs.
    lines
        What the lines of progress begin with.
    always, said, unsaid
        What all of them say, and what those of some numbers say or do not.
    title
        What the table's title says.
    column
        The first of the table, in a line of the curve.
    score
        Of a line of the curve; the smallest is the best.
    validated
        Of a line: equal before training that starts from the weights of that line.
    use
        Options for the weights, in the command that is printed.
    kept, kept_lines
        File with a line for each graph that is searched, and how many lines of the given twelve and three.
    searched
        What finds those lines, if all of it goes through one function.
    given
        Options of a run on given graphs.
    recipe_file, recipe_options
        File with the settings of shipped weights, and the options that ask for it.
    stop
        Options of a run that takes long enough to be stopped.
    stop_lines
        Lines of its curve.
    stop_with
        Arguments of `check_that_stops_lose_nothing`.
    """

    config: str
    generator: str
    nodes: Any
    kind: Any
    lines: list
    always: list
    said: dict
    unsaid: dict
    title: str
    column: str
    score: Callable
    validated: list
    use: str
    kept: str
    kept_lines: int
    searched: str | None
    given: list
    recipe_file: str
    recipe_options: list
    stop: list
    stop_lines: int
    stop_with: dict


COMMANDS = {
    "topoformer": TrainCommand(
        config="""
network: {layers: 1, width: 8, head_width: 4, heads: 1, eigenvectors: 2}
phases:
- {epochs: 2, graphs: 4, nodes: [8, 12], batch: 2, learning_rate: 1e-3, reinforce: 0, imitation: 1, teacher_width: 5}
- {epochs: 1, graphs: 4, nodes: [8, 12], batch: 2, learning_rate: 1e-2, samples: 2, baseline: leave-one-out}
validation_graphs: 2
validation_nodes: 12
checkpoint_seconds: 0
search_evaluations: 50
""",
        generator="layered",
        nodes=10,
        kind=topoformer_training.TrainingParameters,
        lines=["before training", "phase 1/2 epoch 1", "phase 1/2 epoch 2", "phase 2/2 epoch 1"],
        always=["gap greedy/sample/beam"],
        said={3: ["sampled peak"]},
        unsaid={1: ["sampled peak"]},
        title="gaps to the search, in percent",
        column="greedy_gap_percent",
        score=lambda line: min(line["sample_gap_percent"], line["beam_gap_percent"]),
        validated=["beam_gap_percent"],
        use="--method topoformer",
        kept="orders.jsonl",
        kept_lines=15,
        searched="schedopt.policies.topoformer.training._search",
        given=[],
        recipe_file="topoformer-layered.yaml",
        recipe_options=[],
        stop=["--set", "phases.0.epochs=30"],
        stop_lines=32,
        stop_with={},
    ),
    "regal": TrainCommand(
        config="""
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
""",
        generator="synthetic",
        nodes="8-12",
        kind=regal_training.TrainingParameters,
        lines=["before training", "phase 1/2 epoch 1", "phase 2/2 epoch 1", "phase 2/2 epoch 2"],
        always=["improvement by drawn/likely/expected actions", "entropy"],
        said={1: ["imitated log-probability"], 2: ["reward -"]},
        unsaid={1: ["reward"]},
        title="improvement over brkga with 300 evaluations",
        column="sample_improvement_percent",
        score=lambda line: -line["sample_improvement_percent"],
        validated=[f"{name}_improvement_percent" for name in regal_training.VALIDATED],
        use="--method regal --task runtime --devices 2",
        kept=regal_training.PLAIN,
        kept_lines=15,
        searched=None,
        given=["--set", "phases.1.steps=6"],
        recipe_file="regal-runtime.yaml",
        recipe_options=["--task", "runtime"],
        stop=["--set", "phases.1.epochs=40"],
        stop_lines=42,
        stop_with={"jobs": 2, "sigkill": True},
    ),
    "direct": TrainCommand(
        config="""
network: {task: runtime, width: 4, rounds: 1}
phases:
- {epochs: 2, steps: 2, graphs: 2, imitation: 1, learning_rate: 1e-2}
- {epochs: 1, steps: 2, graphs: 2, imitation: 0, reinforce: 1, samples: 2, learning_rate: 1e-2}
synthetic: {nodes_low: 8, nodes_high: 12}
training_graphs: 12
validation_graphs: 2
teacher: brkga
teacher_evaluations: 4
checkpoint_seconds: 0
""",
        generator="synthetic",
        nodes="8-12",
        kind=direct_training.TrainingParameters,
        lines=["before training", "phase 1/2 epoch 1", "phase 1/2 epoch 2", "phase 2/2 epoch 1"],
        always=["improvement greedy/sample"],
        said={1: ["ranking loss"], 3: ["sampled gap"]},
        unsaid={1: ["sampled gap"]},
        title="improvement over the rule",
        column="sample_improvement_percent",
        score=lambda line: -line["sample_improvement_percent"],
        validated=direct_training.Trainer.validated,
        use="--method direct --task runtime",
        kept="plans.jsonl",
        kept_lines=12,
        searched="schedopt.policies.direct.training.solve",
        given=[],
        recipe_file="direct-runtime.yaml",
        recipe_options=["--task", "runtime"],
        stop=["--set", "phases.0.epochs=40"],
        stop_lines=42,
        stop_with={"jobs": 2},
    ),
}
"""By the method; of those that share a trainer, one."""


class Runs:
    """Files and finished runs that tests share; each is made when it is first asked for."""

    def __init__(self, factory):
        self.factory, self.made = factory, {}

    def _once(self, what, name, make):
        if (what, name) not in self.made:
            self.made[what, name] = make(self.factory.mktemp(what))
        return self.made[what, name]

    def config(self, name):
        """Return the file of a method's settings."""

        def write(folder):
            (folder / "tiny.yaml").write_text(COMMANDS[name].config)
            return folder / "tiny.yaml"

        return self._once("config", name, write)

    def folders(self, name):
        """Return two data sets: twelve graphs to train on, and three others."""

        def generate(folder):
            command = COMMANDS[name]
            for part, count, seed in (("train", 12, 7), ("valid", 3, 8)):
                words = ["--count", count, "--seed", seed, "--nodes", command.nodes, "--quiet"]
                succeed("gen", command.generator, folder / part, *words)
            return folder / "train", folder / "valid"

        return self._once("graphs", name, generate)

    def whole(self, name):
        """Return a finished run on generated graphs: its folder and what it printed."""

        def train(folder):
            return folder / "run", succeed("train", name, "--output", folder / "run", "--config", self.config(name))

        return self._once("whole", name, train)


def succeed(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.stderr
    return result


def refused(result, *words):
    """Check that a command ended with one sentence of error, which has these words."""
    assert (result.exit_code, result.stdout) == (2, "")
    errors = [line for line in result.stderr.strip().splitlines() if not line.startswith("note: ")]
    assert len(errors) == 1, result.stderr
    for word in words:
        assert word in errors[0]


def assert_same_weights(folder, other):
    for name in (CHECKPOINT, WEIGHTS):
        one, two = load_file(folder / name), load_file(other / name)
        assert one.keys() == two.keys()
        assert all(torch.equal(value, two[key]) for key, value in one.items())


def start_process(method, folder, *options):
    command = ["train", method, "--output", folder, *options]
    words = [sys.executable, "-m", "schedopt", *map(str, command)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for_line(folder, count, process):
    curve = folder / CURVE
    for _ in range(60_000):
        if process.poll() is not None or (curve.exists() and curve.read_bytes().count(b"\n") >= count):
            return
        time.sleep(0.01)


def check_that_stops_lose_nothing(method, options, lines, run, folder, jobs=1, sigkill=False):
    """Stop a run by Ctrl-C and, if asked, SIGKILL; it then ends like one that was left alone on one worker.

    Parameters
    ----------
    method
        Of `schedopt train`.
    options
        Settings.
    lines
        Of the curve of the whole run.
    run
        Runs a command line.
    folder
        Where there is room for two runs.
    jobs
        Workers of the run until Ctrl-C.
    sigkill
        Whether to go on in another process, and kill it. One method is enough: all go on by the same trainer's
        loop, and `run_killed_at_any_moment` kills each without a process.
    """
    stopped, whole = folder / "run", folder / "whole"
    workers = ["--jobs", jobs] if jobs > 1 else []
    with start_process(method, stopped, *options, *workers) as process:
        wait_for_line(stopped, 3, process)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (130, ""), stderr
    assert "Traceback" not in stderr
    again = " ".join(["schedopt", "train", method, "--output", str(stopped), "--resume", *map(str, workers)])
    assert f"go on with: {again}\n" in stderr
    done = len(curve_of(stopped))
    assert 3 <= done < lines
    if sigkill:
        with start_process(method, stopped, *options, "--resume") as process:
            wait_for_line(stopped, done + 2, process)
            process.kill()
            process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL
        assert done <= len(curve_of(stopped)) < lines
    resumed = run("train", method, "--output", stopped, "--resume", "--quiet")
    assert resumed.exit_code == 0, resumed.stderr
    assert run("train", method, "--output", whole, *options, "--quiet").exit_code == 0
    assert_same_weights(stopped, whole)
    assert (stopped / CURVE).read_text().count("\n") == lines
