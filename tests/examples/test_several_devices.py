"""The scripts in `examples/experiments/several_devices` run, on a small graph, and go on where they were."""

import json

import numpy as np
import pytest
from models.examples import EXAMPLES, run
from models.sequences import SequenceCase
from naive.cuts import move_weights
from schedopt.core.kernels.placements.incremental_makespan import new_course

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


@pytest.mark.slow
def test_next_moves_learns_and_compares_and_keeps_its_runs(tmp_path):
    (tmp_path / "synthetic-100").mkdir()
    for name in ("one", "two"):
        (tmp_path / "synthetic-100" / f"{name}.pb.gz").symlink_to(GRAPH)
    kept = tmp_path / "runs.jsonl"
    script, few = "several_devices/next_moves.py", (tmp_path, "synthetic", "--ops", 100)
    learnt = run(script, "learn", *few, "--long", 2000)
    assert "held back" in learnt
    assert (tmp_path / "next-moves-synthetic.npz").exists()
    told = run(script, "oracle", *few, "--long", 2000, "--moves", 100)
    assert told.count("  100 moves") == 7
    arguments = (script, "compare", *few, "--seconds", 0.2, "--resume", kept)
    printed = run(*arguments)
    lines = [line.split()[3].strip(":") for line in printed.splitlines()]
    assert lines == ["uniform", "auto", "network", "critical", "crossing", "sent-less"]
    found = [json.loads(line) for line in kept.read_text().splitlines()]
    assert all(value >= bound and used < 0.5 for _, (value, bound, used) in found)
    assert run(*arguments) == printed
    assert len(kept.read_text().splitlines()) == len(found) == 12


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("seed", [1, 3, 5, 7, 9, 11])
def test_what_moves_are_chosen_by_is_true(seed, devices, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES / "experiments" / "several_devices")
    import op_choice

    case = SequenceCase(seed, devices)
    aim, ops = case.aim("makespan"), case.graph.num_ops
    order, placement = case.random_sequence()
    course = new_course(case.arrays, case.graph.input_order, case.links)
    scratch = op_choice.new_scratch(ops, devices)
    places = np.empty(ops, np.int32)
    places[order] = np.arange(ops)
    given = (np.array(order, np.int32), places, np.array(placement, np.int32))
    makespan = op_choice.describe(case.arrays, course.waits, *given, case.links, scratch)
    assert makespan == case.cost(aim)(order, placement)[2]
    rows = dict(zip(op_choice.NAMES, scratch.rows.reshape(ops, devices, -1).transpose(2, 0, 1), strict=True))
    sending = (0.25 + case.graph.tensor_size).tolist()
    mean = max(float(case.graph.runtime.mean()), 1e-300)
    expected = np.array(move_weights(case.plain, placement, sending, devices, mean))
    assert np.exp(2 * rows["sent less"].astype(float)) == pytest.approx(expected, rel=1e-4)
    runtime = list(case.plain.runtime)
    for op in range(ops):
        slack = scratch.late[op]
        assert rows["critical"][op, 0] == (slack <= 1e-9 * makespan)
        for longer, is_late in ((slack, False), (slack + 0.5, True)):
            case.plain.runtime = [*runtime[:op], runtime[op] + longer, *runtime[op + 1 :]]
            assert (case.cost(aim)(order, placement)[2] > makespan) == is_late
