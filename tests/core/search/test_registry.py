"""What the registry says of methods without importing them, against the methods themselves."""

import dataclasses
import re
import subprocess
import sys

import pytest
from schedopt.core.search.method_spec import parse_method
from schedopt.core.search.registry import (
    BUDGET_EXAMPLE,
    DEFAULT_METHOD,
    EXAMPLE,
    FLAGS,
    INPUT_METHOD,
    METHODS,
    default_devices,
    listed,
    load,
    methods_where,
    parameters_class,
)


@pytest.mark.parametrize("name", METHODS)
def test_every_flag_is_a_parameter_and_every_parameter_says_what_it_is(name):
    fields = {field.name: field for field in dataclasses.fields(parameters_class(name))}
    assert set(METHODS[name].flags) == FLAGS.keys() & fields.keys()
    assert all(field.metadata["help"] for field in fields.values())
    assert callable(load(name))


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


def test_names_are_listed_as_in_a_sentence():
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a or b"
    assert listed("abc", "and") == "a, b and c"


def test_the_registry_imports_no_method():
    code = "import sys, schedopt.core.search.registry; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "schedopt.core.search.registry" in loaded
    assert not [name for name in loaded if name.startswith(("numpy", "schedopt.core.solvers", "schedopt.policies"))]
