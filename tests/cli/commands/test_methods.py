"""`schedopt methods`: all of the registry, with parameters."""

import json
import re

import pytest
from schedopt.core.search.registry import EXAMPLE, METHODS


def test_methods_lists_each_with_its_parameters(run):
    rows = json.loads(run("methods", "--json").stdout)
    assert [row["name"] for row in rows] == list(METHODS)
    assert next(r for r in rows if r["name"] == "approximate-dp")["parameters"]["beam_size"]["default"] == 10_000
    table = run("methods").stdout
    assert all(name in table for name in METHODS)
    assert f"--method {EXAMPLE}\n" in table


def test_one_method_with_what_each_parameter_means(run):
    printed = " ".join(run("methods", "brkga").stdout.split())
    document = json.loads(run("methods", "brkga", "--json").stdout)
    assert document["name"] == "brkga"
    for name, field in document["parameters"].items():
        assert " ".join(f"{name} │ {field['default']} │ {field['help']}".split()) in printed
    assert "no parameters" in run("methods", "input").stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_each_method_has_an_example_that_says_a_value(run, name):
    *_, last = run("methods", name).stdout.splitlines()
    assert last == "It has no parameters." or re.fullmatch(rf"Set them as in --method {name}:\w+=\S+", last)
