"""What the registry says of methods without importing them, against the methods themselves."""

import dataclasses
import re
import subprocess
import sys
from typing import Literal

import naive
import numpy as np
import pytest
from schedopt import Parameters, Problem, UsageError, parameter
from schedopt.core.search import warm_up as module
from schedopt.core.search.method_spec import parse_method
from schedopt.core.search.parameters import from_texts
from schedopt.core.search.registry import (
    BUDGET_EXAMPLE,
    DEFAULT_METHOD,
    EXAMPLE,
    FLAGS,
    INPUT_METHOD,
    METHODS,
    default_devices,
    load,
    methods_where,
    parameter_fields,
    parameters_class,
    parameters_of,
)
from schedopt.core.search.settings import from_plain

CHANGED = ("summary", "source", "flags", "trainer", "training", "base", "fixed", "takes")
"""What a preset's line, or that it is one, says otherwise than its base's."""


@pytest.mark.parametrize("name", METHODS)
def test_every_flag_is_a_parameter_and_every_parameter_says_what_it_is(name):
    fields = {field.name: field for field in parameter_fields(name)}
    assert set(METHODS[name].flags) == FLAGS.keys() & fields.keys()
    assert all(field.metadata["help"] for field in fields.values())
    assert callable(load(name))


def test_a_preset_is_its_base_with_some_parameters_fixed():
    presets = {name: method for name, method in METHODS.items() if method.base}
    assert list(presets) == ["fixed-order", "peft", "cpop", "list-scheduling", "brkga-tuned", "idrs"]
    for name, preset in presets.items():
        base = METHODS[preset.base]
        assert not preset.trainer and preset._replace(**{f: getattr(base, f) for f in CHANGED}) == base
        assert parameters_of(name) == parameters_class(preset.base)(**preset.fixed)
        assert load(name) is load(preset.base)
    assert parse_method("peft").parameters == parse_method("heft:rank=optimistic").parameters
    assert parse_method("fixed-order:rounds=2").parameters == parse_method("recompute:order=input:rounds=2").parameters


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("peft:rank=upward", "method 'peft' has no parameter 'rank'; it has none"),
        ("fixed-order:order=input", "has no parameter 'order'; it has hot, cold, rounds"),
        ("brkga-tuned:elites=3", "has no parameter 'elites'; it has settings"),
    ],
)
def test_what_a_preset_fixes_cannot_be_given(text, message):
    with pytest.raises(UsageError, match=message):
        parse_method(text)


def test_the_help_of_a_flag_names_the_methods_that_have_it():
    for flag, text in FLAGS.items():
        named = {name for name in METHODS if re.search(rf"(?<![\w-]){name}(?![\w-])", text)}
        assert named == set(methods_where(lambda method, flag=flag: flag in method.flags)) != set()


def test_the_names_that_others_need_are_methods():
    assert {DEFAULT_METHOD, INPUT_METHOD} <= METHODS.keys()
    assert parse_method(EXAMPLE).evaluations is None
    assert parse_method(BUDGET_EXAMPLE).evaluations == 1000


def test_methods_that_place_by_nature_have_two_devices():
    assert default_devices("memory", ["brkga", "auto"]) == default_devices("memory", ["regal", "input"]) == 1
    assert default_devices("memory", ["regal", "gp-dfs"]) == default_devices("runtime", ["auto"]) == 2
    assert all(METHODS[name].default_devices == 2 for name in methods_where(lambda m: m.several_devices_only))


def test_the_registry_imports_no_method():
    code = "import sys, schedopt.core.search.registry; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "schedopt.core.search.registry" in loaded
    assert not [name for name in loaded if name.startswith(("numpy", "schedopt.core.solvers", "schedopt.policies"))]


@dataclasses.dataclass(frozen=True)
class Some(Parameters):
    count: int = parameter(3, "a count", low=1)
    share: float = parameter(0.5, "a share", low=0, high=1)
    kind: Literal["one", "two"] = parameter("one", "a kind")
    path: str = parameter("", "a file")


def test_texts_become_values():
    texts = {"count": "7", "share": "1e-3", "kind": "two", "path": "7"}
    assert from_texts(Some, texts, "m") == Some(7, 0.001, "two", "7")
    assert from_texts(Some, {}, "m") == Some()


@pytest.mark.parametrize(
    ("name", "text", "value", "words"),
    [
        ("count", "0", 0, "count must be at least 1, not 0"),
        ("share", "2", 2.0, "share must be from 0 to 1, not 2.0"),
        ("share", "nan", float("nan"), "share must be from 0 to 1, not nan"),
        ("kind", "three", "three", "kind must be one of one, two, not 'three'"),
    ],
)
def test_a_value_is_refused_in_the_same_words_everywhere(name, text, value, words):
    reads = (
        lambda: Some(**{name: value}),
        lambda: from_texts(Some, {name: text}, "m"),
        lambda: from_plain(Some, {name: value}, "file"),
    )
    for read in reads:
        with pytest.raises(UsageError) as error:
            read()
        assert str(error.value).endswith(words)


@pytest.mark.parametrize(
    ("kind", "texts", "words"),
    [
        (Some, {"counts": "1"}, "method 'm' has no parameter 'counts'; did you mean count?"),
        (Parameters, {"count": "1"}, "method 'm' has no parameter 'count'; it has none"),
        (Some, {"count": "1.5"}, "parameter count of 'm' must be a whole number, not '1.5'"),
        (Some, {"share": "half"}, "parameter share of 'm' must be a number, not 'half'"),
    ],
)
def test_a_text_that_is_no_value_is_named_with_its_parameter(kind, texts, words):
    with pytest.raises(UsageError) as error:
        from_texts(kind, texts, "m")
    assert str(error.value) == words


GRAPH = naive.random_graph(np.random.default_rng(171), 40)[0]


@pytest.fixture
def ran(monkeypatch):
    """Record what is run: name, ops, memory limit, parameters."""
    runs = []

    def load(name):
        def solve(search, parameters):
            runs.append((name, search.problem.graph.num_ops, search.problem.memory_limit, parameters))
            search.offer_order(search.problem.graph.input_order)

        return solve

    monkeypatch.setattr(module, "load", load)
    return runs


@pytest.mark.parametrize(
    ("problem", "last"), [(Problem(GRAPH), "order-search"), (Problem(GRAPH, "runtime", 2, latency=1.0), "cp-sat")]
)
def test_what_a_method_calls_runs_too(ran, problem, last):
    module.warm_up(problem, parse_method("auto"))
    names = [name for name, *_ in ran]
    assert names[0] == "input"
    assert names[-1] == last
    assert ("gp-dfs" in names) == ("annealing" in names) == (problem.task == "runtime")
    assert {ops for _, ops, *_ in ran} == {4}


def test_a_solver_for_a_time_limit_alone_is_not_loaded_for_evaluations(ran):
    problem = Problem(GRAPH, "runtime", 2, latency=1.0)
    module.warm_up(problem, parse_method("auto"), 100)
    module.warm_up(problem, parse_method("auto:evaluations=100"))
    names = [name for name, *_ in ran]
    assert names.count("step-search") == 2
    assert "cp-sat" not in names
