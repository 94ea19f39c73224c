"""The scripts in `examples/` run, on few and small graphs, and print the tables that they promise."""

import argparse
import csv
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from models.networks import write_regal_weights
from schedopt.core.costs.simulator import input_peak
from schedopt.core.files.costgraph import find_graphs, read_graph, write_graph
from schedopt.core.problem import Problem
from schedopt.core.search.registry import METHODS
from schedopt.core.search.settings import read_config
from schedopt.core.solve import solve
from schedopt.datasets.duplicates import topology_hash
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.policies.regal.actions import ActionParameters
from schedopt.policies.regal.network import load_network, save_network
from schedopt.policies.regal.training_settings import TrainingParameters
from torch import no_grad

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(script, *arguments, **more):
    schedopt = shutil.which("schedopt", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    environment = {
        **os.environ,
        "SCHEDOPT": schedopt,
        "PATH": f"{Path(schedopt).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHON": sys.executable,
        **more,
    }
    interpreter = "bash" if str(script).endswith(".sh") else sys.executable
    done = subprocess.run(
        [interpreter, EXAMPLES / script, *map(str, arguments)], env=environment, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(printed, method):
    """Return how many rows of the first table begin with a method; remarks follow below it."""
    table, remarks, _ = printed.partition("± is half of")
    assert remarks
    return sum(line.startswith(method) for line in table.splitlines())


@pytest.fixture
def few(tmp_path):
    """Return a folder of two small graphs."""
    folder = tmp_path / "few"
    folder.mkdir()
    for name in ("unet.pb.gz", "layered-50.pbtxt"):
        (folder / name).symlink_to(EXAMPLES / "graphs" / name)
    return folder


def test_real_graphs_prints_a_table_per_folder(few):
    printed = run("real_graphs.sh", few, "--", "--time-limit", "0.5s")
    assert "few:\npeak memory, 2 graphs, 1 device, 0.5 s" in printed
    (row,) = (line.split() for line in printed.splitlines() if line.startswith("auto "))
    assert "2/0/0" in row


def test_many_devices_prints_a_table_per_folder_and_number_of_devices(few):
    printed = run("many_devices.sh", 1, 0.3, 0, 1, few)
    for folder, graphs in (("synthetic", "1 graph"), ("few", "2 graphs")):
        for devices, limit in ((4, 50), (8, 45)):
            assert f"{folder}:\nmakespan, {graphs}, {devices} devices, at most {limit}% of the input order" in printed


@pytest.fixture
def weights(tmp_path):
    """Return a folder of small networks for the makespan, as if they had been shipped."""
    folder = tmp_path / "weights"
    folder.mkdir()
    write_regal_weights(folder / "regal-runtime.safetensors")
    write_regal_weights(folder / "regal-runtime-transfers.safetensors", actions=ActionParameters(transfers=4))
    write_regal_weights(folder / "gas-runtime.safetensors", encoder="lstm")
    return folder


@pytest.mark.skipif("brkga-tuned" not in METHODS, reason="compares with brkga-tuned")
def test_regal_table1_prints_both_tables_and_keeps_the_runs(weights, tmp_path):
    printed = run("regal_table1.sh", "runtime", 2, 2, 1, 1, 0, 1, tmp_path / "runs", WEIGHTS=str(weights))
    assert "makespan, 2 graphs, 2 devices, seeds 1000 to 1001" in printed
    assert "standard deviation over seeds" in printed
    assert "graphs no worse than the reference, least and largest improvement: brkga-tuned" in printed
    assert "makespan, 1 graph, 2 devices, seed 1000" in printed
    for method in (
        "brkga-tuned",
        "auto:evaluations=5000",
        "brkga:evaluations=50000",
        "cp-sat:hint=50000:time-limit=1s",
    ):
        assert f"\n{method} " in printed
    named = [
        f"{m}:weights={weights}/{m.replace('idrs', 'regal')}-runtime.safetensors" for m in ("regal", "idrs", "gas")
    ]
    named.append(f"regal:weights={weights}/regal-runtime-transfers.safetensors")
    with (tmp_path / "runs" / "runtime.csv").open() as file:
        runs = [row for row in csv.DictReader(file) if row["method"] in named]
    assert {row["method"] for row in runs} == set(named)
    assert len(runs) == 16
    assert all(row["status"] in ("feasible", "optimal") and row["evaluations"] == "5000" for row in runs)
    with (tmp_path / "runs" / "runtime-cp-sat.csv").open() as file:
        again = [row for row in csv.DictReader(file) if row["method"] in named]
    assert len(again) == 4 and all(row in runs for row in again)  # not run again, so with the same times


@pytest.mark.skipif(not importlib.util.find_spec("torch._inductor.memory"), reason="this PyTorch lacks the heuristics")
def test_inductor_heuristics_never_beat_auto(few):
    printed = run("inductor_heuristics.py", few, "--time-limit", 0.5).splitlines()
    rows = [line.split() for line in printed if line.startswith("few ")]
    assert [row[1:2] + row[-7:-4] for row in rows] == [["2", "1", "1", "0"]] * 2


def test_scaling_draws_a_row_for_each_size(tmp_path):
    printed = run("scaling.py", 100, 200, "--time-limit", 0.3, "--output", tmp_path / "scaling.png").splitlines()
    assert [line.split()[0] for line in printed[2:]] == ["100", "200"]
    assert all(float(line.split()[5].rstrip("%")) > 0 for line in printed[2:])
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("script", "arguments", "tables"),
    [
        (
            "topoformer_table1.sh",
            (1, 1, 30, 20, 0.2, 0.2, 0, 1, "500 600"),
            ["500 ops, generated", "beam-size=30 ", "600 ops, generated", "beam-size=20 ", "auto:time-limit=0.2s "],
        ),
        ("layered_baselines.sh", (2,), ["500 ops, 2 graphs", "1000 ops, 2 graphs", "2000 ops, 2 graphs"]),
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
    assert made == {name: graph for name, graph in shipped.items() if name not in imported_graphs()}


def imported_graphs():
    """Return the names of the graphs that `import_graphs.sh` makes; its libraries are not needed here."""
    return re.findall(r"(?m)^schedopt import .*/(.*)\"$", (EXAMPLES / "import_graphs.sh").read_text())


def test_a_schedule_saves_memory_in_each_imported_graph():
    saved = {}
    for name in imported_graphs():
        problem = Problem(read_graph(EXAMPLES / "graphs" / name))
        before, persistent = input_peak(problem.graph), int(problem.graph.persistent.sum())
        saved[name] = (before - solve(problem, "auto", evaluations=10).value) / (before - persistent)
    assert len(saved) == 6 and min(saved.values()) > 0.15


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


def test_real_programs_measures_models_and_skips_rows_that_are_there(tmp_path):
    """Three wide tensors are made before the first is used up; a schedule makes and uses them one by one."""
    (tmp_path / "real_models.py").write_text(TINY)
    script = tmp_path / "real_programs.py"
    script.write_bytes((EXAMPLES / "real_programs.py").read_bytes())
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
    (tmp_path / "real_models.py").unlink()
    assert run(script, *arguments).splitlines() == [header, line]


def test_topoformer_time_prints_a_row_per_size_and_compares_up_to_the_largest():
    printed = run("topoformer_time.py", 30, 60, "--runs", 1, "--beam-size", 10, "--largest", 30)
    header, first, second = (line.split() for line in printed.splitlines())
    assert header[:4] == ["ops", "greedy", "sample", "beam"]
    assert first[0] == "30" and len(first) == 11
    assert second[0] == "60" and len(second) == 8


def test_topoformer_table1_keeps_runs_that_the_figures_draw(tmp_path):
    printed = run("topoformer_table1.sh", 2, 2, 10, 10, 0.1, 0.1, 0, 1, "60 80", tmp_path / "runs")
    assert "layered, 60 ops, generated with seed 0:\npeak memory, 2 graphs" in printed
    drawn = run(
        "topoformer_figures.py", *(tmp_path / "runs" / f"{ops}.csv" for ops in (60, 80)), "--output", tmp_path / "f.png"
    )
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    (reference,) = (line.split() for line in drawn.splitlines()[:2] if "approximate-dp" in line)
    assert reference[1:4] == ["+0.00", "±", "0.00%"]
    assert drawn.count("topoformer:decode=") == 6


def test_figures_call_trained_weights_by_their_run(tmp_path):
    runs = tmp_path / "runs.csv"
    method = "topoformer:decode=beam:weights=/some where/run/weights.safetensors"
    rows = [("approximate-dp", 100, 2.0), (method, 110, 0.1)]
    runs.write_text(
        "method,graph,status,value,seconds\n" + "".join(f"{name},g,feasible,{v},{t}\n" for name, v, t in rows)
    )
    printed = run("topoformer_figures.py", runs, "--output", tmp_path / "f.png")
    assert "topoformer:decode=beam:weights=run " in printed and "some where" not in printed


def test_topoformer_training_compares_plain_reinforce_with_ours(tmp_path):
    printed = run("topoformer_training.sh", tmp_path / "runs", 16, 2, 40, VALIDATION="2")
    assert "layered, 40 ops:\npeak memory, 2 graphs" in printed
    assert rows_of(printed, "topoformer:decode=") == 6
    for name in ("plain", "leave-one-out"):
        assert (tmp_path / "runs" / name / "curve.jsonl").exists()


def test_topoformer_ablation_trains_each_network_once(tmp_path):
    for _ in range(2):
        printed = run("topoformer_ablation.sh", "decoders", tmp_path / "runs", 8, 2, 40, VALIDATION="2")
        assert "layered, 40 ops:\npeak memory, 2 graphs" in printed
        assert rows_of(printed, "topoformer:decode=") == 9
    for network in ("edge-transformer-autoregressive", "topoformer-autoregressive", "topoformer"):
        assert len((tmp_path / "runs" / network / "curve.jsonl").read_text().splitlines()) >= 5


def test_topoformer_table2_trains_on_some_graphs_and_compares_on_others(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "given"
    folder.mkdir()
    for ops in (30, 40, 50, 60, 210):
        write_graph(layered_graph(LayeredParameters(nodes=ops), rng, f"layered-{ops}"), folder / f"{ops}.pb.gz")
    printed = run("topoformer_table2.sh", tmp_path / "work", folder)
    assert "test graphs, " in printed
    assert printed.count("topoformer:decode=beam") >= 4


# REGAL's figures ----------------------------------------------------------------------------------------------


@pytest.fixture
def figure(tmp_path, capsys):
    """Return a function that draws a figure of REGAL, and returns the lines printed."""
    spec = importlib.util.spec_from_file_location("regal_figures", EXAMPLES / "regal_figures.py")
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)

    def draw(name, *arguments):
        output = tmp_path / f"{name}.png"
        figures.main([name, *map(str, arguments), "--output", str(output)])
        assert output.read_bytes().startswith(b"\x89PNG")
        return [line.strip() for line in capsys.readouterr().out.splitlines()]

    draw.module = figures
    return draw


def write_runs(path, values):
    """Write runs as `schedopt compare --output` does: method -> graph -> a value per seed, None if it failed."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("graph", "method", "seed", "status", "value"))
        for method, graphs in values.items():
            for graph, of_seeds in graphs.items():
                for seed, value in enumerate(of_seeds):
                    writer.writerow((graph, method, seed, "failed" if value is None else "feasible", value))
    return path


def test_regal_histogram_by_hand(figure, tmp_path):
    """Improvements of 20, 0, -5 and, of seeds with the mean 90, of 10 percent; the other graph failed."""
    plain = dict.fromkeys("abcde", (100,))
    learned = {"a": (80,), "b": (100,), "c": (105,), "d": (85, 95), "e": (None,)}
    runs = write_runs(tmp_path / "runs.csv", {"brkga": plain, "regal:weights=x": learned, "regal": plain})
    title, shares, extremes = figure("histogram", runs)
    assert title.startswith("runs: regal:weights=x over brkga, 4 graphs: +6.25 ±")
    assert shares == "matched or beaten 75.0%, of that tied 25.0%, worse 25.0%"
    assert extremes == "highest improvement 20.00%, worst regression 5.00%"
    assert figure("histogram", runs, "--method", "regal")[1].startswith("matched or beaten 100.0%, of that tied 100.0%")
    with pytest.raises(SystemExit, match="has no runs of gas, only of brkga, regal:weights=x, regal"):
        figure("histogram", runs, "--method", "gas")


def test_regal_sweep_by_hand(figure, tmp_path):
    def budget(method, number, *values):
        return {f"{method}:evaluations={number}": {graph: (v,) for graph, v in zip("ab", values, strict=True)}}

    given = budget("brkga", 5000, 100, 200) | budget("brkga", 1000, 110, 240) | budget("regal", 5000, 90, 160)
    title, *rows = figure("sweep", write_runs(tmp_path / "runs.csv", given))
    assert title == "runs: improvement over brkga:evaluations=5000, 2 graphs"
    found = {(row.split()[0], row.split()[1]): row.split()[3] for row in rows}
    assert found == {("brkga", "1,000"): "-15.00", ("brkga", "5,000"): "+0.00", ("regal", "5,000"): "+15.00"}


def test_regal_topologies_group_copies_by_their_names_or_by_their_graphs(figure, tmp_path, few):
    one, two = "0123456789abcdef", "fedcba9876543210"
    plain = dict.fromkeys((one, f"{one}-1", f"{one}-2", two, "unet"), (100,))
    learned = {one: (90,), f"{one}-1": (95,), f"{one}-2": (70,), two: (110,), "unet": (80,)}
    runs = write_runs(tmp_path / "runs.csv", {"brkga": plain, "regal": learned})
    rows = [line.split() for line in figure("topologies", runs)[2:-1]]
    assert rows == [
        [two, "1", *["-1.1000"] * 5],
        [one, "3", "-0.9500", "-0.9250", "-0.9000", "-0.8000", "-0.7000"],
        ["unet", "1", *["-0.8000"] * 5],
    ]
    assert len(figure("topologies", runs, "--graphs", few)[-2].split()[0]) == 16  # the hash of unet


def write_decided(path, levels):
    """Write a network for the peak that draws these levels for every op; uniformly without any."""
    network = load_network(write_regal_weights(path, actions=ActionParameters(2, 4), task="memory"))
    last = network.choose.layers[2]
    with no_grad():
        last.weight.zero_()
        last.bias.zero_()
        for first, level in zip((0, 2, 4, 6, 8, 12), levels, strict=False):
            last.bias[first + level] = 100.0
    save_network(path, network)
    return path


def test_regal_entropy_of_networks_that_are_sure_and_that_are_not(figure, few, tmp_path):
    uniform, certain = write_decided(tmp_path / "u", ()), write_decided(tmp_path / "c", (0, 1, 1, 0, 3, 0))
    title, taken, policy = figure("entropy", few, "--weights", uniform)
    assert title == "2 graphs, 16 joint placement actions, at most 2.77 nats"
    assert policy == "entropy of the policy, per op: mean 2.77, from 2.77 to 2.77 nats"
    assert 2 < float(re.search(r"mean ([\d.]+)", taken)[1]) < 2.77  # of the few ops of a graph
    _, taken, policy = figure("entropy", few, "--weights", certain)
    assert taken == "entropy of the actions taken: mean 0.00, from 0.00 to 0.00 nats"
    assert policy == "entropy of the policy, per op: mean 0.00, from 0.00 to 0.00 nats"


def test_regal_actions_of_a_network_that_always_takes_the_same(figure, few, tmp_path):
    relative = []
    for graph in map(read_graph, find_graphs([few])):
        read = [sum(graph.tensor_size[tensor] for tensor in inputs_of(graph, op)) for op in range(graph.num_ops)]
        written = np.bincount(graph.tensor_producer, graph.tensor_size, graph.num_ops)
        relative += ((read + written) / (read + written).max()).tolist()
    weights = write_decided(tmp_path / "c", (0, 1, 1, 0, 3, 0))
    title, columns, row = figure("actions", few, "--weights", weights)
    assert title == f"{len(relative)} ops: share of ops, and mean relative memory"
    assert columns == "high"
    assert row.split() == ["device", "2", "100.0%,", f"{np.mean(relative):.3f}"]


def inputs_of(graph, op):
    pointers, tensors = graph.inputs
    return set(tensors[pointers[op] : pointers[op + 1]].tolist())


def test_regal_actions_are_named_by_their_means(figure):
    heads = ActionParameters(3, 5).heads(2)
    levels = np.array([[0, 2, 1, 0, 3, 0], [2, 0, 1, 2, 2, 4], [1, 0, 1, 2, 1, 0]])
    assert figure.module.placed(levels, heads) == ["device 2", "device 1", "none"]
    assert figure.module.scheduled(levels, heads) == ["high", "middle", "low"]
    alone = ActionParameters(0, 5).heads(2)
    assert figure.module.placed(levels[:, 4:], alone) == ["not chosen"] * 3
    assert figure.module.scheduled(levels[:, 4:], alone) == ["high", "middle", "low"]


def test_regal_rounds_take_the_best_run_of_each(figure, tmp_path):
    for name, count, reached in (("a", 0, (0.5, 1.5)), ("b", 2, (1.0, 4.0, 3.0)), ("c", 2, (2.0,))):
        (tmp_path / name).mkdir()
        write_regal_weights(tmp_path / name / "weights.safetensors", rounds=count)
        lines = [json.dumps({"step": at, "sample_improvement_percent": value}) for at, value in enumerate(reached)]
        (tmp_path / name / "curve.jsonl").write_text("\n".join(lines) + "\n")
    printed = figure("rounds", *(tmp_path / name for name in "abc"))
    assert [line.split()[:2] for line in printed[1:]] == [["0", "+1.50%"], ["2", "+4.00%"], ["2", "+2.00%"]]


def test_regal_ablation_configures_every_run_of_every_table(tmp_path):
    """Nothing is run: what it would run are settings that the trainer takes."""
    run("regal_ablation.sh", "memory", tmp_path, SCHEDOPT="true", PYTHON="true")
    read = {file.stem: read_config(file, TrainingParameters) for file in tmp_path.glob("*.yaml")}
    actions = {name: settings.network.actions for name, settings in read.items()}
    assert {name: value for name, value in actions.items() if value != ActionParameters(4, 16)} == {
        "placement": ActionParameters(4, 0),
        "scheduling": ActionParameters(0, 16),
        "crossover": ActionParameters(4, 16, crossover=4),
        "transfers": ActionParameters(4, 16, transfers=16),
    }
    assert [read[f"rounds-{t}"].network.rounds for t in (0, 1, 2, 4)] == [0, 1, 2, 4]
    assert read["both"].network.rounds == 16
    assert read["gas"].network.encoder == "lstm" and read["autoregressive"].network.decoder == "autoregressive"
    spent = {
        name: sum(p.epochs * p.steps * p.graphs * p.samples * p.evaluations for p in settings.phases if p.by_reinforce)
        for name, settings in read.items()
    }
    assert spent["imitation"] == 0
    assert all(spent[name] == pytest.approx(spent["both"], rel=0.01) for name in spent if name != "imitation")
    (plain,) = read["reinforce"].phases
    assert (plain.baseline, plain.samples, plain.learning_rate) == ("network", 1, 1e-4)
    assert {settings.network.task for settings in read.values()} == {"memory"}
    assert {phase.teacher for phase in read["both"].phases if phase.imitation} == {
        f"cut-and-order-{rounds}" for rounds in (4, 16, 64)
    }


def test_regal_ablation_goes_on_with_the_runs_that_are_there(tmp_path):
    """The commands, printed instead of run."""
    (tmp_path / "gas").mkdir()
    (tmp_path / "gas" / "checkpoint.safetensors").touch()
    said = tmp_path / "said.sh"
    said.write_text(f'#!/usr/bin/env bash\necho "$@" >> {tmp_path}/said\n')
    said.chmod(0o755)
    assert run("regal_ablation.sh", "runtime", tmp_path, "networks", SCHEDOPT=str(said)) == "networks:\n\n"
    printed = (tmp_path / "said").read_text().splitlines()
    trained = {
        Path(words[words.index("--output") + 1]).name: (words[1], "--resume" in words)
        for words in map(str.split, printed)
        if words[0] == "train"
    }
    assert trained == {"both": ("regal", False), "gas": ("gas", True), "autoregressive": ("regal", False)}


def test_regal_ablation_trains_a_network_whose_curves_are_drawn(figure, tmp_path):
    printed = run("regal_ablation.sh", "runtime", tmp_path, "gas", 2, 1, 2, 1, 1, 900)
    assert printed.startswith("gas:\nmakespan, 2 graphs, 2 devices, 900 evaluations")
    given = ("--training", tmp_path / "train", "--held-out", tmp_path / "test")
    title, *rows = figure("curves", tmp_path / "gas", "--graphs", 2, *given)
    assert title.endswith("gas: 2 epochs with rewards")
    curve = [json.loads(line) for line in (tmp_path / "gas" / "curve.jsonl").read_text().splitlines()]
    assert rows[1].split() == ["step", str(curve[-1]["step"]), "reward", f"{curve[-1]['reward']:.4f}"]
    seen, unseen, gap = (float(re.search(r"[+-][\d.]+", line)[0]) for line in rows[-3:])
    assert gap == pytest.approx(seen - unseen, abs=0.02)
    with (tmp_path / "gas.csv").open() as file:
        values = {(row["graph"], row["method"]): float(row["value"]) for row in csv.DictReader(file)}
    method = f"gas:weights={tmp_path / 'gas' / 'weights.safetensors'}"
    graphs = {graph for graph, _ in values}
    expected = [100 * (1 - values[graph, method] / values[graph, "brkga"]) for graph in graphs]
    assert unseen == pytest.approx(np.mean(expected), abs=0.01)
    # Without given graphs, a run's own are drawn: here, those of `gen synthetic` with the same seed.
    options = argparse.Namespace(graphs=1, training=None, held_out=None)
    (first,), (other,) = figure.module.both_sets(tmp_path / "gas", options)
    assert topology_hash(first) in graphs
    assert topology_hash(other) not in graphs


def test_regal_generalise_runs_every_budget_on_each_set_of_graphs(weights, tmp_path):
    four = write_regal_weights(tmp_path / "four.safetensors", devices=4)
    arguments = ("runtime", tmp_path / "runs", 2, 1, 0, 1, "60-60", four, "900 5000")
    printed = run("regal_generalise.sh", *arguments, WEIGHTS=str(weights))
    for title in ("makespan, 2 graphs, 2 devices", "makespan, 1 graph, 2 devices", "makespan, 2 graphs, 4 devices"):
        assert title in printed
    assert printed.count("regal-runtime-transfers.safetensors") >= 4
    for name in ("budgets", "large"):
        assert f"{name}: improvement over brkga:evaluations=5000" in printed
    assert (tmp_path / "runs" / "sweep.png").exists()


def test_regal_topologies_makes_copies_and_draws_them(weights, tmp_path):
    graphs = (EXAMPLES / "graphs" / name for name in ("watts-strogatz-100.pb.gz", "unet.pb.gz"))
    arguments = ("runtime", tmp_path / "runs", 1, *graphs, "--", "--per-graph")
    printed = run("regal_topologies.sh", *arguments, WEIGHTS=str(weights))
    assert "makespan, 4 graphs, 2 devices" in printed
    rows = [line.split() for line in printed.splitlines() if re.match(r"  [0-9a-f]{16} ", line)]
    assert [row[1] for row in rows] == ["2", "2"]
    assert "4 graphs: " in printed
    assert all((tmp_path / "runs" / f"{name}.png").exists() for name in ("topologies", "histogram"))


def test_onnx_models(tmp_path):
    """The table has a row per model, whose better order saves what is predicted, and keeps the results."""
    pytest.importorskip("onnxruntime")
    from models.onnx_models import branches, save

    path = save(tmp_path / "branches.onnx", branches(5))
    printed = run("onnx_models.py", path, "--time-limit", "1", "--folder", tmp_path / "out")
    _, row = printed.splitlines()
    name, nodes, *peaks, saved, beside, error, kept = row.split()
    predicted_before, predicted_after, before, after = map(float, peaks)
    assert (name, int(nodes), kept) == ("branches", 33, "yes")
    assert after < before
    assert predicted_after < predicted_before
    assert float(beside.rstrip("%")) > float(saved.rstrip("%")) > 10
    assert float(error.rstrip("%")) < 5
    assert (tmp_path / "out" / "branches_ordered.onnx").exists()
