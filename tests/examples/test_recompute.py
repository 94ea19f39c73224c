"""The scripts in `examples/experiments/recompute` run on few and small graphs, go on from their files, print tables."""

import csv

import pytest
from models.examples import EXAMPLES, run


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.slow
def test_layered_graphs(tmp_path):
    output = tmp_path / "layered.csv"
    arguments = ("recompute/layered.py", 30, "--graphs", 2, "--seconds", 0.5, "--limits", 0.8, 0.6, "--output", output)
    printed = run(*arguments)
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2
    assert {row["status"] for row in rows} <= {"kept", "not kept", "infeasible"}
    for row in rows:
        if row["status"] == "kept":
            assert int(row["peak"]) <= int(row["limit"])
            assert float(row["added"]) >= float(row["bound"]) - 1e-9
    first = cells(next(line for line in printed.splitlines() if line.startswith("| 30 | 0.8 ")))
    assert first[:3] == ["30", "0.8", "2"]
    content = output.read_text()
    assert run(*arguments) == printed
    by_clock = run(*arguments, "--clock", "processor", "--cp-sat", 1, "--cp-sat-graphs", 1)
    assert "processor time" in by_clock
    with output.open(newline="") as file:
        added = [row for row in csv.DictReader(file) if row["clock"] == "processor"]
    assert [sum(row["method"] == method for row in added) for method in ("recompute", "cp-sat")] == [4, 2]
    output.write_text(content)
    assert run(*arguments) == printed
    assert output.read_text() == content


@pytest.mark.slow
def test_training_graphs(tmp_path):
    folder, output = tmp_path / "few", tmp_path / "rows.csv"
    folder.mkdir()
    for name in ("unet.pb.gz", "bilstm-sgd.pb.gz"):
        (folder / name).symlink_to(EXAMPLES / "graphs" / name)
    options = ("--limits", 0.8, 0.01, "--seconds", 1, "--order-seconds", 1, "--output", output)
    printed = run("recompute/training_graphs.py", folder, *options)
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["graph"], row["share"]) for row in rows] == [("bilstm-sgd", "0.8"), ("bilstm-sgd", "0.01")]
    assert rows[1]["status"] == "infeasible"
    row = next(line for line in printed.splitlines() if line.startswith("| bilstm-sgd "))
    assert cells(row)[-1].startswith("impossible")
