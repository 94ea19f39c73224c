"""`schedopt warm-up`: every method for all that it solves; and the note of what is compiled."""

import json
import time

from schedopt.cli import progress
from schedopt.cli.console import Output
from schedopt.core.search import warm_up
from schedopt.core.search.registry import METHODS


def test_every_method_is_compiled_for_each_kind_of_problem_that_it_solves(run, monkeypatch):
    done = set()
    monkeypatch.setattr(
        warm_up,
        "warm_up",
        lambda problem, spec: done.add((spec.name, problem.task, problem.devices, problem.recompute)),
    )
    result = run("warm-up", "--json")
    assert (result.exit_code, set(json.loads(result.stdout))) == (0, {"compiled"})
    assert {name for name, *_ in done} == set(METHODS)
    assert {("auto", "memory", 1, False), ("auto", "runtime", 2, False), ("auto", "runtime", 1, True)} <= done
    assert ("regal", "memory", 1, False) not in done


def test_the_note_names_the_kernel_and_the_remedy_once(monkeypatch, capsys):
    import numba

    monkeypatch.setattr(progress, "_COMPILING_AFTER", 0.0)
    with progress.compiling(Output()):
        assert numba.njit(lambda number: number + 1)(1) == 2
        assert numba.njit(lambda number: number + 2)(1) == 3
        time.sleep(0.05)
    said = capsys.readouterr().err
    assert said.count("compiling kernels") == 1
    assert "lambda" in said
    assert "schedopt warm-up" in said


def test_nothing_is_said_where_nothing_is_compiled(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_COMPILING_AFTER", 0.0)
    with progress.compiling(Output()):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""
