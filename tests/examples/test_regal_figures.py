"""REGAL's figures, `examples/experiments/regal/figures.py`: the numbers that they print, by hand."""

import argparse
import csv
import importlib
import json
import re

import numpy as np
import pytest
import yaml
from models.examples import EXPERIMENTS, run
from schedopt.datasets.filters import topology_hash
from schedopt.policies.networks.shipped import WEIGHTS
from schedopt.policies.regal.training import Trainer, TrainingParameters
from schedopt.policies.training.run_folder import read_checkpoint


@pytest.fixture
def figure(tmp_path, capsys, monkeypatch):
    """Return a function that draws a figure of REGAL, and returns the lines printed."""
    monkeypatch.syspath_prepend(EXPERIMENTS / "regal")
    main = importlib.import_module("figures").main

    def draw(name, *arguments):
        output = tmp_path / f"{name}.png"
        main([name, *map(str, arguments), "--output", str(output)])
        assert output.read_bytes().startswith(b"\x89PNG")
        return [line.strip() for line in capsys.readouterr().out.splitlines()]

    return draw


@pytest.mark.slow
def test_the_curves_of_shipped_weights_are_those_of_their_card(figure):
    card = yaml.safe_load((WEIGHTS / "regal-runtime.yaml").read_text())
    rows = [row for run in card["runs"] for row in run["curve"]]
    hours = sum(run["curve"][-1][2] for run in card["runs"]) / 3600
    title, *found = figure("curves", "regal-runtime")
    assert title == f"regal-runtime: {len(rows)} validations in {hours:.2f} hours"
    assert [float(line.split()[-1].rstrip("%")) for line in found] == rows[-1][3:5]


@pytest.mark.slow
def test_regal_ablation_trains_a_network_whose_curves_are_drawn(figure, tmp_path):
    printed = run("regal/ablation.sh", "runtime", tmp_path, "gas", 2, 1, 2, 1, 1, 900)
    assert printed.startswith("gas:\nmakespan, 2 graphs, 2 devices, 900 evaluations")
    given = ("--training", tmp_path / "train", "--held-out", tmp_path / "test")
    title, *rows = figure("curves", tmp_path / "gas", "--graphs", 2, *given)
    assert title.endswith("gas: 2 epochs with rewards")
    curve = [json.loads(line) for line in (tmp_path / "gas" / "curve.jsonl").read_text().splitlines()]
    assert rows[1].split() == ["step", str(curve[-1]["step"]), "reward", f"{curve[-1]['reward']:.4f}"]
    seen, unseen, gap = (float(re.search(r"[+-][\d.]+", line)[0]) for line in rows[-3:])
    assert gap == pytest.approx(seen - unseen, abs=0.02)
    with (tmp_path / "gas.csv").open() as file:
        values = {(row["graph"], row["method"]): float(row["value"]) for row in csv.DictReader(file)}
    method = f"gas:weights={tmp_path / 'gas' / 'weights.safetensors'}"
    graphs = {graph for graph, _ in values}
    expected = [100 * (1 - values[graph, method] / values[graph, "brkga"]) for graph in graphs]
    assert unseen == pytest.approx(np.mean(expected), abs=0.01)
    # Without given graphs, a run's own are drawn.
    options = argparse.Namespace(graphs=1, training=None, held_out=None)
    training = importlib.import_module("figures_of_training")
    (first,), (other,) = training.both_sets(tmp_path / "gas", options)
    trained = Trainer(tmp_path / "own", read_checkpoint(tmp_path / "gas", TrainingParameters).parameters)._graphs()
    assert topology_hash(first) == topology_hash(trained.maker(0)()) != topology_hash(other)
