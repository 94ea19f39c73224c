"""`schedopt pareto`: what it prints and writes, what it refuses, resuming, and Ctrl-C."""

import csv
import json
import re

import pytest
from models import small_graphs
from models.signals import interrupted_after
from schedopt import write_graph


@pytest.fixture
def trade(tmp_path):
    """Return the file of a graph with two points: 13 KiB in 21 us, and 9 KiB in 22 us."""
    write_graph(small_graphs.trade(), tmp_path / "trade.pbtxt")
    return tmp_path / "trade.pbtxt"


QUICK = ("--points", 3, "--evaluations", 300)


def rows(text):
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if re.match(r"│ \d", line)]


@pytest.mark.slow
def test_the_table_and_everything_it_writes(run, trade, tmp_path):
    targets = {name: tmp_path / f"front.{name}" for name in ("csv", "json", "svg", "png", "html")}
    schedules = tmp_path / "schedules"
    done = run("pareto", trade, *QUICK, "-o", targets["csv"], "--plot", targets["svg"], "--schedules", schedules)
    assert done.exit_code == 0, done.stderr
    assert "trade: 5 ops, peak memory against time, recomputation on 1 device" in done.stdout
    assert rows(done.stdout) == [
        ["1", "13.00 KiB", "13.00 KiB", "21 us", "none", "21 us", "none", "0"],
        ["2", "9.00 KiB", "9.00 KiB", "22 us", "+4.76%", "22 us", "none", "1"],
    ]
    assert "No schedule is below 9.00 KiB, whatever time it takes." in done.stdout
    said = [line for line in done.stderr.splitlines() if "wrote" in line]
    assert said == [f"note: wrote {t}" for t in (targets["csv"], targets["svg"], f"2 schedules to {schedules}")]
    with targets["csv"].open(newline="") as file:
        assert [row["peak_memory"] for row in csv.DictReader(file)] == ["13312", "9216"]
    for number in (1, 2):
        assert run("check", trade, schedules / f"{number}.json").exit_code == 0
    done = run("pareto", trade, *QUICK, "-o", targets["json"], "--plot", targets["html"], "--json")
    assert json.loads(done.stdout)["points"] == json.loads(targets["json"].read_text())["points"]
    assert "<svg" in targets["html"].read_text()
    (schedules / "3.json").touch()
    done = run("pareto", trade, *QUICK, "--schedules", schedules)
    assert f"wrote 2 schedules to {schedules}, in which 1 more .json are none of this front" in done.stderr
    assert run("pareto", trade, *QUICK, "--plot", targets["png"], "--quiet").stderr == ""
    assert targets["png"].read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished(run, tmp_path):
    graph, file, output = tmp_path / "graph.pb", tmp_path / "front.jsonl", tmp_path / "front.csv"
    assert run("gen", "layered", "--nodes", 60, graph, "--quiet").exit_code == 0
    arguments = ["pareto", graph, "--points", 4, "-t", "3s", "--resume", file, "-o", output]
    code, stdout, stderr = interrupted_after(file, arguments, 2)
    assert code == 130, stderr
    said = re.search(r"interrupted: (\d) of 5 searches are done and kept in .*; the same command goes on", stderr)
    assert said, stderr
    assert int(said[1]) == file.read_text().count("\n")
    assert "peak memory against time" in stdout
    assert output.exists()
    again = run(*arguments)
    assert again.exit_code == 0
    assert f"note: {said[1]} of 5 searches are taken from" in again.stderr
