"""Options declared once: what functions and commands take is what the fields say, and so is how errors name it."""

import dataclasses
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
import schedopt
from models.small_graphs import sketch
from schedopt import Device, Machine, Problem
from schedopt.core.base.options import options_in, spelled_for_shells
from schedopt.core.problem.problem import parameter_types
from schedopt.core.programs.options import OptimizeOptions
from schedopt.core.search.options import (
    Budget,
    CompareOptions,
    FitOptions,
    PackOptions,
    ParetoOptions,
    ProblemOptions,
    SolveOptions,
)

VERBS = {
    "solve": SolveOptions,
    "compare": CompareOptions,
    "pareto": ParetoOptions,
    "fit": FitOptions,
    "pack": PackOptions,
    "optimize": OptimizeOptions,
}
OTHERWISE = {
    "solve": {"task", "latency"},  # None: a Problem says them
    "optimize": {"recompute", "max_overhead"},  # recomputation where a limit needs it, at any time
}


@pytest.mark.parametrize("verb", VERBS)
def test_signatures_written_out_are_those_of_the_fields(verb):
    """Every option is an argument with the same default, which reading does not change."""
    arguments = inspect.signature(getattr(schedopt, verb)).parameters
    kind = VERBS[verb]
    for field in options_in(kind):
        if field.name not in OTHERWISE.get(verb, ()):
            default = arguments[field.name].default
            assert getattr(kind(**{field.name: default}), field.name) == getattr(kind(), field.name), field.name


@pytest.mark.parametrize("kind", [*VERBS.values(), Budget, ProblemOptions], ids=lambda kind: kind.__name__)
def test_reading_options_again_changes_nothing(kind):
    values = {"memory_limit": "60%", "latency": "5us", "bandwidth": "1GB/s", "evaluations": "1e3", "time_limit": "2min"}
    given = {field.name: values[field.name] for field in options_in(kind) if field.name in values}
    given |= {"devices": 2} if "devices" in inspect.signature(kind).parameters else {}
    options = kind(**given)
    assert dataclasses.replace(options) == options


@pytest.mark.parametrize(
    ("given", "python", "shell"),
    [
        ({"memory_limit": "5 parsecs"}, "memory_limit='5 parsecs' has", "--memory-limit '5 parsecs' has"),
        ({"seed": -1}, "seed= must be at least 0, not -1", "--seed must be at least 0, not -1"),
        ({"op_times": "t.csv"}, "give machine=, too", "give --machine, too"),
        ({"max_overhead": "9%"}, "time that recompute=True adds", "time that --recompute adds"),
        ({"recompute": True, "devices": 2}, "not for devices=2", "not for --devices 2"),
        ({"align": 16}, "align= is for addresses=True", "--align is for --addresses"),
        ({"pins": "all"}, "pins= must be one of from-graph", "--pins must be one of from-graph"),
    ],
)
def test_errors_name_an_option_as_the_caller_writes_it(given, python, shell):
    with pytest.raises(schedopt.UsageError) as error:
        SolveOptions(**given)
    assert python in str(error.value)
    with spelled_for_shells(), pytest.raises(schedopt.UsageError) as error:
        SolveOptions(**given)
    assert shell in str(error.value)


def test_schedule_files_say_every_option_of_a_problem():
    elsewhere = {"max_overhead": "runtime_limit", "op_times": "machine", "pins": "machine"}
    names = {elsewhere.get(field.name, field.name) for field in options_in(ProblemOptions)}
    assert names - {"allocator"} == set(parameter_types())  # which a file names with what it reserves
    machine = Machine((Device("a"), Device("b", speed=2.0)))
    found = Problem(
        sketch("a -> 10 us=5", "net"), "runtime", memory_limit=20, machine=machine, replicate=True
    ).document()
    known = json.loads(Path(schedopt.__file__).with_name("core").joinpath("files/schedule.schema.json").read_text())
    assert {*found, "recompute", "runtime_limit_us"} <= set(known["properties"])


ADDED = """
import importlib.util, json, sys
from pathlib import Path

spec = importlib.util.find_spec("schedopt.core.search.options")
line = 'power_limit: float | None = option(None, "Watts per device", low=1, panel="Power", json="power_limit_w")'
source = Path(spec.origin).read_text().replace("    replicate: bool", f"    {line}\\n    replicate: bool", 1)
module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
exec(compile(source, spec.origin, "exec"), vars(module))

sys.path.insert(0, sys.argv[1])
import generate
from schedopt.cli.main import app
from schedopt.core.search.options import CompareOptions, ParetoOptions
from typer.testing import CliRunner

def output(*words):
    return CliRunner().invoke(app, words, env={"COLUMNS": "500"}).output

print(json.dumps({
    "help": [output(verb, "--help") for verb in ("solve", "compare", "pareto")],
    "pages": [generate.options_table(verb) for verb in ("solve", "compare", "pareto")],
    "json": [kind(power_limit=300.0).document() for kind in (CompareOptions, ParetoOptions)],
    "error": output("solve", "graph.pb", "--power-limit", "0"),
}))
"""


@pytest.mark.slow
def test_an_option_added_once_appears_everywhere():
    """In the help, on the pages, in JSON and in errors."""
    docs = Path(__file__).parents[3] / "docs"
    done = subprocess.run([sys.executable, "-c", ADDED, str(docs)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for text in found["help"]:
        assert "--power-limit" in text
        assert "Watts per device. (from 1)" in text
    for page in found["pages"]:
        assert "| `--power-limit` `X` |  | Watts per device. (from 1) |" in page
    assert [document["power_limit_w"] for document in found["json"]] == [300.0, 300.0]
    assert "error: --power-limit must be at least 1, not 0" in found["error"]
