"""Tiny runs of every `schedopt train` of a network: their settings, and what is said of them."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import torch
import yaml
from safetensors.torch import load_file
from schedopt.cli.main import app
from schedopt.policies.training.run_folder import CHECKPOINT, WEIGHTS
from typer.testing import CliRunner


class TrainCommand(SimpleNamespace):
    """A subcommand of `train`, and a run of four lines: the fields of `train_commands.yaml`."""

    @property
    def kind(self):
        """Return the class of its settings."""
        return importlib.import_module(f"schedopt.policies.{self.name}.training").TrainingParameters

    def score(self, line):
        """Return that of a line of the curve; the smallest is the best."""
        sign = -1 if self.best["larger"] else 1
        return min(sign * line[column] for column in self.best["columns"])


TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
COMMANDS = {name: TrainCommand(name=name, **fields) for name, fields in TABLE.items()}


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
            (folder / "tiny.yaml").write_text(yaml.safe_dump(COMMANDS[name].config))
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
