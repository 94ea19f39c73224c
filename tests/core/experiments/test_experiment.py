"""Experiments: every method on every graph with every seed, failures in their cells, resuming, and what is refused."""

import csv
import io
import json
import re
import sys
import types
from concurrent.futures import BrokenExecutor, Future
from contextlib import closing
from dataclasses import replace

import pytest
import schedopt
from models import small_graphs
from rich.console import Console
from schedopt import CostGraph, FormatError, Method, Schedule, UsageError
from schedopt.core.base.errors import ClusterError, WorkerDiedError
from schedopt.core.experiments import comparison as module
from schedopt.core.experiments.comparison import Experiment, ResumeFile
from schedopt.core.files.costgraph import graph_hash
from schedopt.core.search.options import CompareOptions
from schedopt.core.search.registry import METHODS

TIMES = {"seconds", "cpu_seconds"}


@pytest.fixture
def graphs() -> list[CostGraph]:
    return [small_graphs.branches(name, (10, wide, 1)) for name, wide in (("small", 8), ("large", 30))]


@pytest.fixture
def fragile(monkeypatch) -> dict[str, str]:
    """Register a method that gives the input order, but raises on the graphs of the returned dict."""
    raises: dict[str, str] = {}

    def solve(search, parameters):
        graph = search.problem.graph
        if graph.name in raises:
            raise ValueError(raises[graph.name])
        search.offer(Schedule.single_device(graph.input_order))

    code = types.ModuleType("fragile_method")
    code.solve = solve
    monkeypatch.setitem(sys.modules, "fragile_method", code)
    monkeypatch.setitem(METHODS, "fragile", Method("fragile_method:solve", "", ""))
    return raises


def facts(comparison):
    return [{k: v for k, v in cell.items() if k not in TIMES} for cell in comparison.document()["cells"]]


def execute(graphs, methods, path, settings=CompareOptions()):
    """Do a comparison with a resume file; also how many runs were taken from it."""
    experiment = Experiment(graphs, methods, settings)
    with closing(ResumeFile(path)) as file:
        experiment.resume_from(file)
        taken = len(experiment.cells)
        return experiment.execute(), taken


def test_every_method_runs_on_every_graph_with_every_seed(graphs):
    seen = []
    experiment = Experiment(graphs, ["input", "approximate-dp"], CompareOptions(seed=3, seeds=2))
    done = experiment.execute(on_cell=seen.append)
    wanted = [(graph, method, seed) for graph in ("small", "large") for method in experiment.methods for seed in (3, 4)]
    assert [(cell.graph, cell.method, cell.seed) for cell in done.cells] == wanted
    assert len(seen) == done.planned == 8
    assert done.is_complete
    by_method = {(cell.graph, cell.method): cell for cell in done.cells}
    assert by_method["small", "input"].value == 10 + 8 + 8
    assert by_method["large", "input"].value == 10 + 30 + 30
    assert by_method["small", "approximate-dp"].value == 10 + 8 + 1
    assert by_method["small", "approximate-dp"].status == "optimal"
    assert (by_method["small", "input"].ops, by_method["small", "input"].sha256) == (6, graph_hash(graphs[0]))


@pytest.mark.slow
def test_the_result_does_not_depend_on_jobs(graphs):
    methods = ["random:evaluations=1", "brkga:chromosomes=8:elites=2:mutants=2"]
    settings = CompareOptions(task="runtime", devices=2, evaluations=30, seeds=2)
    serial, parallel = (Experiment(graphs, methods, settings).execute(jobs=jobs) for jobs in (1, 2))
    assert facts(serial) == facts(parallel)
    assert all(cell.evaluations <= (1 if cell.method.startswith("random") else 30) for cell in serial.cells)


def test_a_failing_method_costs_its_own_cells_only(graphs, fragile):
    fragile["large"] = "no\nluck"
    done = Experiment(graphs, ["input", "fragile"], CompareOptions(seeds=2)).execute()
    failed = [cell for cell in done.cells if cell.status == "failed"]
    assert [(cell.graph, cell.method, cell.seed) for cell in failed] == [("large", "fragile", s) for s in (0, 1)]
    assert {cell.error for cell in failed} == {"ValueError: no luck"}
    assert {cell.value for cell in failed} == {None}
    assert sum(cell.is_feasible for cell in done.cells) == 6
    assert [(s.failed, s.infeasible) for s in done.summaries()] == [(0, 0), (2, 0)]


def test_a_memory_limit_that_is_not_kept_is_proven_infeasible_or_not_met(graphs):
    done = Experiment(graphs, ["input", "approximate-dp"], CompareOptions(memory_limit=20)).execute()
    assert [(cell.status, cell.excess) for cell in done.cells] == [
        ("limit-not-met", 6),  # a better order keeps it
        ("optimal", 0),
        ("infeasible", 50),
        ("infeasible", 21),
    ]


def test_resume_takes_finished_runs_and_tries_failed_ones_again(graphs, fragile, tmp_path):
    path = tmp_path / "runs.jsonl"
    fragile["large"] = "once"
    first, taken = execute(graphs, ["input", "fragile"], path)
    assert (taken, first.cells[3].status) == (0, "failed")
    fragile.clear()
    second, taken = execute(graphs, ["input", "fragile"], path)
    assert (taken, second.cells[3].status) == (3, "feasible")
    assert second.cells[:3] == first.cells[:3]  # their times as well
    assert execute(graphs, ["input", "fragile"], path)[1] == 4


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"evaluations": 7}, {"memory_limit": "90%"}, {"devices": 3}, {"bandwidth": 1.0}, {"latency": 1.0}],
)
def test_resume_only_takes_runs_of_the_same_problem_budget_and_seed(graphs, tmp_path, change):
    path, two = tmp_path / "runs.jsonl", CompareOptions(devices=2)
    execute(graphs[:1], ["input"], path, two)
    assert execute(graphs[:1], ["input"], path, replace(two, **change))[1] == 0
    assert execute(graphs[1:], ["input"], path, two)[1] == 0
    assert execute(graphs[:1], ["dfs"], path, two)[1] == 0
    renamed = replace(graphs[0], name="renamed")
    done, taken = execute([renamed], ["input"], path, two)
    assert (taken, done.cells[0].graph) == (1, "renamed")


@pytest.mark.parametrize("kept", [1, 5, 30, -2])
def test_a_torn_last_line_is_dropped(graphs, tmp_path, kept):
    path = tmp_path / "runs.jsonl"
    first, _ = execute(graphs, ["input"], path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:kept])
    second, taken = execute(graphs, ["input"], path)
    assert taken == 1
    assert facts(second) == facts(first)
    assert [json.loads(line)["graph"] for line in path.read_text().splitlines()] == ["small", "large"]


@pytest.mark.parametrize(
    "content",
    [b"node {\n", b"no newline", b"[1]\n", b'{"a": 1}\n', b'"text"\n', b"\xff\xfe\n", b"\n", b'{"key": [1]}\n'],
)
def test_a_foreign_file_is_refused_and_kept(tmp_path, content):
    path = tmp_path / "other.jsonl"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"other\.jsonl: line 1 is not of a comparison, or damaged; name a new file"):
        ResumeFile(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (BrokenExecutor("a worker was killed"), UsageError, r"BrokenExecutor: a worker was killed.*jobs="),
        (ClusterError("it is gone"), ClusterError, "it is gone"),
    ],
)
def test_broken_workers_and_a_lost_cluster_end_the_comparison(graphs, monkeypatch, raised, kind, message):
    def broken(function, runs, jobs):
        ended = Future()
        ended.set_exception(raised)
        yield runs[0], ended

    monkeypatch.setattr(module, "map_unordered", broken)
    with pytest.raises(kind, match=message):
        Experiment(graphs, ["input"]).execute(jobs=2)


def test_a_task_that_is_given_up_costs_its_own_run(graphs, monkeypatch):
    def given_up(function, runs, jobs):
        for at, run in enumerate(runs):
            ended = Future()
            ended.set_exception(WorkerDiedError("its workers died")) if at else ended.set_result(function(run))
            yield run, ended

    monkeypatch.setattr(module, "map_unordered", given_up)
    cells = Experiment(graphs, ["input"]).execute(jobs=2).cells
    assert [cell.status == "failed" for cell in cells] == [False, True]
    assert cells[1].error == "WorkerDiedError: its workers died"


@pytest.mark.parametrize(
    ("methods", "settings", "reference", "message"),
    [
        ([], {}, None, "no method"),
        (["input", "input"], {}, None, "method 'input' is given twice"),
        (["input", "dfs"], {}, "bfs", "'bfs' must be one of the methods: input, dfs"),
        (["brkga:bias=0.6", "brkga:bias=0.7"], {}, "brkga", "must be one of"),
        (["nonsense"], {}, None, "unknown method 'nonsense'"),
        (["input", "approximate-dp"], {"evaluations": 9}, None, "leave evaluations= out"),
        (["approximate-dp"], {"devices": 2}, None, "one device"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_the_first_run(graphs, methods, settings, reference, message):
    with pytest.raises(UsageError, match=message):
        Experiment(graphs, methods, CompareOptions(**settings), reference)


def test_csv_has_a_row_per_run(graphs, fragile):
    fragile["small"] = 'a, "b"'
    done = Experiment(graphs, ["input", "fragile"]).execute()
    rows = list(csv.DictReader(io.StringIO(done.csv())))
    assert [(row["graph"], row["method"], row["value"]) for row in rows] == [
        ("small", "input", "26"),
        ("small", "fragile", ""),
        ("large", "input", "70"),
        ("large", "fragile", "70"),
    ]
    assert rows[1]["error"] == 'ValueError: a, "b"'


def branches(name, size):
    """Return a graph whose input order, both wide ops first, needs more than the other order."""
    return small_graphs.branches(name, (size, size, size // 8), (0, 0, 0, 0), "8f")


def shown(comparison, width=100):
    console = Console(width=width, file=io.StringIO())
    for part in comparison.report(per_graph=True):
        console.print(part)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("sizes", "units"),
    [((2**20, 2**24), {"MiB"}), ((2**10, 2**31), {"KiB", "GiB"})],
    ids=["one shows what differs", "one would show small graphs as zeros"],
)
def test_graphs_are_in_one_unit_where_it_shows_what_differs(sizes, units):
    graphs = [branches(f"g{size}", size) for size in sizes]
    comparison = schedopt.compare(graphs, "input,dfs")
    table = shown(comparison).partition("*")[0]
    rows = [line.split() for line in shown(comparison).splitlines() if re.match(r"g\d", line)]
    assert {cell.strip("*") for row in rows for cell in row if cell.endswith(("iB", "iB*"))} == units, table
    assert all(len({row[at].strip("*") for at in (4, 6)}) == 2 for row in rows), "what differs reads differently"


def test_without_methods_the_input_order_is_compared_with_auto():
    assert schedopt.compare(branches("graph", 64)).methods == ("input", "auto")
