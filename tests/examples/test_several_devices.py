"""The scripts in `examples/experiments/several_devices` run, on a small graph, and go on where they were."""

import json

import pytest
from models.examples import EXAMPLES, run

GRAPH = EXAMPLES / "graphs" / "watts-strogatz-100.pb.gz"


@pytest.mark.slow
def test_weak_search_compares_starts_and_times_and_keeps_its_runs(tmp_path):
    (tmp_path / "synthetic-100").mkdir()
    (tmp_path / "synthetic-100" / "one.pb.gz").symlink_to(GRAPH)
    kept = tmp_path / "runs.jsonl"
    options = ("--transfers", "paid", "--devices", 2, "--seconds", 0.2, 0.4, "--starts", "none", "heft")
    arguments = ("several_devices/weak_search.py", tmp_path, *options, "--resume", kept)
    printed = run(*arguments)
    first, last = printed.split("from the weakest on:\n")
    assert first.count("1 graphs, 1 within the limit") == len(last.splitlines()) == 2  # no limit, and 60%
    found = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [(key[-3], key[-2]) for key, _ in found] == [("none", 0.2), ("none", 0.4), ("heft", 0.2)] * 2
    assert all(value >= bound and used < 1 for _, (value, bound, used, _) in found)
    assert run(*arguments) == printed
    assert len(kept.read_text().splitlines()) == len(found)


@pytest.mark.slow
def test_small_graphs_names_what_auto_loses_and_keeps_its_runs(tmp_path):
    (tmp_path / "one.pb.gz").symlink_to(GRAPH)
    kept = tmp_path / "runs.jsonl"
    options = ("--seconds", 0.2, "--devices", 2, "--methods", "auto", "brkga", "--clock", "processor")
    arguments = ("several_devices/small_graphs.py", tmp_path, *options, "--resume", kept)
    printed = run(*arguments)
    assert printed.count("  auto is above the best on:") == 2  # tasks
    assert [json.loads(line)[0][3] for line in kept.read_text().splitlines()] == ["auto", "brkga"] * 2
    assert run(*arguments) == printed


@pytest.mark.slow
def test_peak_bounds_compares_with_runs_of_before(tmp_path):
    (tmp_path / "one.pb.gz").symlink_to(GRAPH)
    kept, before = tmp_path / "runs.jsonl", tmp_path / "before.jsonl"
    arguments = ("several_devices/peak_bounds.py", tmp_path, "--seconds", 0.2, "--resume", kept)
    assert run(*arguments).startswith("now: 1 graphs, ")
    ((key, (peak, bound)),) = [json.loads(line) for line in kept.read_text().splitlines()]
    before.write_text(json.dumps([key, [2 * peak, bound - 1]]))
    printed = run(*arguments, "--before", before)
    assert "bound: raised on 1, lower on 0" in printed
    assert "peak: -50.00 ± 0.00 %, lower on 1, higher on 0" in printed
