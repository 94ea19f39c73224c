"""Clusters that are real: results as here, whatever is killed; and what is said of those that are not there."""

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import yaml
from models.clusters import ENGINES, cluster, environment_of
from models.small_graphs import sketch
from schedopt import Problem, read_graph, write_graph
from schedopt.core.base.errors import WorkerRefusedError
from schedopt.core.base.parallel import Workers, map_in_order, map_unordered, using
from schedopt.core.experiments.clusters import Cluster, _Ray, _run
from schedopt.core.experiments.comparison import Run, cells_of
from schedopt.core.search.method_spec import parse_method
from schedopt.version import VERSION

TIMES = {"seconds", "cpu_seconds"}


@pytest.fixture
def graph():
    return sketch("source -> 1024 us=1; sink: source -> 2048 us=2", "chain")


@pytest.mark.parametrize(("failing", "is_connected"), [(0, True), (2, True), (3, False)])
def test_a_server_for_a_client_of_ray_that_dies_as_it_starts_is_asked_for_again(monkeypatch, failing, is_connected):
    asked = []

    def init(**given):
        asked.append(given["address"])
        if len(asked) <= failing:
            raise ConnectionAbortedError("Initialization failure from server")

    fake = SimpleNamespace(init=init, remote=lambda **options: lambda function: function)
    monkeypatch.setitem(sys.modules, "ray", fake)
    with nullcontext() if is_connected else pytest.raises(ConnectionAbortedError):
        _Ray("ray://127.0.0.1:10001")
    assert asked == ["ray://127.0.0.1:10001"] * min(failing + 1, 3)


def test_a_task_of_another_version_is_refused():
    assert _run(VERSION, lambda: 2) == 2
    with pytest.raises(WorkerRefusedError, match=rf"has schedopt {re.escape(VERSION)}, and this is 0\.1: install"):
        _run("0.1", lambda: 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--backend", "dask"], ["--backend dask needs the address", "tcp://HOST:8786"]),
        (["--backend", "ray"], ["--backend ray needs the address", "auto"]),
        (["--address", "tcp://127.0.0.1:1"], ["--address is of a cluster", "--backend dask"]),
        (["--backend", "dask", "--address", "nowhere"], ["'nowhere' is not understood", "tcp://HOST:8786"]),
        (["--backend", "ray", "--address", "tcp://127.0.0.1:99999"], ["is not understood", "ray://HOST:10001"]),
        (["--backend", "dask", "--address", "tcp://127.0.0.1:{port}"], ["is not reached", "dask scheduler"]),
        (["--backend", "ray", "--address", "ray://127.0.0.1:{port}"], ["is not reached", "ray start --head"]),
    ],
)
def test_a_cluster_that_is_not_there_is_one_sentence_and_exit_2(run, tmp_path, graph, monkeypatch, options, words):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    write_graph(graph, tmp_path / "chain.pbtxt")
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        options = [option.replace("{port}", str(unheard.getsockname()[1])) for option in options]
        result = run("compare", tmp_path / "chain.pbtxt", "--methods", "input", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_an_engine_that_is_not_installed_is_named(run, tmp_path, graph, monkeypatch, kind):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    write_graph(graph, tmp_path / "chain.pbtxt")
    words = ["--methods", "input", "--backend", kind, "--address", "tcp://127.0.0.1:1"]
    result = run("compare", tmp_path / "chain.pbtxt", *words)
    assert result.exit_code == 2
    assert result.stderr == f"error: {kind} is not installed; pip install 'schedopt[{kind}]'\n"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENGINES)
def test_an_address_that_accepts_and_says_nothing_is_an_error_within_15_seconds(run, tmp_path, graph, kind):
    write_graph(graph, tmp_path / "chain.pbtxt")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"{'tcp' if kind == 'dask' else 'ray'}://127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        result = run("compare", tmp_path / "chain.pbtxt", "--methods", "input", "--backend", kind, "--address", address)
    assert time.monotonic() - start < 15
    assert (result.exit_code, result.stdout, len(result.stderr.strip().splitlines())) == (2, "", 1)
    assert f"{address} is not reached" in result.stderr


def _cells(path):
    return [{k: v for k, v in cell.items() if k not in TIMES} for cell in json.loads(path.read_text())["cells"]]


def _points(path):
    with path.open(newline="") as file:
        return [{k: v for k, v in point.items() if k not in TIMES} for point in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENGINES)
def test_everything_gives_the_same_on_a_cluster_as_here_whatever_is_killed(run, tmp_path, kind):
    """One cluster for all, since one takes half a minute: commands, then what a worker does, then its end."""
    run("gen", "layered", tmp_path / "here", "--nodes", 30, "--count", 6, "--quiet")
    graphs = sorted((tmp_path / "here").glob("*.pb.gz"))
    with cluster(kind, tmp_path) as running:
        there = running.options(kind)
        done = run("gen", "layered", tmp_path / "there", "--nodes", 30, "--count", 6, "--quiet", *there)
        assert done.exit_code == 0, done.stderr
        here, away = ({p.name: p.read_bytes() for p in some} for some in (graphs, (tmp_path / "there").glob("*.pb.gz")))
        assert here == away
        compared = ["compare", tmp_path / "here", "--methods", "input,dfs,order-search", "--evaluations", 50, "--quiet"]
        fronts = ["pareto", graphs[0], "--points", 3, "--evaluations", 50, "--quiet"]
        for name, options in (("here", ()), ("there", there)):
            for command, file in ((compared, f"{name}.json"), (fronts, f"{name}.csv")):
                done = run(*command, "--output", tmp_path / file, *options)
                assert done.exit_code == 0, done.stderr
        assert _cells(tmp_path / "here.json") == _cells(tmp_path / "there.json")
        assert _points(tmp_path / "here.csv") == _points(tmp_path / "there.csv")
        _is_resumed(run, tmp_path, compared, there)
        _trainings_are_the_same(run, tmp_path, there)
        with closing(Cluster(kind, running.address)) as workers, using(workers):
            assert list(map_in_order(str, range(20))) == list(map(str, range(20)))
            errors = [future.exception() for _, future in map_unordered(int, ["1", "no", "3"], 1)]
            assert sorted(type(error).__name__ for error in errors) == ["NoneType", "NoneType", "ValueError"]
            with Workers(1) as some:
                assert {some.start(os.getpid)() for _ in range(4)}.isdisjoint({os.getpid()})
            _what_raises_costs_its_own_cell(read_graph(graphs[0]))
        (tmp_path / "killed").mkdir()
        _a_worker_and_the_head_are_killed(run, tmp_path / "killed", kind, running)


def _is_resumed(run, folder, compared, there):
    """Go on on a cluster with a comparison of which one method is done."""
    file = folder / "resumed.jsonl"
    first = [*compared[:3], "input", *compared[4:]]
    assert run(*first, "--resume", file, *there).exit_code == 0
    begun = file.read_text()
    done = run(*compared, "--resume", file, "--output", folder / "resumed.json", *there)
    assert (done.exit_code, begun.count("\n")) == (0, 6), done.stderr
    assert file.read_text().startswith(begun)
    assert file.read_text().count("\n") == 18
    assert _cells(folder / "resumed.json") == _cells(folder / "here.json")


def _what_raises_costs_its_own_cell(graph):
    """Do three runs, of which the second has a method that cannot solve its problem."""
    runs = [Run(Problem(graph), parse_method(name), 0, "", "") for name in ("input", "regal", "dfs")]
    cells = {cell.method: cell for cell in cells_of(runs, 1)}
    assert {name for name, cell in cells.items() if cell.status == "failed"} == {"regal"}
    assert len(cells) == 3
    assert cells["regal"].error.startswith("UsageError: ")


def _trainings_are_the_same(run, folder, there):
    """Train networks on graphs that are drawn, and search a grid."""
    from models.train_commands import COMMANDS, assert_same_weights

    for method in ("topoformer", "regal"):
        config = folder / f"{method}.yaml"
        config.write_text(yaml.safe_dump(COMMANDS[method].config))
        for name, options in (("here", ()), ("there", there)):
            output = folder / f"{method}-{name}"
            done = run("train", method, "--config", config, "--output", output, "--quiet", *options)
            assert done.exit_code == 0, done.stderr
        assert_same_weights(folder / f"{method}-here", folder / f"{method}-there")
    grid = ["train", "local-search", folder / "here", "--devices", 2, "--evaluations", 20, "--json", "--quiet"]
    assert run(*grid, *there).stdout == run(*grid).stdout


@contextmanager
def _begun(words, file):
    """Start a comparison that keeps its runs in a file, and wait until one is there."""
    command = [sys.executable, "-m", "schedopt", *map(str, words), "--resume", str(file)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, env=environment_of()) as process:
        for _ in range(1200):
            if process.poll() is not None or (file.exists() and file.read_bytes().count(b"\n") >= 1):
                break
            time.sleep(0.1)
        yield process


def _a_worker_and_the_head_are_killed(run, tmp_path, kind, running):
    run("gen", "layered", tmp_path / "graphs", "--nodes", 40, "--count", 8, "--quiet")
    base = ["compare", tmp_path / "graphs", "--task", "runtime", "--bandwidth", "1", "--quiet"]
    words = [*base, "--methods", "input,brkga:evaluations=50"]
    assert run(*words, "--output", tmp_path / "here.json").exit_code == 0
    with closing(Cluster(kind, running.address)) as workers, using(workers):
        naps = [0.2 + number / 1000 for number in range(30)]
        ended = []
        for nap, future in map_unordered(time.sleep, naps, 1):
            assert future.result() is None
            ended.append(nap)
            if len(ended) == 3:
                running.kill_a_worker()
    assert sorted(ended) == naps
    slow = [*base, "--methods", "input,brkga:evaluations=100000000", *running.options(kind)]
    file = tmp_path / "interrupted.jsonl"
    with _begun(slow, file) as process:
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert f"kept in {file}" in stderr
    with closing(Cluster(kind, running.address)) as workers:
        assert workers.submit(str, 7).result(timeout=120) == "7"  # no worker goes on with a run that nobody wants
    file = tmp_path / "runs.jsonl"
    with _begun(slow, file) as process:
        running.kill_head()
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (1, ""), stderr
    said = [line for line in stderr.splitlines() if not line.startswith("note: ")]
    assert len(said) == 1, stderr
    gone = rf"error: the {kind.capitalize()} \w+ at .* is gone; finished runs are kept in .*; the same command"
    assert re.match(gone, said[0])
    done = [json.loads(line)["graph"] for line in file.read_text().splitlines()]
    assert len(done) == len(set(done))
    assert run(*words, "--resume", file, "--output", tmp_path / "again.json").exit_code == 0
    assert _cells(tmp_path / "again.json") == _cells(tmp_path / "here.json")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENGINES)
def test_a_worker_of_another_version_is_refused_by_name(run, tmp_path, kind):
    other = tmp_path / "other" / "schedopt"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    (other / "version.py").write_text('VERSION = "0.0.1"\n')
    run("gen", "layered", tmp_path / "one.pbtxt", "--nodes", 10, "--quiet")
    with cluster(kind, tmp_path, other=tmp_path / "other") as running:
        done = run("compare", tmp_path / "one.pbtxt", "--methods", "input", "--quiet", *running.options(kind))
    assert (done.exit_code, done.stdout) == (2, "")
    name = r"worker tcp://127\.0\.0\.1:\d+" if kind == "dask" else r"node [\d.]+ \(\w+\)"
    assert re.fullmatch(rf"error: the {name} has schedopt 0\.0\.1, and this is .*: install the same .*\n", done.stderr)
