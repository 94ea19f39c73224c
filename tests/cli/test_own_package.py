"""Methods and generators of another package: found by their entry points, late, and named if they are broken."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from models.consoles import ROOT
from schedopt.core.search import registry

EXAMPLE = ROOT / "examples" / "own_package"
GRAPH = ROOT / "examples" / "graphs" / "layered-50.pbtxt"
BROKEN = {"absent": "no_such_module:METHOD", "text": "small_first:__doc__", "auto": "small_first:METHOD"}


def write_package(folder, name, methods, generators):
    """Write what pip writes of a package's entry points."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = ["[schedopt.methods]", *methods, "[schedopt.generators]", *generators]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def forget():
    """Let entry points be looked for anew, before and after."""
    registry._entries.cache_clear()
    yield
    registry._entries.cache_clear()
    sys.modules.pop("small_first", None)


@pytest.fixture
def installed(tmp_path, monkeypatch, forget):
    """Put the example on the path, and a broken package beside it."""
    folder = tmp_path / "site"
    folder.mkdir()
    shutil.copy(EXAMPLE / "small_first.py", folder)
    write_package(folder, "small-first", ["small-first = small_first:METHOD"], ["ladder = small_first:Ladder"])
    lines = [f"{name} = {value}" for name, value in BROKEN.items()]
    write_package(folder, "broken-one", lines, ["bad = small_first:METHOD", "layered = small_first:Ladder"])
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_a_method_is_listed_solves_and_has_parameters(run, installed):
    listed = json.loads(run("methods", "--json").stdout)
    assert [row["name"] for row in listed[-3:]] == ["absent", "small-first", "text"]
    assert listed[0]["name"] == "auto" and "best of the methods" in listed[0]["summary"], "built-in names win"
    assert listed[-2]["parameters"]["noise"]["default"] == 0.3
    assert "noise" in run("methods", "small-first").stdout
    done = json.loads(run("solve", GRAPH, "--method", "small-first:noise=0.5", "--json").stdout)
    assert (done["method"], done["found_by"], done["evaluations"]) == ("small-first", "small-first", 100)
    wrong = run("solve", GRAPH, "--method", "small-first:noise=-1")
    assert (wrong.exit_code, wrong.stderr) == (2, "error: noise must be at least 0, not -1.0\n")
    assert "did you mean small-first?" in run("solve", GRAPH, "--method", "smal-first").stderr


@pytest.mark.slow
def test_a_generator_has_the_options_of_the_others(run, installed, tmp_path):
    assert "ladders: two chains" in " ".join(run("gen", "--help").stdout.split())
    options = run("gen", "ladder", "--help").stdout
    assert all(f"--{option}" in options for option in ("nodes", "largest", "count", "seed", "split", "jobs"))
    for name in ("one", "two"):
        done = run("gen", "ladder", tmp_path / name, "--nodes", 8, "--count", 3, "--seed", 4)
        assert done.exit_code == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "one").glob("*.gz"))
    assert names == [f"ladder-8-000{number}.pb.gz" for number in (1, 2, 3)]
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() for name in names)
    few = run("gen", "ladder", tmp_path / "three", "--nodes", 1)
    assert (few.exit_code, few.stderr) == (2, "error: nodes must be at least 2, not 1\n")


def test_what_is_broken_is_one_sentence_that_names_the_package(run, installed):
    for words, why in (
        (
            ("solve", GRAPH, "--method", "absent"),
            "method 'absent' of package broken-one cannot be used: ModuleNotFound",
        ),
        (("methods", "text"), "method 'text' of package broken-one cannot be used: TypeError: 'A method"),
        (("gen", "bad", "x", "--nodes", 3), "generator 'bad' of package broken-one cannot be used: TypeError: Method("),
    ):
        done = run(*words)
        assert done.exit_code == 2
        assert done.stderr.startswith(f"error: {why}") and done.stderr.count("\n") == 1
    assert "package broken-one cannot be used" in " ".join(run("methods").stdout.split())
    assert "package broken-one cannot" in " ".join(run("gen", "--help").stdout.split())


@pytest.mark.slow
def test_what_a_method_raises_is_a_bug_of_its_package(installed):
    module = "import schedopt\ndef solve(search, parameters): 1 / 0\nMETHOD = schedopt.Method(solve, 'one', 'two')\n"
    (installed / "no_such_module.py").write_text(module)
    code = f"import sys; sys.path.insert(0, {str(installed)!r}); "
    code += f"sys.argv = ['schedopt', 'solve', {str(GRAPH)!r}, '--method', 'absent']; "
    code += "from schedopt.cli.start import main; main()"
    environment = {**os.environ, "TMPDIR": str(installed)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    (log,) = installed.glob("schedopt-*.log")
    assert (done.returncode, done.stderr) == (
        70,
        "error: ZeroDivisionError: division by zero; this is a bug in method 'absent' of package broken-one, please "
        f"look at {log}, which has the traceback\n",
    )
    assert "no_such_module.py" in log.read_text()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("class Parameters: pass", "is not a dataclass derived from schedopt.Parameters"),
        ("class Parameters(schedopt.Parameters): pass", "is not a dataclass derived from schedopt.Parameters"),
        (
            "@dataclass(frozen=True)\nclass Parameters(schedopt.Parameters):\n    tries: int = 3",
            "field tries of Parameters is not made by schedopt.parameter",
        ),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_parameters_must_say_what_they_are(installed, run, code, message):
    (installed / "no_such_module.py").write_text(
        f"from dataclasses import dataclass\nimport schedopt\ndef solve(search, parameters): ...\n{code}\n"
        "METHOD = schedopt.Method(solve, 'summary', 'source')\n"
    )
    try:
        done = run("methods", "absent")
        assert done.exit_code == 2 and message in done.stderr
    finally:
        sys.modules.pop("no_such_module", None)


def test_nothing_is_read_before_a_name_or_a_list_is_asked_for(run, monkeypatch, forget, tmp_path):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **group: pytest.fail("read"))
    assert run("solve", GRAPH, "--method", "input").exit_code == 0
    assert run("gen", "layered", tmp_path / "one.pb", "--nodes", 5).exit_code == 0
    assert run("solve", "--help").exit_code == 0
    assert registry.default_devices("memory", ["auto"]) == 1


@pytest.mark.slow
def test_pip_installs_the_example_and_every_command_and_worker_sees_it(tmp_path):
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", tmp_path / "site"]
    source = shutil.copytree(EXAMPLE, tmp_path / "source")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, source], check=True)
    path = os.pathsep.join([str(tmp_path / "site"), str(Path(find_spec("schedopt").origin).parents[1])])

    def start(*words, **environment):
        command = [sys.executable, "-m", "schedopt", *map(str, words)]
        env = {**os.environ, "PYTHONPATH": path, **environment}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=env, cwd=tmp_path).stdout

    def completed(typed):
        words = f"schedopt {typed}"
        number = str(len(words.split()) - 1)
        return start(_SCHEDOPT_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=number).split()

    assert "small-first" in start("methods")
    assert "ladder" in start("gen", "--help")
    start("gen", "ladder", "ladders", "--count", 4, "--jobs", 2)
    start("compare", "ladders", "--methods", "input,small-first", "--jobs", 2, "--output", "runs.json")
    cells = json.loads((tmp_path / "runs.json").read_text())["cells"]
    assert {(cell["method"], cell["status"] != "failed") for cell in cells} == {("input", True), ("small-first", True)}
    assert completed("solve graph --method small") == ["small-first"]
    assert completed("compare graph --methods input,small") == ["input,small-first"]
    assert completed("methods small") == ["small-first"]
    assert completed("gen lad") == ["ladder"]
