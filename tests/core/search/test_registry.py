"""What the registry says of methods without importing them, against the methods themselves."""

import re
import subprocess
import sys

import pytest
from schedopt.core.base.errors import UsageError
from schedopt.core.search.method_spec import parse_method
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
    assert list(presets) == ["fixed-order", "peft", "cpop", "brkga-tuned", "idrs"]
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
