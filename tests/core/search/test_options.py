"""Options declared once: what functions and commands take is what the fields say, and so is how errors name it."""

import dataclasses
import inspect

import pytest
import schedopt
from schedopt.core.api.options import FitOptions, PackOptions, SolveOptions
from schedopt.core.base.options import options_in, spelled_for_shells
from schedopt.core.experiments.options import CompareOptions, ParetoOptions
from schedopt.core.problem.machine import MAX_DEVICES
from schedopt.core.programs.options import OptimizeOptions
from schedopt.core.search.options import MOST_DEVICES, Budget, ProblemOptions

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


def test_as_many_devices_as_a_machine_has():
    assert MOST_DEVICES == MAX_DEVICES


@pytest.mark.parametrize(
    ("given", "python", "shell"),
    [
        ({"memory_limit": "5 parsecs"}, "memory_limit='5 parsecs' has", "--memory-limit '5 parsecs' has"),
        ({"seed": -1}, "seed= must be at least 0, not -1", "--seed must be at least 0, not -1"),
        ({"op_times": "t.csv"}, "give machine=, too", "give --machine, too"),
        ({"max_overhead": "9%"}, "what recompute=True may add", "what --recompute may add"),
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
