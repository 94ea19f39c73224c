"""`schedopt solve`: what it prints and writes, its flags and limits, each way to be wrong, and Ctrl-C."""

import importlib
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from models.small_graphs import sketch
from schedopt import write_graph
from schedopt.core.files.costgraph import format_graph
from schedopt.core.graph.annotations import Annotations, Resident

DIAMOND_INPUT_PEAK = 26  # start 10, wide1 8, wide2 8
DIAMOND_BEST_PEAK = 19  # start 10, narrow1 1, wide2 8


def test_summary_states_peak_input_order_and_bound(run, diamond_file):
    result = run("solve", diamond_file)
    assert result.exit_code == 0
    assert f"{DIAMOND_INPUT_PEAK} B" in result.stdout
    assert f"{DIAMOND_BEST_PEAK} B" in result.stdout
    assert "-26.92%" in result.stdout
    assert "optimal" in result.stdout


def test_output_is_the_schedule_json_and_check_accepts_it(run, diamond_file, tmp_path):
    output = tmp_path / "schedule.json"
    assert run("solve", diamond_file, "--output", output).exit_code == 0
    document = json.loads(output.read_text())
    assert document["peak_memory"] == document["lower_bound"] == DIAMOND_BEST_PEAK
    assert document["status"] == "optimal"
    assert document["steps"][0] == {"op": "start", "device": 0, "start_us": 0.0, "end_us": 1.0}
    assert run("check", diamond_file, output).exit_code == 0


def test_reads_standard_input(run, diamond):
    result = run("solve", "-", "--json", input=format_graph(diamond, "binary", compress=True))
    assert json.loads(result.stdout)["peak_memory"] == DIAMOND_BEST_PEAK


def test_runtime_defaults_to_two_devices(run, diamond_file):
    document = json.loads(run("solve", diamond_file, "--task", "runtime", "--json", "--evaluations", 500).stdout)
    assert document["devices"] == 2
    assert document["runtime_us"] == 5  # both branches side by side, the transfers free
    assert document["status"] == "optimal"


def test_an_impossible_limit_exits_1_with_the_least_excess(run, diamond_file, tmp_path):
    output = tmp_path / "schedule.json"
    result = run("solve", diamond_file, "--memory-limit", 5, "--output", output)
    assert result.exit_code == 1
    assert "exceeded by 14 B" in result.stdout
    assert json.loads(output.read_text())["status"] == "infeasible"
    assert "no order of diamond fits in 5 B: every order needs at least 19 B\n" in result.stderr
    assert "--memory-limit 5 is 5 bytes" in result.stderr
    assert "proven" in result.stdout
    assert "gap" not in result.stdout
    assert run("check", diamond_file, output).exit_code == 0


def test_a_limit_that_was_only_not_met_is_not_said_to_be_infeasible(run, diamond_file, tmp_path):
    output = tmp_path / "schedule.json"
    result = run("solve", diamond_file, "--memory-limit", "19B", "--method", "input", "--output", output)
    assert result.exit_code == 1
    assert json.loads(output.read_text())["status"] == "limit-not-met"
    assert "was found, and none is proven impossible" in result.stderr
    assert "bytes; write" not in result.stderr
    assert run("check", diamond_file, output).exit_code == 0


def test_says_when_the_input_order_is_better(run, tmp_path, diamond_file):
    best = tmp_path / "best.pbtxt"
    order = run("solve", diamond_file, "--format", "order").stdout.split()
    text = diamond_file.read_text()
    nodes = {block.split('"')[1]: "node {" + block for block in text.split("node {")[1:]}
    best.write_text("".join(nodes[name] for name in order))
    result = run("solve", best, "--method", "bfs")
    assert result.exit_code == 0
    assert "input order is better" in result.stderr


@pytest.mark.parametrize("decoder", ["lazy", "queue"])
def test_the_decoder_can_be_given_as_a_flag(run, diamond_file, decoder):
    arguments = ["--devices", 2, "--evaluations", 60, "--json"]
    documents = [
        json.loads(run("solve", diamond_file, *arguments, *method).stdout)
        for method in (["--method", "brkga", "--decoder", decoder], ["--method", f"brkga:decoder={decoder}"])
    ]
    assert documents[0]["steps"] == documents[1]["steps"]
    assert documents[0]["evaluations"] == documents[1]["evaluations"]


@pytest.mark.slow
def test_a_note_of_the_method_is_printed_beside_the_result(run, diamond_file, tiny_shipped, monkeypatch):
    monkeypatch.setattr("schedopt.policies.topoformer.solve.MOST_OPS", 5)
    result = run("solve", diamond_file, "--method", "topoformer", "--format", "order")
    assert (result.exit_code, len(result.stdout.split())) == (0, 6)
    assert "note: diamond: 6 ops are too many for topoformer, which takes 5" in " ".join(result.stderr.split())
    assert run("solve", diamond_file, "--method", "topoformer", "--quiet").stderr == ""


@pytest.mark.slow
def test_quiet_silences_notes(run, diamond_file, tmp_path):
    assert run("solve", diamond_file, "--quiet", "--output", tmp_path / "s.json").stderr == ""
    assert "wrote" in run("solve", diamond_file, "--output", tmp_path / "s.json").stderr


SAYS_WHEN_IT_SEARCHES = """
from schedopt.cli.start import main
import schedopt.core.solve.solve as module

lower_bound = module.lower_bound


def said(*given):
    print("searching", flush=True)
    return lower_bound(*given)


module.lower_bound = said
main()
"""


@pytest.mark.slow
def test_ctrl_c_prints_and_writes_the_best_so_far(run, tmp_path):
    graph, output = tmp_path / "graph.pbtxt", tmp_path / "schedule.json"
    assert run("gen", "layered", "--nodes", 200, "--seed", 1, graph).exit_code == 0
    arguments = ["solve", graph, "--devices", "2", "--method", "brkga", "--time-limit", "60s", "--output", output]
    command = [sys.executable, "-c", SAYS_WHEN_IT_SEARCHES, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "searching\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "interrupted" in stdout
    assert json.loads(Path(output).read_text())["status"] == "interrupted"
    assert run("check", graph, output).exit_code == 0


@pytest.mark.slow
def test_what_is_proven_is_said_of_a_limit_that_is_not_kept_too(run, tmp_path):
    graph = tmp_path / "layered.pbtxt"
    assert run("gen", "layered", graph, "--nodes", 60, "--seed", 3).exit_code == 0
    said = [run("solve", graph, "-m", "dfs", *limit).stdout for limit in ([], ["--memory-limit", "75%"])]
    assert "limit-not-met" in said[1]
    free, limited = (re.search(r"no order is below (\S+ MiB) \(proven\)", text)[1] for text in said)
    assert free == limited


@pytest.mark.slow
def test_an_input_order_that_does_not_keep_the_limit_is_not_called_better(run, diamond_file):
    words = ["solve", diamond_file, "--task", "runtime", "--devices", 2, "--latency", "1ms", "--evaluations", 200]
    slow, better = ["--method", "gp-dfs"], "the input order is better than this result"
    assert better in run(*words, *slow).stderr
    limited = run(*words, *slow, "--memory-limit", "11B")
    assert limited.exit_code == 1
    assert better not in limited.stderr


@pytest.mark.slow
def test_a_plan_worse_than_the_input_order_is_written_where_weights_have_a_home(run, tmp_path):
    """With a limit, too: whether one device alone keeps it is known of the graph with its homes."""
    graph, output = tmp_path / "g.pbtxt", tmp_path / "plan.json"
    notes = Annotations(residents=(Resident("w", "parameter", 4_000_000, 0, (0, 1)),))
    write_graph(sketch("one -> 8 us=1 keep=4000000; two -> 8 us=1", "shared", notes), graph)
    words = ["solve", graph, "--task", "runtime", "--devices", 2, "--bandwidth", "1GB/s", "--method", "gp-dfs"]
    for limit, is_better in (("8MB", True), ("4000016B", True), ("4000007B", False)):
        done = run(*words, "--memory-limit", limit, "--output", output, "--plot", tmp_path / "plan.svg")
        assert ("the input order on one device is better" in done.stderr) == is_better
        assert done.exit_code == (1 if json.loads(output.read_text())["status"] != "feasible" else 0)
        assert (tmp_path / "plan.svg").exists()
        output.unlink()
    away = "1 of 1 weights and inputs are read away from their home: 1 "
    assert f"{away}by copies, which are among the transfers" in run(*words).stderr
    assert f"{away}as a replica on each of these devices" in run(*words, "--replicate").stderr
    assert "g: 2 ops" in run("pareto", graph, "--devices", 2, "--evaluations", 20, "--points", 2).stdout


@pytest.mark.parametrize(("model", "is_said"), [("net.py:step", True), ("net.onnx", False), (5, False)])
def test_only_of_pytorch_programs_a_trace_is_told_from_the_call(run, tmp_path, model, is_said):
    remarks = Annotations(phases=("forward",) * 2, imported={"model": model})
    write_graph(sketch("a -> 8; b: a -> 8", "net", remarks), tmp_path / "g.pb")
    assert ("traced program" in run("solve", tmp_path / "g.pb").stderr) == is_said


@pytest.mark.parametrize(("size", "is_said"), [(0, True), (8, False)])
def test_transfers_of_views_without_bytes_are_said(run, tmp_path, size, is_said):
    write_graph(sketch(f"make -> 8 us=1; view: make -> {size}@0; read: view -> 8 us=1"), tmp_path / "g.pbtxt")
    (tmp_path / "m.yaml").write_text(
        "devices:\n  - {name: a, kind: gpu, memory: 1GiB}\n  - {name: b, kind: gpu, memory: 1GiB}\n"
        "default_link: {bandwidth: 1GB/s, latency: 1us}\npins: {make: a, view: a, read: b}\n"
    )
    options = ("--task", "runtime", "--machine", tmp_path / "m.yaml", "--evaluations", 20)
    done = run("solve", tmp_path / "g.pbtxt", *options)
    assert done.exit_code == 0
    said = "g: 1 transfers send views to which the graph gives no bytes, so they cost only the latency"
    assert (said in done.stderr) == is_said


@pytest.mark.parametrize("command", ["solve", "compare", "pareto"])
def test_ctrl_c_while_kernels_are_compiled_ends_the_command(run, monkeypatch, diamond_file, command):
    where = {"solve": "search.warm_up", "compare": "experiments.comparison", "pareto": "experiments.pareto_search"}
    module = importlib.import_module(f"schedopt.core.{where[command]}")
    monkeypatch.setattr(module, "warm_up", lambda *given: signal.raise_signal(signal.SIGINT))
    done = run(command, diamond_file)
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr.endswith("interrupted\n")


@pytest.mark.slow
def test_the_memory_is_explained_below_the_table_alone(run, diamond_file):
    for quiet in ([], ["--quiet"]):
        said = run("solve", diamond_file, *quiet).stdout.splitlines()[-3:]
        assert said[0] == "No order needs less than 19 B (proven); program order needs 26 B."
        assert all(len(line) <= 80 for line in said)
    for arguments in (["--json"], ["--format", "order"], ["--devices", 2, "--evaluations", 50]):
        assert "proven" not in run("solve", diamond_file, *arguments).stdout
    assert "\nCritical chain: " in run("solve", diamond_file, "--task", "runtime", "--evaluations", 50).stdout
