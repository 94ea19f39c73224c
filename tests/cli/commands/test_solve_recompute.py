"""`schedopt solve --recompute`, and `compare`: what they print, and each way to be wrong."""

from dataclasses import replace

import numpy as np
import pytest
import schedopt
from schedopt.core.files.costgraph import format_graph


@pytest.fixture
def step_file(training_step, tmp_path):
    path = tmp_path / "step.pbtxt"
    path.write_bytes(format_graph(training_step))
    return path


def test_the_table_has_peak_limit_time_and_both_bounds(run, step_file):
    result = run("solve", step_file, "--recompute", "--memory-limit", "530B", "--evaluations", 3000)
    assert result.exit_code == 0
    for text in ("527 B", "+7.69%, 2 ms", "28 ms", "530 B", "kept", "1 of 13", "1 run ", "optimal", "207 B"):
        assert text in result.stdout, text


def test_an_order_that_fits_is_said_to_be_so(run, step_file):
    result = run("solve", step_file, "--recompute", "--memory-limit", "100%")
    assert result.exit_code == 0
    assert "optimal" in result.stdout
    assert "this order alone keeps the limit: nothing runs again" in result.stderr


@pytest.mark.slow
def test_a_limit_that_is_out_of_reach_and_one_that_is_not_met(run, step_file):
    result = run("solve", step_file, "--recompute", "--memory-limit", "200B")
    assert result.exit_code == 1
    assert "infeasible" in result.stdout
    assert "op 'layer1' alone needs 207 B, that is 100 B of inputs, 100 B of outputs, 7 B of" in result.stderr
    result = run("solve", step_file, "--recompute", "--memory-limit", "230B", "--method", "checkpoint-segments")
    assert result.exit_code == 1
    assert "limit-not-met" in result.stdout
    assert "none is proven impossible" in result.stderr


def test_without_runtimes_every_run_counts_alike(run, tmp_path):
    graph = tmp_path / "layered.pbtxt"
    assert run("gen", "layered", "--nodes", 40, "--seed", 1, graph).exit_code == 0
    result = run("solve", graph, "--recompute", "--memory-limit", "60%", "--evaluations", 500)
    assert "no op has a runtime, so that every run counts alike" in result.stderr
    assert "40 runs" in result.stdout


@pytest.mark.slow
def test_compare_says_what_it_compares(run, step_file, tmp_path):
    options = ["-m", "recompute", "--recompute", "--evaluations", 1000, "--per-graph", "--quiet"]
    lines = run("compare", step_file, *options, "--memory-limit", "87%").stdout.splitlines()
    assert lines[0].startswith("time with recomputation, 1 graph, 1 device, at most 87% of the input order's peak")
    assert "28 ms*" in next(line for line in lines if line.startswith("step"))
    lines = run("compare", step_file, *options, "--max-overhead", "10%").stdout.splitlines()
    assert lines[0].startswith("peak memory with recomputation, 1 graph, 1 device, at most 10% of time added, 1,000")
    graph = tmp_path / "plain.pbtxt"
    graph.write_bytes(format_graph(replace(schedopt.read_graph(step_file), runtime=np.zeros(13))))
    stdout = run("compare", graph, *options, "--memory-limit", "87%").stdout
    assert "14 runs*" in stdout
    assert "graphs whose ops have no runtimes, so that every run counts alike: 1" in stdout
    assert "makespan" not in stdout


@pytest.mark.slow
def test_a_start_with_repeats_needs_recompute(run, step_file, tmp_path):
    start, output = tmp_path / "start.json", tmp_path / "schedule.json"
    limited = ["solve", step_file, "--recompute", "--memory-limit", "530B", "--evaluations", 3000]
    assert run(*limited, "--output", start).exit_code == 0
    for more in ([], ["--devices", "2", "--task", "runtime"]):
        result = run("solve", step_file, "--initial", start, "--output", output, *more)
        assert result.exit_code == 2
        assert "error: step: the schedule to start from runs op 'layer" in result.stderr
        assert "which --recompute alone allows, on one device" in result.stderr
        assert not output.exists()
    assert run(*limited, "--initial", start).exit_code == 0
    graph = schedopt.read_graph(step_file)
    with pytest.raises(schedopt.UsageError, match="start from a schedule that runs each op once"):
        schedopt.solve(graph, initial=start)


def test_wrong_options_in_python_are_one_sentence(step_file):
    graph = schedopt.read_graph(step_file)
    for options, message in (
        ({"recompute": 1}, "recompute= is true or false, not 1"),
        ({"recompute": True, "max_overhead": float("nan")}, "max_overhead= is a share as '10%' or 0.1, not nan"),
        ({"recompute": True, "max_overhead": -0.1}, "must be at least 0"),
        ({"graph": schedopt.Problem(graph), "recompute": True}, "a Problem has its own recompute"),
    ):
        with pytest.raises(schedopt.UsageError, match=message):
            schedopt.solve(**{"graph": graph, **options})
