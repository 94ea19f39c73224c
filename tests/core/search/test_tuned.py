"""Tuned parameters: read, written, shipped, and used."""

from dataclasses import asdict

import naive
import numpy as np
import pytest
from schedopt.core.base.errors import FormatError, UsageError
from schedopt.core.experiments.comparison import Experiment
from schedopt.core.files.yaml_files import write_yaml
from schedopt.core.problem.problem import Problem
from schedopt.core.search.method_spec import parse_method
from schedopt.core.search.options import CompareOptions
from schedopt.core.search.settings import read_document, shipped
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements import brkga, local_search

SETTINGS = {"alpha": 3.0, "chromosomes": 30, "elites": 3, "mutants": 6, "populations": 2}
TEXT = ":".join(f"{name}={value}" for name, value in SETTINGS.items())


@pytest.fixture
def file(tmp_path):
    """Return a file with settings for the makespan alone."""
    path = tmp_path / "tuned.yaml"
    write_yaml(path, {"method": "brkga", "runtime": {"settings": SETTINGS, "found": {"made_by": ["päper"]}}})
    return path


def problem(task="runtime", devices=2, **values):
    return Problem(naive.random_graph(np.random.default_rng(161), 30)[0], task, devices, **values)


def steps_of(result):
    return [column.tolist() for column in (result.schedule.items, result.schedule.sources, result.schedule.targets)]


@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_what_is_shipped_says_how_it_was_found(task):
    for method, kind in (("brkga", brkga.Parameters), ("local-search", local_search.Parameters)):
        assert shipped(method, kind).parameters(task) != kind()
        found = read_document(shipped(method, kind).path, method)[task]["found"]
        assert found["command"].startswith(f"schedopt train {method} GRAPHS")
        assert found["training"]["made_by"] != found["held_out"]["made_by"]
        assert found["evaluations"] == 5000


@pytest.mark.parametrize(("limit", "bandwidth"), [(None, None), (100, 1e6)])
def test_brkga_tuned_is_brkga_with_the_files_settings(file, limit, bandwidth):
    posed = problem(devices=3, memory_limit=limit, bandwidth=bandwidth)
    tuned = solve(posed, f"brkga-tuned:settings={file}", evaluations=300, seed=3)
    assert steps_of(tuned) == steps_of(solve(posed, f"brkga:{TEXT}", evaluations=300, seed=3))
    assert steps_of(tuned) != steps_of(solve(posed, "brkga", evaluations=300, seed=3))
    assert tuned.found_by == "brkga-tuned"


@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_the_shipped_settings_are_used_by_task(task):
    settings = shipped("brkga", brkga.Parameters).parameters(task)
    text = ":".join(f"{name}={value}" for name, value in asdict(settings).items())
    tuned = solve(problem(task), "brkga-tuned", evaluations=300)
    assert steps_of(tuned) == steps_of(solve(problem(task), f"brkga:{text}", evaluations=300))
    patience = shipped("local-search", local_search.Parameters).parameters(task).patience
    walked = solve(problem(task), "local-search", evaluations=300)
    assert steps_of(walked) == steps_of(solve(problem(task), f"local-search:patience={patience}", evaluations=300))


def test_a_task_without_settings_says_how_to_find_them(file):
    with pytest.raises(UsageError, match=r"tuned\.yaml: holds no settings for the memory task; schedopt train brkga"):
        solve(problem("memory"), f"brkga-tuned:settings={file}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("a: [", "is not YAML: "),
        ("\x00", "is not YAML: "),
        ("[" * 5000, "is not YAML: "),
        ("", "is not a file that schedopt train brkga wrote"),
        ("- 1", "is not a file that schedopt train brkga wrote"),
        ("method: brkga", "is not a file that schedopt train brkga wrote"),
        ("method: local-search\nmemory: {settings: {patience: 3}}", "is not a file that schedopt train brkga wrote"),
        ("method: brkga\nmemory: 3", "is not a file that schedopt train brkga wrote"),
        ("method: brkga\nmemory: {settings: 3}", "is not a file that schedopt train brkga wrote"),
        ("method: brkga\nmemory: {settings: {elite: 3}}", "memory task.*'brkga' has no parameter 'elite'"),
        ("method: brkga\nmemory: {settings: {settings: bad.yaml}}", "memory task.*has no parameter 'settings'"),
        ("method: brkga\nmemory: {settings: {elites: 2.5}}", "memory task.*must be a whole number, not '2.5'"),
        ("method: brkga\nruntime: {settings: {elites: [3]}}", "runtime task.*must be a whole number"),
        ("method: brkga\nmemory: {settings: {elites: 95}}", "memory task.*fewer than chromosomes"),
    ],
)
def test_a_bad_file_is_one_sentence_before_anything_runs(tmp_path, text, message):
    path = tmp_path / "bad.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(FormatError, match=rf"bad\.yaml(, line 1)?: .*{message}") as caught:
        parse_method(f"brkga-tuned:settings={path}")
    assert "\n" not in str(caught.value)


def test_new_settings_in_a_file_are_new_runs_to_resume(file):
    def key():
        (run,) = Experiment(
            [problem().graph], [f"brkga-tuned:settings={file}"], CompareOptions("runtime", 2)
        ).runs.values()
        return run.key

    before = key()
    assert key() == before
    write_yaml(file, {"method": "brkga", "runtime": {"settings": {"elites": 3}}})
    assert key() != before
