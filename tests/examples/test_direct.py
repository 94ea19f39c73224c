"""The scripts in `examples/experiments/direct` run, on few and small graphs, and print their tables."""

import pytest
from models.examples import EXAMPLES, run


@pytest.mark.slow
def test_table_prints_a_row_per_method(tmp_path):
    (tmp_path / "one.pb.gz").symlink_to(EXAMPLES / "graphs" / "watts-strogatz-100.pb.gz")
    methods = ("input", "direct:decode=rule", "direct")
    printed = run("direct/table.py", tmp_path, "--devices", 2, 3, "--bandwidth", "10GB/s", "--methods", *methods)
    for task in ("runtime", "memory"):
        assert all(f"{task}, {devices} devices, 1 graphs" in printed for devices in (2, 3))
    assert all(printed.count(f"  {method} ") == 4 for method in methods)


@pytest.mark.slow
def test_one_shot_has_a_table_per_kind_and_its_draws_are_no_worse_than_their_rule():
    printed = run("direct/one_shot.py", "--graphs", 5, "--ops", 40, "--draws", 8, "--methods", "list-scheduling")
    assert printed.count("5 graphs of 40 ops") == 3
    gains = {line.split()[0]: float(line.split()[-5]) for line in printed.splitlines() if line.startswith("  ")}
    assert min(gains["list-scheduling"], gains["best"]) >= 0
