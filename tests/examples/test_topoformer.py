"""The scripts in `examples/experiments/topoformer` run, on few and small graphs, and print their tables."""

import naive
import numpy as np
import pytest
from models.examples import EXPERIMENTS, rows_of, run
from schedopt import Problem, solve, write_graph
from schedopt.datasets.layered import LayeredParameters, layered_graph

pytestmark = pytest.mark.slow


def test_scaling_prints_a_row_for_each_size_and_limit():
    printed = run("topoformer/scaling.py", 100, 200, "--time-limits", 0.3, 0.4).splitlines()
    assert [line.split()[::2][:2] for line in printed[2:]] == [
        [ops, at] for ops in ("100", "200") for at in ("0.3", "0.4")
    ]
    assert all(float(line.split()[5].rstrip("%")) > 0 for line in printed[2:])


@pytest.mark.parametrize(
    ("script", "arguments", "tables"),
    [
        (
            "topoformer/table1.sh",
            (1, 1, 30, 20, 0.2, 0.2, 0, 1, "500 600"),
            ["500 ops, generated", "beam-size=30 ", "600 ops, generated", "beam-size=20 ", "auto:time-limit=0.2s "],
        ),
        ("topoformer/layered_baselines.sh", (1,), ["500 ops, 1 graphs", "1000 ops, 1 graphs", "2000 ops, 1 graphs"]),
        ("regal/brkga_budget.sh", (2,), ["2 graphs, 2 devices", "brkga:evaluations=10000"]),
    ],
)
def test_table(script, arguments, tables):
    printed = run(script, *arguments)
    for table in tables:
        assert table in printed


def test_topoformer_time_prints_a_row_per_size_and_compares_up_to_the_largest():
    printed = run("topoformer/inference_time.py", 30, 60, "--runs", 1, "--beam-size", 10, "--largest", 30)
    header, first, second = (line.split() for line in printed.splitlines())
    assert header[:4] == ["ops", "greedy", "sample", "beam"]
    assert first[0] == "30" and len(first) == 11
    assert second[0] == "60" and len(second) == 8


def test_topoformer_table1_keeps_runs_that_the_figures_draw(tmp_path):
    printed = run("topoformer/table1.sh", 2, 2, 10, 10, 0.1, 0.1, 0, 1, "60 80", tmp_path / "runs")
    assert "layered, 60 ops, generated with seed 0:\npeak memory, 2 graphs" in printed
    kept = [tmp_path / "runs" / f"{ops}.csv" for ops in (60, 80)]
    drawn = run("topoformer/figures.py", *kept, "--output", tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    (reference,) = (line.split() for line in drawn.splitlines()[:2] if "approximate-dp" in line)
    assert reference[1:4] == ["+0.00", "±", "0.00%"]
    assert drawn.count("topoformer:decode=") == 8


def test_decoders_has_a_row_for_each_decoder_by_each_kind_of_priorities():
    printed = run("topoformer/decoders.py", "--nodes", 40, "--graphs", 2, "--width", 2).splitlines()
    assert printed[0].startswith("2 graphs of 40 ops, width 2")
    assert len(printed) == 10


def test_evolved_rule_searches_and_has_the_shipped_rule(monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS / "topoformer")
    import evolved_rule

    cases = [evolved_rule.case_of(evolved_rule.draw("training", number)) for number in range(10)]
    assert evolved_rule.evolve(cases[:4], 40, np.random.default_rng(0))[0][0] < 1
    ratios = evolved_rule.price(evolved_rule.read(evolved_rule.RATIO), cases)
    shipped = [solve(Problem(case.graph), "backward-ratio").value / case.lpmf for case in cases]
    assert ratios == pytest.approx(shipped, rel=0.05)
    assert ratios.mean() < 0.95


def test_further_training_prints_what_each_part_of_a_run_changes():
    options = (
        "--runs",
        "sets",
        "rounds",
        "reinforce",
        "--minutes",
        0.005,
        "--cells",
        "40:2",
        "60:2",
        "--nodes",
        20,
        40,
    )
    printed = run("topoformer/further_training.py", *options).splitlines()
    names = [line.split(",")[0] for line in printed]
    assert names == ["shipped"] * 2 + ["sets"] * 4 + ["rounds"] * 8 + ["reinforce"] * 2
    assert printed[-1].count("±") == 6


def test_set_labels_are_the_steps_at_which_an_op_alone_can_run_at_no_higher_peak(monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS / "topoformer")
    from set_labels import earliest_steps

    for seed in range(150):
        rng = np.random.default_rng(seed)
        graph, plain = naive.random_graph(rng, 10, edges=1.3)
        orders = (naive.random_order(rng, plain) for _ in range(5))
        order = min(orders, key=lambda order: naive.order_peak(plain, order))
        peak, firsts = naive.order_peak(plain, order), naive.ready_steps(plain, order)
        expected = np.empty(10, int)
        for place, op in enumerate(order):
            expected[op] = place
            others = [other for other in order if other != op]
            for step in range(place - 1, firsts[op] - 1, -1):
                if naive.order_peak(plain, [*others[:step], op, *others[step:]]) > peak:
                    break
                expected[op] = step
        found = earliest_steps(graph.buffers, np.array(order, np.int32), np.array(firsts, np.int32))
        assert found.tolist() == expected.tolist(), seed


def test_nine_cells_keeps_its_runs_and_adds_to_them(tmp_path):
    arguments = "topoformer/nine_cells.sh", tmp_path / "runs"
    assert rows_of(run(*arguments, "60:2", 10), "topoformer:decode=") == 7
    before = (tmp_path / "runs" / "60.jsonl").read_text()
    printed = run(*arguments, "60:3 80:2", 10)
    assert "layered, 60 ops, 3 graphs of seed 0:\npeak memory, 3 graphs" in printed
    kept = (tmp_path / "runs" / "60.jsonl").read_text()
    assert kept.startswith(before) and 2 * kept.count("\n") == 3 * before.count("\n")


def test_figures_call_trained_weights_by_their_run(tmp_path):
    runs = tmp_path / "runs.csv"
    method = "topoformer:decode=beam:weights=/some where/run/weights.safetensors"
    rows = [("approximate-dp", 100, 2.0), (method, 110, 0.1)]
    lines = [f"{name},g,feasible,{v},{t}\n" for name, v, t in rows]
    runs.write_text("method,graph,status,value,seconds\n" + "".join(lines))
    printed = run("topoformer/figures.py", runs, "--output", tmp_path / "f.png")
    assert "topoformer:decode=beam:weights=run " in printed and "some where" not in printed


def test_topoformer_training_compares_plain_reinforce_with_ours(tmp_path):
    printed = run("topoformer/training.sh", tmp_path / "runs", 4, 2, 40, VALIDATION="2")
    assert "layered, 40 ops:\npeak memory, 2 graphs" in printed
    assert rows_of(printed, "topoformer:decode=") == 6
    for name in ("plain", "leave-one-out"):
        assert (tmp_path / "runs" / name / "curve.jsonl").exists()


def test_topoformer_ablation_trains_each_network_once(tmp_path):
    for _ in range(2):
        printed = run("topoformer/ablation.sh", "decoders", tmp_path / "runs", 4, 2, 40, VALIDATION="2")
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
    printed = run("topoformer/table2.sh", tmp_path / "work", folder, EPOCHS="1")
    assert "test graphs, " in printed
    assert printed.count("topoformer:decode=beam") >= 4
    shipped = run("topoformer/table2.sh", tmp_path / "shipped", folder, EPOCHS="0")
    assert "topoformer:decode=beam:passes=0:weights=topoformer-layered" in shipped and "weights=run" not in shipped
    assert not (tmp_path / "shipped" / "run").exists()
