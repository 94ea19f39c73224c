"""The stages of `optimize`: each once and in turn, and nothing written unless all succeed."""

import dataclasses
from pathlib import Path

import pytest
from models.small_graphs import sketch
from schedopt import FormatError, GraphBuilder, ProgramError, ScheduleError, UsageError
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Reserved
from schedopt.core.programs import pipeline
from schedopt.core.programs.options import ImportOptions, OptimizeOptions
from schedopt.core.programs.pipeline import Job, Observer, check_limit, optimize
from schedopt.core.programs.runtime import PROGRAM_ORDER, Measurement
from schedopt.core.solve.solve import solve

BRANCHES = 3


class FakeRuntime:
    """A program of branches that grow before they shrink; keeps what it is asked for."""

    def __init__(self):
        self.asked = []
        self.equal, self.repeats, self.fails = True, 2, None

    def check_file(self):
        if self.fails == "check_file":
            raise UsageError("no file holds it")

    def graph(self, costs, note):
        self.asked.append(f"graph {costs}")
        builder = GraphBuilder("net")
        start = builder.add_op("start", outputs=[8])
        wide = [builder.add_op(f"wide{i}", inputs=[(start, 0)], outputs=[64]) for i in range(BRANCHES)]
        narrow = [builder.add_op(f"narrow{i}", inputs=[(op, 0)], outputs=[1]) for i, op in enumerate(wide)]
        builder.add_op("join", inputs=[(op, 0) for op in narrow], outputs=[4], final=True)
        return builder.build()

    def measure(self, graph, orders, repeats, note, on_run, limits):
        self.asked.append("measure")
        if self.fails == "measure":
            raise ProgramError("the run failed")
        return [
            Measurement(order, 100, (100,) * self.repeats, (5.0,) * self.repeats, self.equal)
            for order in (PROGRAM_ORDER, *orders)
        ]

    def write(self, graph, order, output, note):
        self.asked.append("write")
        if self.fails == "write":
            raise ScheduleError("results would differ")
        Path(output).write_text(" ".join(graph.op_names[op] for op in order))


@pytest.fixture
def runtime(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    runtime = FakeRuntime()

    def load(model, options, note):
        runtime.asked.append("load")
        return runtime

    monkeypatch.setattr(pipeline, "load_runtime", load)
    return runtime


def job(**fields):
    return Job("net.onnx", "out.onnx", **{"repeats": 2, **fields})


def test_each_stage_runs_once_and_is_told(runtime, tmp_path):
    stages = []
    found = optimize(job(schedule="s.json"), solve, Observer(on_stage=lambda *stage: stages.append(stage)))
    assert runtime.asked == ["load", "graph measured", "measure", "write"]
    assert [(number, total) for number, total, _ in stages] == [(n, 5) for n in range(1, 6)]
    assert found.result.status == "optimal"
    assert found.result.peak_memory < found.result.input_value
    assert not found.is_interrupted
    assert (tmp_path / "out.onnx").read_text().split() == list(found.result.order)
    imported = found.result.problem.graph.annotations.imported
    assert imported == {"model": "net.onnx", "costs": "measured"}
    assert '"model": "net.onnx"' in (tmp_path / "s.json").read_text()


def test_apply_says_how_the_opening_block_of_a_schedule_is_opened(runtime, tmp_path):
    notes, result = [], solve(Problem(runtime.graph("roofline", None)), "input")
    reserved = Reserved("cuda", 2**25, 2**21, opening_block=2**24)
    (tmp_path / "s.json").write_text(dataclasses.replace(result, reserved=reserved).json())
    pipeline.apply("net.onnx", "s.json", "out.onnx", ImportOptions(), notes.append)
    line = 'torch.empty(16777216, dtype=torch.uint8, device="cuda"), before the model is moved to the device'
    assert notes == [f"s.json: opening block: {line}"]


def test_a_limit_that_no_order_keeps_is_one_sentence_and_writes_nothing(runtime, tmp_path):
    with pytest.raises(ScheduleError, match=r"^net\.onnx: .*limit of 10 B is not kept: no order needs less than 74 B"):
        optimize(job(settings=OptimizeOptions(memory_limit=10), schedule="s.json"), solve, Observer())
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ScheduleError, match="no order needs less than 86,020 B, and not less than 86,020 B if ops run"):
        check_limit("near", solve(Problem(sketch("a -> 86020; b: a -> 0f"), memory_limit=86_016)), remedy="run again")
    optimize(job(settings=OptimizeOptions(memory_limit=100)), solve, Observer())
    assert (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(("fails", "asked"), [("check_file", 1), ("measure", 3), ("write", 4)])
def test_nothing_is_written_if_a_stage_fails(runtime, tmp_path, fails, asked):
    runtime.fails = fails
    with pytest.raises((ProgramError, ScheduleError, UsageError)):
        optimize(job(schedule="s.json"), solve, Observer())
    assert len(runtime.asked) == asked
    assert list(tmp_path.iterdir()) == []


def test_results_that_differ_in_a_run_are_refused(runtime, tmp_path):
    runtime.equal = False
    with pytest.raises(ScheduleError, match=r"net\.onnx: the results of program order differ .* nothing was written"):
        optimize(job(), solve, Observer())
    assert list(tmp_path.iterdir()) == []


def test_runs_that_are_cut_short_are_kept(runtime, tmp_path):
    runtime.repeats = 1
    found = optimize(job(), solve, Observer())
    assert found.is_interrupted
    assert [len(row.microseconds) for row in found.rows] == [1, 1]
    assert (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"output": "net.onnx"}, UsageError, "is the model itself; name another file, or write over it by --overwrite"),
        ({"output": "./net.onnx"}, UsageError, "is the model itself"),
        ({"output": "link.onnx"}, UsageError, "is the model itself"),
        ({"output": "out.pt2"}, UsageError, r"must end in \.onnx"),
        ({"output": "no/out.onnx"}, FormatError, "the folder does not exist"),
        ({"schedule": "net.onnx"}, UsageError, "is an input or another output of this command"),
        ({"schedule": "out.onnx"}, UsageError, "is an input or another output of this command"),
        ({"schedule": "no/s.json"}, FormatError, "the folder does not exist"),
        ({"model": "net.txt"}, UsageError, "not a program that can be run"),
    ],
)
def test_files_that_cannot_be_are_refused_before_the_work(runtime, tmp_path, fields, kind, message):
    (tmp_path / "link.onnx").symlink_to(tmp_path / "net.onnx")
    with pytest.raises(kind, match=message):
        Job(**{"model": "net.onnx", "output": "out.onnx", **fields})
    assert runtime.asked == []


def test_measuring_reads_orders_before_it_runs_anything(runtime, tmp_path):
    (tmp_path / "bad.json").write_text('{"steps": []}')
    with pytest.raises(ScheduleError, match="start"):
        pipeline.measure("net.onnx", ["bad.json"], 1, ImportOptions(), Observer())
    assert runtime.asked == ["load", "graph roofline"]
    order = FakeRuntime().graph("roofline", print).op_names
    (tmp_path / "good.txt").write_text("\n".join(order))
    rows = pipeline.measure("net.onnx", ["good.txt"], 1, ImportOptions(), Observer())
    assert [row.order for row in rows] == [PROGRAM_ORDER, "good.txt"]
    assert runtime.asked[2:] == ["load", "graph roofline", "graph measured", "measure"]


def test_a_limit_that_is_not_kept_names_what_helps(runtime, tmp_path):
    found = Job("module:net", "out.pt2", repeats=0, settings=OptimizeOptions(memory_limit=80))
    with pytest.raises(ScheduleError, match=r"is not kept: .*; nothing was written$") as caught:
        optimize(found, lambda problem: solve(problem, "input"), Observer())
    assert "recompute=True" in str(caught.value)
    beyond = dataclasses.replace(found, settings=OptimizeOptions(memory_limit=10))
    with pytest.raises(ScheduleError, match=r"no order needs less than 74 B, and not less than \d+ B if ops run"):
        optimize(beyond, solve, Observer())
    assert not list(tmp_path.iterdir())
