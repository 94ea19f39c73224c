"""`schedopt train`: a tiny grid end to end, resumed, interrupted, in parallel, and misused."""

import re
import signal

import pytest
import yaml
from models.signals import interrupted_after
from schedopt.core.experiments import grid_search
from schedopt.core.experiments.grid_search import Grid
from schedopt.core.search.settings import read_tuned
from schedopt.core.solvers.placements import brkga

pytestmark = pytest.mark.slow

TINY = tuple(
    {"alpha": alpha, "chromosomes": chromosomes, "elites": 2, "mutants": 1}
    for alpha in (1.0, 3.0)
    for chromosomes in (10, 6, 20)
)


@pytest.fixture
def small_grid(monkeypatch):
    monkeypatch.setitem(grid_search.GRIDS, "brkga", Grid("brkga", TINY))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return two data sets: four graphs to search on, and two others."""
    from schedopt.cli.main import app
    from typer.testing import CliRunner

    folder = tmp_path_factory.mktemp("graphs")
    for name, count, seed in (("train", 4, 7), ("held-out", 2, 8)):
        arguments = ["gen", "synthetic", folder / name, "--count", count, "--seed", seed, "--nodes", "10-15"]
        assert CliRunner().invoke(app, [*map(str, arguments), "--quiet"]).exit_code == 0
    return folder / "train", folder / "held-out"


def search(folders, *options):
    train, held_out = folders
    common = ["--task", "runtime", "--evaluations", 40, "--first", 2, "--keep", 0.5, "--quiet"]
    return ["train", "brkga", train, "--held-out", held_out, *common, *options]


def entry(path, task="runtime"):
    return yaml.safe_load(path.read_text())[task]


def test_the_winner_is_written_with_how_it_was_found(run, folders, small_grid, tmp_path):
    output = tmp_path / "tuned.yaml"
    result = run(*search(folders, "--output", output))
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    found = entry(output)["found"]
    words = "--task runtime --evaluations 40 --seed 0 --first 2 --keep 0.5"
    assert found["command"] == f"schedopt train brkga GRAPHS {words}"
    assert found["rounds"] == ["6 settings on 2 graphs", "3 settings on 4 graphs"]
    assert found["training"]["made_by"] == ["schedopt gen synthetic --nodes 10-15 --count 4 --seed 7"]
    assert (found["training"]["graphs"], found["held_out"]["graphs"]) == (4, 2)
    assert found["training"]["improvement_percent"] >= 0  # the defaults are in it
    assert entry(output)["settings"] in TINY
    tuned = read_tuned(output, "brkga", brkga.Parameters).parameters("runtime")
    assert tuned == brkga.Parameters(**entry(output)["settings"])
    assert "improvement over brkga:alpha=1.0:chromosomes=10:elites=2:mutants=1, 4 graphs" in result.stdout
    assert "the first on 2 held-out graphs: " in result.stdout
    graph = next(folders[0].glob("*.pb.gz"))
    solved = run("solve", graph, "--task", "runtime", "--method", f"brkga-tuned:settings={output}", "--evaluations", 40)
    assert solved.exit_code == 0, solved.stderr


def test_the_other_task_in_the_file_stays(run, folders, small_grid, tmp_path):
    output = tmp_path / "tuned.yaml"
    assert run(*search(folders, "--output", output)).exit_code == 0
    before = entry(output)
    assert run(*search(folders, "--output", output), "--task", "memory").exit_code == 0
    assert entry(output) == before
    assert "--task" not in entry(output, "memory")["found"]["command"]


def test_neither_jobs_nor_a_stop_change_the_result(run, folders, small_grid, tmp_path):
    """Cancelled after any number of runs, the file as it is then gives the same result, without repeating them."""
    whole = run(*search(folders, "--json", "--resume", tmp_path / "whole.jsonl"))
    assert run(*search(folders, "--json", "--jobs", 2)).stdout == whole.stdout
    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 6 * 2 + 3 * 2 + 2 * 2
    for kept in (5, 12, 20):
        part = tmp_path / f"{kept}.jsonl"
        part.write_bytes(b"".join(lines[:kept]) + b'{"key": "torn')
        assert run(*search(folders, "--json", "--resume", part)).stdout == whole.stdout
        assert part.read_bytes().count(b"\n") == len(lines)


def test_another_methods_file_is_not_overwritten(run, folders, small_grid, tmp_path):
    output = tmp_path / "tuned.yaml"
    output.write_text("method: local-search\nmemory: {settings: {patience: 3}}\n")
    result = run(*search(folders, "--output", output))
    assert result.exit_code == 2
    assert "is not a file that schedopt train brkga wrote" in result.stderr
    assert "patience" in output.read_text()


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_what_is_done(folders, tmp_path, jobs):
    file, output = tmp_path / "runs.jsonl", tmp_path / "tuned.yaml"
    arguments = ["train", "brkga", folders[0], "--task", "runtime", "--evaluations", 2000, "--bandwidth", 1]
    arguments += ["--resume", file, "--output", output, "--jobs", jobs]
    code, stdout, stderr = interrupted_after(file, arguments)
    assert (code, stdout) == (130, ""), stderr
    assert re.search(r"interrupted: the runs done so far are kept in .*; the same command goes on", stderr)
    assert 1 <= file.read_bytes().count(b"\n") < 648 * 4
    assert not output.exists()


def test_ctrl_c_while_kernels_are_compiled_ends_at_once(run, folders, small_grid, monkeypatch):
    def compile(experiment):
        signal.raise_signal(signal.SIGINT)
        pytest.fail("late")

    monkeypatch.setattr("schedopt.core.experiments.comparison.Experiment.compile", compile)
    assert run(*search(folders)).exit_code == 130
