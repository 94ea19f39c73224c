"""The scripts in `examples/experiments/real` run, on few and small graphs and models, and print their tables."""

import csv

import pytest
from models.examples import EXAMPLES, EXPERIMENTS, run

pytestmark = pytest.mark.slow


def test_real_graphs_prints_a_table_per_folder(few):
    printed = run("real/graphs.sh", few, "--", "--time-limit", "0.5s")
    assert "few:\npeak memory, 2 graphs, 1 device, 0.5 s" in printed
    (row,) = (line.split() for line in printed.splitlines() if line.startswith("auto "))
    assert "2/0/0" in row


def test_least_arenas_are_what_fit_says():
    pytest.importorskip("tflite_micro")
    printed = run("edge/least_arenas.py", EXAMPLES / "four_branches.tflite")
    assert [row.split(" | ")[-4:] for row in printed.splitlines()[2:]] == [
        ["96,400", "96,400", "0", "0 |"],
        ["35,016", "35,016", "0", "0 |"],
    ]


TINY = """
import torch

def efficientnet_b0():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), Branches()).eval(), (torch.randn(256, 64),)

class Branches(torch.nn.Module):
    def forward(self, x):
        wide = [x.repeat(1, 16) * 2 for _ in range(3)]
        return sum(branch.mean(1) for branch in wide)
"""


def test_compile_backends_runs_each_way_in_its_own_process(tmp_path):
    """In schedopt's order one wide tensor is there at a time, with the bits of PyTorch's own."""
    (tmp_path / "models.py").write_text(TINY)
    script = tmp_path / "compile_backends.py"
    script.write_bytes((EXPERIMENTS / "real" / "compile_backends.py").read_bytes())
    ways = ("eager", "aot_eager", "schedopt")
    run(script, "efficientnet_b0", "--runs", 1, "--output", tmp_path / "rows.csv", "--ways", *ways)
    rows = {row["way"]: row for row in csv.DictReader((tmp_path / "rows.csv").open())}
    assert tuple(rows) == ways
    assert [row["equal"] for row in rows.values()] == ["", "", "True"]
    assert float(rows["schedopt"]["peak"]) < float(rows["aot_eager"]["peak"])
    assert rows["schedopt"]["counted"] == rows["schedopt"]["bound"] < rows["schedopt"]["stock"]


def test_beside_counts_the_gradients_that_hooks_free():
    lines = run("real/beside.py", "optimize_memory:mlp", "--runs", 1, "--time-limit", 1).splitlines()
    eager, hooks = (float(cell.split(",")[0]) for cell in lines[2].split("|")[3:5])
    assert eager - hooks > 8  # MiB: two of six gradients at least


def test_real_programs_measures_models_and_skips_rows_that_are_there(tmp_path):
    """Three wide tensors are made before the first is used up; a schedule makes and uses them one by one."""
    (tmp_path / "models.py").write_text(TINY)
    script = tmp_path / "programs.py"
    script.write_bytes((EXPERIMENTS / "real" / "programs.py").read_bytes())
    arguments = ("efficientnet_b0", "--repeats", 1, "--time-limit", 1, "--output", tmp_path / "rows.csv")
    header, line = run(script, *arguments).splitlines()
    (row,) = csv.DictReader((tmp_path / "rows.csv").open())
    assert row["equal"] == "True" and row["status"] == "optimal"
    for order in ("program", "schedule"):
        assert int(row[f"{order}_measured"]) == pytest.approx(int(row[f"{order}_predicted"]), rel=0.01)
    held, before, after = (int(row[name]) for name in ("held", "program_measured", "schedule_measured"))
    wide = 256 * 16 * 32 * 4
    assert held == 4 * (64 * 32 + 32 + 256 * 64) and before - after == pytest.approx(2 * wide, rel=0.05)
    assert f"{1 - after / before:.1%}" in line and f"{(before - after) / (before - held):.1%}" in line
    (tmp_path / "models.py").unlink()
    assert run(script, *arguments).splitlines() == [header, line]


def test_onnx_models(tmp_path):
    """The table has a row per model, whose better order saves what is predicted, and keeps the results."""
    from models.onnx_models import narrowed, save

    path = save(tmp_path / "narrowed.onnx", narrowed())
    printed = run("real/onnx_models.py", path, "--time-limit", "1", "--folder", tmp_path / "out")
    _, row = printed.splitlines()
    name, nodes, *peaks, saved, bound, beside, error, _, _, arena_before, arena, arena_bound, kept = row.split()
    assert float(arena_bound) <= float(arena) < float(arena_before) < float(peaks[0])
    predicted_before, predicted_after, before, after = map(float, peaks)
    assert (name, int(nodes), kept) == ("narrowed", 9, "yes")
    assert after < before
    assert float(bound) <= predicted_after
    assert predicted_after < predicted_before
    assert float(beside.rstrip("%")) > float(saved.rstrip("%")) > 10
    assert float(error.rstrip("%")) < 5
    assert (tmp_path / "out" / "narrowed_ordered.onnx").exists()
