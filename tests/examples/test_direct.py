"""The scripts in `examples/experiments/direct` run, on few and small graphs, and print their tables."""

import re

import pytest
from models.examples import EXAMPLES, run
from schedopt.core.files.costgraph import read_graph
from schedopt.core.problem.problem import Problem
from schedopt.core.solve.solve import solve


@pytest.mark.slow
def test_table_prints_a_row_per_method(tmp_path):
    (tmp_path / "one.pb.gz").symlink_to(EXAMPLES / "graphs" / "watts-strogatz-100.pb.gz")
    methods = ("input", "direct:decode=rule", "direct")
    printed = run("direct/table.py", tmp_path, "--devices", 2, 3, "--bandwidth", "10GB/s", "--methods", *methods)
    for task in ("runtime", "memory"):
        assert all(f"{task}, {devices} devices, 1 graphs" in printed for devices in (2, 3))
    assert all(printed.count(f"  {method} ") == 4 for method in methods)


@pytest.mark.slow
def test_oracles_are_measured_from_one_device_or_from_the_rule():
    file = EXAMPLES / "graphs" / "unet.pb.gz"
    printed = run("direct/oracles.py", file, "--bandwidth", "10GB/s", "--latency", "5us")
    found = {name: float(value) for name, value in re.findall(r"^  (.*): ([+-][\d.]+) ±", printed, re.MULTILINE)}
    assert len(found) == 9
    problem = Problem(read_graph(file), "runtime", devices=2, bandwidth=1e10, latency=5.0)
    rule, plan = (solve(problem, text, seed=1000).value for text in ("direct:decode=rule", "auto:evaluations=2000"))
    one = problem.graph.runtime.sum()
    assert found["the rule"] == pytest.approx(100 * (1 - rule / one), abs=0.01)
    assert found["auto"] == pytest.approx(100 * (1 - plan / one), abs=0.01)
    assert found["the rule, the best patience"] >= found["the rule"]
    assert found["the plan's placement, ops in its order"] <= found["auto"] + 0.01
    for name in ("the rule", "the rule, the best patience", "the plan's order as keys, the best patience"):
        assert found[f"{name}, with one device"] == max(found[name], 0)
    peaks = run("direct/oracles.py", file, "--task", "memory")
    assert "  the plan's order: " in peaks
    assert "  auto: " in peaks
