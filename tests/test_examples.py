"""The scripts in `examples/` run, on few and small graphs, and print the tables that they promise."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from schedopt.core.registry import METHODS

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(script, *arguments):
    schedopt = shutil.which("schedopt", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    environment = {
        **os.environ,
        "SCHEDOPT": schedopt,
        "PATH": f"{Path(schedopt).parent}{os.pathsep}{os.environ['PATH']}",
    }
    interpreter = "bash" if script.endswith(".sh") else sys.executable
    done = subprocess.run(
        [interpreter, EXAMPLES / script, *map(str, arguments)], env=environment, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def few(tmp_path):
    """Return a folder of two small graphs."""
    folder = tmp_path / "few"
    folder.mkdir()
    for name in ("unet.pb.gz", "layered-50.pbtxt"):
        (folder / name).symlink_to(EXAMPLES / "graphs" / name)
    return folder


def test_real_graphs_prints_a_table_per_folder(few):
    printed = run("real_graphs.sh", few, "--", "--time-limit", "0.5s")
    assert "few:\npeak memory, 2 graphs, 1 device, 0.5 s" in printed
    (row,) = (line.split() for line in printed.splitlines() if line.startswith("auto "))
    assert "2/0/0" in row


def test_many_devices_prints_a_table_per_folder_and_number_of_devices(few):
    printed = run("many_devices.sh", 1, 0.3, 0, 1, few)
    for folder, graphs in (("synthetic", "1 graph"), ("few", "2 graphs")):
        for devices, limit in ((4, 50), (8, 45)):
            assert f"{folder}:\nmakespan, {graphs}, {devices} devices, at most {limit}% of the input order" in printed


@pytest.mark.skipif("brkga-tuned" not in METHODS, reason="compares with brkga-tuned")
def test_regal_table1_prints_both_tables():
    printed = run("regal_table1.sh", "runtime", 2, 2, 1, 1)
    assert "makespan, 2 graphs, 2 devices, seeds 1000 to 1001" in printed
    assert "standard deviation over seeds" in printed
    assert "makespan, 1 graph, 2 devices, seed 1000" in printed
    for method in ("brkga-tuned", "auto:evaluations=5000", "cp-sat:hint=50000:time-limit=1s"):
        assert f"\n{method} " in printed


@pytest.mark.skipif(not importlib.util.find_spec("torch._inductor.memory"), reason="this PyTorch lacks the heuristics")
def test_inductor_heuristics_never_beat_auto(few):
    printed = run("inductor_heuristics.py", few, "--time-limit", 0.5).splitlines()
    rows = [line.split() for line in printed if line.startswith("few ")]
    assert [row[1:2] + row[-7:-4] for row in rows] == [["2", "1", "1", "0"]] * 2


def test_scaling_draws_a_row_for_each_size(tmp_path):
    printed = run("scaling.py", 100, 200, "--time-limit", 0.3, "--output", tmp_path / "scaling.png").splitlines()
    assert [line.split()[0] for line in printed[2:]] == ["100", "200"]
    assert all(float(line.split()[5].rstrip("%")) > 0 for line in printed[2:])
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("script", "arguments", "tables"),
    [
        (
            "topoformer_table1.sh",
            (1, 1, 30, 20, 0.2, 0.2),
            ["500 ops, generated", "beam-size=30 ", "2000 ops, generated", "beam-size=20 ", "auto:time-limit=0.2s "],
        ),
        ("layered_baselines.sh", (2,), ["500 ops, 2 graphs", "1000 ops, 2 graphs", "2000 ops, 2 graphs"]),
        ("brkga_budget.sh", (2,), ["2 graphs, 2 devices", "brkga:evaluations=10000"]),
    ],
)
def test_table(script, arguments, tables):
    printed = run(script, *arguments)
    for table in tables:
        assert table in printed


def test_make_graphs_makes_the_shipped_graphs_again(tmp_path):
    run("make_graphs.sh", tmp_path)
    made, shipped = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in (tmp_path, EXAMPLES / "graphs"))
    assert made == shipped


def test_topoformer_time_prints_a_row_per_size_and_compares_up_to_the_largest():
    printed = run("topoformer_time.py", 30, 60, "--runs", 1, "--beam-size", 10, "--largest", 30)
    header, first, second = (line.split() for line in printed.splitlines())
    assert header[:4] == ["ops", "greedy", "sample", "beam"]
    assert first[0] == "30" and len(first) == 11
    assert second[0] == "60" and len(second) == 8


def test_topoformer_table1_keeps_runs_that_the_figures_draw(tmp_path):
    printed = run("topoformer_table1.sh", 2, 2, 10, 10, 0.1, 0.1, 0, 1, "60 80", tmp_path / "runs")
    assert "layered, 60 ops, generated with seed 0:\npeak memory, 2 graphs" in printed
    drawn = run(
        "topoformer_figures.py", *(tmp_path / "runs" / f"{ops}.csv" for ops in (60, 80)), "--output", tmp_path / "f.png"
    )
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    (reference,) = (line.split() for line in drawn.splitlines()[:2] if "approximate-dp" in line)
    assert reference[1:4] == ["+0.00", "±", "0.00%"]
    assert drawn.count("topoformer:decode=") == 6


def test_figures_call_trained_weights_by_their_run(tmp_path):
    runs = tmp_path / "runs.csv"
    method = "topoformer:decode=beam:weights=/some where/run/weights.safetensors"
    rows = [("approximate-dp", 100, 2.0), (method, 110, 0.1)]
    runs.write_text(
        "method,graph,status,value,seconds\n" + "".join(f"{name},g,feasible,{v},{t}\n" for name, v, t in rows)
    )
    printed = run("topoformer_figures.py", runs, "--output", tmp_path / "f.png")
    assert "topoformer:decode=beam:weights=run " in printed and "some where" not in printed


def test_topoformer_training_compares_plain_reinforce_with_ours(tmp_path):
    printed = run("topoformer_training.sh", tmp_path / "runs", 16, 2, 40)
    assert "layered, 40 ops:\npeak memory, 2 graphs" in printed
    assert printed.count("topoformer:decode=") == 12
    for name in ("plain-from-random", "imitation", "plain", "leave-one-out"):
        assert (tmp_path / "runs" / name / "curve.jsonl").exists()


def test_topoformer_ablation_trains_each_network_once(tmp_path):
    for _ in range(2):
        printed = run("topoformer_ablation.sh", "decoders", tmp_path / "runs", 8, 2, 40)
        assert "layered, 40 ops:\npeak memory, 2 graphs" in printed
        assert printed.count("topoformer:decode=") == 9
    for network in ("edge-transformer-autoregressive", "topoformer-autoregressive", "topoformer"):
        assert len((tmp_path / "runs" / network / "curve.jsonl").read_text().splitlines()) >= 5


def test_topoformer_table2_trains_on_some_graphs_and_compares_on_others(tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    for name in (
        "unet.pb.gz",
        "layered-50.pbtxt",
        "nasnet-a-mobile.pb.gz",
        "watts-strogatz-100.pb.gz",
        "layered-500.pb.gz",
    ):
        (folder / name).symlink_to(EXAMPLES / "graphs" / name)
    printed = run("topoformer_table2.sh", tmp_path / "work", folder)
    assert "test graphs, " in printed
    assert printed.count("topoformer:decode=beam") >= 4
