"""`schedopt methods`: all of the registry, with parameters."""

import json

from schedopt.core.search.registry import EXAMPLE, METHODS


def test_methods_lists_each_with_its_parameters(run):
    rows = json.loads(run("methods", "--json").stdout)
    assert [row["name"] for row in rows] == list(METHODS)
    assert next(r for r in rows if r["name"] == "approximate-dp")["parameters"]["beam_size"]["default"] == 10_000
    table = run("methods").stdout
    assert all(name in table for name in METHODS)
    assert f"--method {EXAMPLE} " in table
