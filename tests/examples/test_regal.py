"""The scripts in `examples/experiments/regal` run, on few and small graphs, and print their tables."""

import csv
from pathlib import Path

import pytest
from models.examples import EXAMPLES, run
from models.networks import write_regal_weights
from schedopt.core.search.registry import METHODS


@pytest.mark.slow
def test_many_devices_prints_a_table_per_folder_and_number_of_devices(few):
    printed = run("regal/many_devices.sh", 1, 0.3, 0, 1, few)
    for folder, graphs in (("synthetic", "1 graph"), ("few", "2 graphs")):
        for devices, limit in ((4, 50), (8, 45)):
            assert f"{folder}:\nmakespan, {graphs}, {devices} devices, at most {limit}% of the input order" in printed


@pytest.mark.skipif("brkga-tuned" not in METHODS, reason="compares with brkga-tuned")
@pytest.mark.slow
def test_regal_table1_prints_both_tables_and_keeps_the_runs(weights, tmp_path):
    printed = run("regal/table1.sh", "runtime", 2, 2, 1, 1, 0, 1, tmp_path / "runs", WEIGHTS=str(weights))
    assert "makespan, 2 graphs, 2 devices, seeds 1000 to 1001" in printed
    assert "standard deviation over seeds" in printed
    assert "graphs no worse than the reference, least and largest improvement: brkga-tuned" in printed
    assert "makespan, 1 graph, 2 devices, seed 1000" in printed
    for method in (
        "brkga-tuned",
        "auto:evaluations=5000",
        "brkga:evaluations=50000",
        "cp-sat:hint=50000:time-limit=1s",
    ):
        assert f"\n{method} " in printed
    names = {"regal": "regal", "idrs": "regal", "gas": "gas"}
    named = [f"{m}:weights={weights}/{name}-runtime.safetensors" for m, name in names.items()]
    named.append(f"regal:weights={weights}/regal-runtime-transfers.safetensors")
    with (tmp_path / "runs" / "runtime.csv").open() as file:
        runs = [row for row in csv.DictReader(file) if row["method"] in named]
    assert {row["method"] for row in runs} == set(named)
    assert len(runs) == 16
    assert all(row["status"] in ("feasible", "optimal") and row["evaluations"] == "5000" for row in runs)
    with (tmp_path / "runs" / "runtime-cp-sat.csv").open() as file:
        again = [row for row in csv.DictReader(file) if row["method"] in named]
    assert len(again) == 4 and all(row in runs for row in again)  # not run again, so with the same times


def test_regal_ablation_goes_on_with_the_runs_that_are_there(tmp_path):
    """The commands, printed instead of run."""
    (tmp_path / "gas").mkdir()
    (tmp_path / "gas" / "checkpoint.safetensors").touch()
    said = tmp_path / "said.sh"
    said.write_text(f'#!/usr/bin/env bash\necho "$@" >> {tmp_path}/said\n')
    said.chmod(0o755)
    assert run("regal/ablation.sh", "runtime", tmp_path, "networks", SCHEDOPT=str(said)) == "networks:\n\n"
    printed = (tmp_path / "said").read_text().splitlines()
    trained = {
        Path(words[words.index("--output") + 1]).name: (words[1], "--resume" in words)
        for words in map(str.split, printed)
        if words[0] == "train"
    }
    assert trained == {"both": ("regal", False), "gas": ("gas", True), "autoregressive": ("regal", False)}


@pytest.mark.slow
def test_regal_generalise_runs_every_budget_on_each_set_of_graphs(weights, tmp_path):
    four = write_regal_weights(tmp_path / "four.safetensors", devices=4)
    arguments = ("runtime", tmp_path / "runs", 2, 1, 0, 1, "60-60", four, "900 5000")
    printed = run("regal/generalise.sh", *arguments, WEIGHTS=str(weights))
    for title in ("makespan, 2 graphs, 2 devices", "makespan, 1 graph, 2 devices", "makespan, 2 graphs, 4 devices"):
        assert title in printed
    assert printed.count("regal-runtime-transfers.safetensors") >= 4
    for name in ("budgets", "large"):
        assert f"{name}: improvement over brkga:evaluations=5000" in printed
    assert (tmp_path / "runs" / "sweep.png").exists()


@pytest.mark.slow
def test_regal_topologies_makes_copies_and_draws_them(weights, tmp_path):
    graphs = (EXAMPLES / "graphs" / name for name in ("watts-strogatz-100.pb.gz", "unet.pb.gz"))
    arguments = ("runtime", tmp_path / "runs", 1, *graphs, "--", "--per-graph")
    printed = run("regal/topologies.sh", *arguments, WEIGHTS=str(weights))
    assert "makespan, 4 graphs, 2 devices" in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith(("  unet ", "  watts-strogatz-100 "))]
    assert [row[1] for row in rows] == ["2", "2"]
    assert "4 graphs: " in printed
    assert all((tmp_path / "runs" / f"{name}.png").exists() for name in ("topologies", "histogram"))
