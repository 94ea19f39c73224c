"""Settings as YAML: what is written is read again, and each way to be wrong is named."""

import dataclasses
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import naive
import numpy as np
import pytest
import yaml
from schedopt import FormatError, Parameters, Problem, UsageError, parameter
from schedopt.core.experiments.comparison import Experiment
from schedopt.core.files.yaml_files import write_yaml
from schedopt.core.search.method_spec import parse_method
from schedopt.core.search.options import CompareOptions
from schedopt.core.search.settings import (
    differences,
    from_plain,
    plain,
    read_config,
    read_document,
    shipped,
    with_settings,
)
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements import brkga, local_search
from schedopt.policies.topoformer.training import Phase, TrainingParameters

TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


@dataclasses.dataclass(frozen=True)
class Inner(Parameters):
    size: int = parameter(3, "a size", low=1)
    sizes: tuple[int, int] = (1, 2)


@dataclasses.dataclass(frozen=True)
class Outer(Parameters):
    rate: float = parameter(0.5, "a rate", low=0, high=1)
    kind: Literal["one", "two"] = "one"
    name: str = ""
    is_on: bool = False
    inner: Inner = dataclasses.field(default_factory=Inner)
    many: tuple[Inner, ...] = (Inner(),)
    by_name: dict[str, Inner] = dataclasses.field(default_factory=dict)
    limit: int | None = None


CHANGED = Outer(0.25, "two", "a: b", True, Inner(9, (4, 5)), (Inner(), Inner(7)), {"x": Inner(2)}, 11)


@pytest.mark.parametrize("config", [Outer(), CHANGED, TrainingParameters(phases=(Phase(), Phase(epochs=2)))])
def test_what_is_written_is_read_again(config, tmp_path):
    write_yaml(tmp_path / "config.yaml", plain(config))
    assert read_config(tmp_path / "config.yaml", type(config)) == config


def test_what_is_left_out_keeps_its_default(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("many: [{size: 7}]\n")
    assert read_config(path, Outer) == Outer(many=(Inner(7),))
    path.write_text("")
    assert read_config(path, Outer) == Outer()


@pytest.mark.parametrize("text", ["1e-3", "1.0e-3", "0.001"])
def test_rates_are_numbers_however_they_are_written(text, tmp_path):
    """YAML takes 1e-3 for a text."""
    path = tmp_path / "config.yaml"
    path.write_text(f"rate: {text}\n")
    assert read_config(path, Outer).rate == 0.001


@pytest.mark.parametrize(("text", "words"), TABLE["wrong settings"])
def test_a_wrong_setting_is_named_with_its_file(text, words, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_config(path, Outer)
    for word in [str(path), *words]:
        assert word in str(error.value)


@pytest.mark.parametrize(("data", "word"), [(b"a: [", "is not YAML"), (b"\xff\xfe\x00", "is not YAML")])
def test_what_is_not_yaml_is_refused(data, word, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=word):
        read_config(path, Outer)
    with pytest.raises(FormatError, match="cannot be read: No such file"):
        read_config(tmp_path / "none.yaml", Outer)


def test_settings_replace_single_values():
    changed = with_settings(plain(CHANGED), ["many.1.size=5", "rate=1e-2", "inner.sizes=[8, 9]", "name=x=y"])
    wanted = dataclasses.replace(CHANGED, many=(Inner(), Inner(5)), rate=0.01, inner=Inner(9, (8, 9)), name="x=y")
    assert from_plain(Outer, changed, "settings") == wanted


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("rate", "'rate' is not written name=value"),
        ("speed=1", "no setting 'speed'"),
        ("many.2.size=1", "no setting 'many.2.size'"),
        ("many.1.speed=1", "no setting 'many.1.speed'"),
        ("many.x.size=1", "no setting 'many.x.size'"),
        ("rate.x=1", "no setting 'rate.x'"),
        ("name.0=b", "no setting 'name.0'"),
        ("rate=[", "'[' in 'rate=['"),
        ("rate=" + "9" * 5000, "9... in 'rate=999"),
        ("rate=2001-99-99", "'2001-99-99' in 'rate=2001-99-99' is not a value of YAML"),
    ],
)
def test_a_setting_that_there_is_not_is_refused(setting, words):
    before = plain(CHANGED)
    with pytest.raises(UsageError) as error:
        with_settings(before, [setting])
    assert words in str(error.value)
    assert before == plain(CHANGED)


def test_differences_are_named():
    other = dataclasses.replace(CHANGED, rate=0.75, many=(Inner(), Inner(8)), by_name={})
    assert differences(plain(CHANGED), plain(CHANGED)) == []
    assert differences(plain(CHANGED), plain(other)) == ["rate", "many.1.size", "by_name.x"]
    fewer = dataclasses.replace(CHANGED, many=(Inner(),))
    assert differences(plain(CHANGED), plain(fewer)) == ["many"]


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
        ("\x00", "is not YAML: "),
        ("[" * 5000, "is not YAML: "),
        ("", "is not a file that schedopt train brkga wrote"),
        ("method: local-search\nmemory: {settings: {patience: 3}}", "is not a file that schedopt train brkga wrote"),
        ("method: brkga\nmemory: {settings: 3}", "is not a file that schedopt train brkga wrote"),
        ("method: brkga\nmemory: {settings: {elite: 3}}", "memory task.*'brkga' has no parameter 'elite'"),
        ("method: brkga\nmemory: {settings: {settings: bad.yaml}}", "memory task.*has no parameter 'settings'"),
        ("method: brkga\nmemory: {settings: {elites: 2.5}}", "memory task.*must be a whole number, not '2.5'"),
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
        options, method = CompareOptions("runtime", 2), f"brkga-tuned:settings={file}"
        (run,) = Experiment([problem().graph], [method], options).runs.values()
        return run.key

    before = key()
    assert key() == before
    write_yaml(file, {"method": "brkga", "runtime": {"settings": {"elites": 3}}})
    assert key() != before
