"""Tiny runs of every `schedopt train` of a network: their settings, and what is said of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from schedopt.cli.main import app
from schedopt.policies.direct import training as direct_training
from schedopt.policies.direct import training_settings as direct_settings
from schedopt.policies.regal import training as regal_training
from schedopt.policies.regal import training_settings as regal_settings
from schedopt.policies.topoformer import training as topoformer_training
from schedopt.policies.topoformer import training_settings as topoformer_settings
from schedopt.policies.training.run_folder import CHECKPOINT, WEIGHTS
from typer.testing import CliRunner


class TrainCommand(NamedTuple):
    """A subcommand of `train`, and a run of four lines."""

    config: str  # settings of the run, as YAML
    generator: str  # `schedopt gen` makes graphs for it with so many
    nodes: Any
    kind: Any  # of its runs
    lines: list  # what the lines of progress begin with
    always: list  # what all of them say
    said: dict  # what those of some numbers say
    unsaid: dict
    title: str  # of the table
    column: str  # the first of the table, in a line of the curve
    score: Callable  # of a line of the curve; the smallest is the best
    validated: list  # of a line: equal before training that starts from the weights of that line
    use: str  # options for the weights, in the command that is printed
    kept: str  # file with a line for each graph that is searched
    kept_lines: int  # of the given twelve and three
    searched: str | None  # what finds those lines, if all of it goes through one function
    given: list  # options of a run on given graphs
    recipe: Callable  # lets the file of a name, in a folder, stand for the settings of the shipped weights
    recipe_file: str
    recipe_options: list


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
        kind=topoformer_training.KIND,
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
        searched="schedopt.policies.topoformer.searched_orders._search",
        given=[],
        recipe=lambda patch, folder: patch.setattr(topoformer_settings, "RECIPE", folder / "recipe.yaml"),
        recipe_file="recipe.yaml",
        recipe_options=[],
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
        kind=regal_training.KIND,
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
        recipe=lambda patch, folder: patch.setattr(regal_settings, "SHIPPED", folder),
        recipe_file="regal-runtime.yaml",
        recipe_options=["--task", "runtime"],
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
        kind=direct_training.KIND,
        lines=["before training", "phase 1/2 epoch 1", "phase 1/2 epoch 2", "phase 2/2 epoch 1"],
        always=["improvement greedy/sample"],
        said={1: ["ranking loss"], 3: ["sampled gap"]},
        unsaid={1: ["sampled gap"]},
        title="improvement over the rule",
        column="sample_improvement_percent",
        score=lambda line: -line["sample_improvement_percent"],
        validated=[f"{name}_improvement_percent" for name in direct_training.VALIDATED],
        use="--method direct --task runtime",
        kept="plans.jsonl",
        kept_lines=12,
        searched="schedopt.policies.direct.cases.solve",
        given=[],
        recipe=lambda patch, folder: patch.setattr(direct_settings, "SHIPPED", folder),
        recipe_file="direct-runtime.yaml",
        recipe_options=["--task", "runtime"],
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
