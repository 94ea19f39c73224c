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
def test_regal_table1_prints_every_row_and_keeps_the_runs(weights, tmp_path):
    arguments = ("runtime", tmp_path, 2, 2, 1, 1)
    printed = run("regal/table1.sh", *arguments, WEIGHTS=str(weights))
    assert "makespan, 2 graphs, 2 devices, seeds 1000 to 1001" in printed
    whole, few = printed.partition("| | improvement (paper)")[2].split("the graphs of cp-sat (1):")
    regal = f"regal:weights={weights}/regal-runtime.safetensors"
    methods = ("brkga-tuned", "gp-dfs", "local-search", "brkga:decoder=lazy", "brkga:evaluations=50000", regal)
    for method in (*methods, f"{regal}:actions=sample", "random:evaluations=5000", "teacher:cut-and-time-64"):
        assert f"\n| `{method}` | " in whole and f"\n| `{method}` | " in few
    assert "| `cp-sat:time-limit=1s`, on 1 | " in whole and "| `cp-sat:time-limit=1s` | " in few
    assert "| `brkga` | 0 (+0.0%) |  | " in whole
    with (tmp_path / "runtime-teacher.csv").open() as file:
        taught = list(csv.DictReader(file))
    assert len(taught) == 4 and all(float(run["value"]) >= float(run["lower_bound"]) for run in taught)
    before = {path: path.read_bytes() for path in tmp_path.glob("*.csv")}
    assert run("regal/table1.sh", *arguments, WEIGHTS=str(weights)) == printed  # not run again, so with the same times
    assert {path: path.read_bytes() for path in tmp_path.glob("*.csv")} == before


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
