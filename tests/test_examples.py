"""The scripts in `examples/` run, on few and small graphs, and print the tables that they promise."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(script, *arguments):
    schedopt = shutil.which("schedopt", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    environment = {
        **os.environ,
        "SCHEDOPT": schedopt,
        "PATH": f"{Path(schedopt).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", EXAMPLES / script, *map(str, arguments)], env=environment, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_real_graphs_prints_a_line_per_folder(tmp_path):
    for name in ("unet.pb.gz", "layered-50.pbtxt"):
        (tmp_path / name).symlink_to(EXAMPLES / "graphs" / name)
    line = run("real_graphs.sh", tmp_path, "--", "--time-limit", "0.5s")
    assert "  2 graphs  mean -" in line
    assert "worse than input 0  failed check 0" in line


@pytest.mark.parametrize(
    ("script", "arguments", "tables"),
    [
        (
            "layered_baselines.sh",
            (2, 1),
            ["500 ops, 2 graphs", "1000 ops, 2 graphs", "2000 ops, 2 graphs", "K = 10,000"],
        ),
        ("two_devices.sh", (2,), ["makespan, 2 graphs, 2 devices", "peak memory, 2 graphs, 2 devices", "decoder=lazy"]),
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
