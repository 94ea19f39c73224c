"""The method `direct`: its budget, its weights, and what it does without its network."""

import dataclasses
import subprocess
import sys

import naive
import numpy as np
import pytest
from models.networks import write_direct_weights
from naive.machines import random_graph, random_machine
from schedopt import Device, FormatError, Machine, Problem, Search, UsageError
from schedopt.core.model.verifier import verify
from schedopt.core.search.method_spec import parse_method
from schedopt.core.solve.solve import solve
from schedopt.policies.direct import keys
from schedopt.policies.direct import solve as direct

pytestmark = pytest.mark.usefixtures("tiny_shipped")


def typed(ops=30, each=1):
    """Return a problem whose ops run on one of two types of device each, or on both."""
    graph = naive.random_graph(np.random.default_rng([191, 1]), ops)[0]
    able = [(1.0, None), (None, 1.0), (1.0, 2.0)]
    times = {name: dict(zip("xy", able[at % 3], strict=True)) for at, name in enumerate(graph.op_names)}
    devices = tuple(Device(f"{kind}{at}", kind) for kind in "xy" for at in range(each))
    return Problem(graph, "runtime", machine=Machine(devices, op_times=times))


def problem_of(task="runtime", devices=2, ops=30, seed=1, **values):
    return Problem(naive.random_graph(np.random.default_rng([191, seed]), ops)[0], task, devices, **values)


@pytest.mark.slow
@pytest.mark.parametrize("each", [1, 2, 6])
def test_one_file_serves_all_numbers_of_devices(each, tmp_path):
    named, problem = f":weights={write_direct_weights(tmp_path / 'w.safetensors')}", typed(each=each)
    once = solve(problem, f"direct:decode=greedy{named}")
    best = solve(problem, f"direct{named}", seed=3)
    assert best.value <= once.value
    assert best.value == solve(problem, f"direct{named}", seed=3).value


def test_the_budget_is_a_decode_per_row():
    problem = problem_of(bandwidth=1e6)
    for text, evaluations, spent in (
        ("direct:decode=greedy", None, 1),
        ("direct", None, 16),
        ("direct:width=5", None, 5),
        ("direct", 3, 3),
    ):
        assert solve(problem, text, evaluations=evaluations).evaluations == spent


@pytest.mark.parametrize("decoded", ["direct", "direct:width=2"])
def test_the_best_of_several_is_no_worse_than_one_device(decoded):
    problem = problem_of(latency=1e6)
    assert solve(problem, "direct:decode=greedy").value > problem.graph.runtime.sum()
    assert solve(problem, decoded).value == pytest.approx(problem.graph.runtime.sum())


@pytest.mark.parametrize("transfers", ["blocking", "beside"])
@pytest.mark.parametrize("task", ["runtime", "memory"])
def test_plans_on_machines_are_valid_and_no_worse_than_one_device(task, transfers):
    rng = np.random.default_rng(9)
    for _ in range(2):
        machine = random_machine(rng, 3, transfers=transfers, hosts=False)
        problem = Problem(random_graph(rng, 12, residents=2), task, machine=machine)
        one = solve(problem, "input")
        for text in ("direct", "direct:decode=greedy", "direct:decode=rule"):
            result = solve(problem, text, seed=1)
            verify(problem, result.schedule)
            if task == "runtime":
                assert result.value <= one.value * (1 + 1e-9)


def test_a_machine_without_links_and_weights_with_a_home():
    machine = Machine((Device("a"), Device("b", speed=3.0)), bandwidth=0.0)
    graph = random_graph(np.random.default_rng(10), 12, residents=2)
    assert solve(Problem(graph, "runtime", machine=machine), "direct").status in ("feasible", "optimal")
    assert solve(Problem(graph, "runtime", 2, bandwidth=1e6), "direct:decode=greedy").is_feasible


def test_list_scheduling_heeds_the_clock_and_leaves_memory_to_its_decoder(monkeypatch):
    plain = Machine((Device("a", "x"), Device("b", "y", speed=3.0)))
    limited = Machine((Device("a", "x", 2**40), Device("b", "y", speed=3.0)))
    graph, rows = random_graph(np.random.default_rng(10), 12, residents=0), np.random.default_rng(0).random((40, 13))
    one, other = (Problem(graph, "runtime", machine=machine) for machine in (plain, limited))
    assert [len(keys._as_started(Search(problem), rows)) for problem in (one, other)] == [keys.MOST_PLACED, 40]
    monkeypatch.setattr(keys, "OPS_AT_ONCE", 5 * 13)
    search = Search(other)
    search.interrupt.set()
    assert len(keys._as_started(search, rows)) == 5


@pytest.mark.parametrize("task", ["runtime", "memory"])
def test_without_weights_that_fit_the_rule_is_drawn_around_and_needs_no_network(task, monkeypatch):
    monkeypatch.setattr(direct, "_keys", None)
    problem = problem_of(task)
    rule = solve(problem, "direct:decode=rule").value
    assert solve(problem, "direct:decode=greedy").value == rule
    assert solve(problem, "direct", seed=3).value < rule
    assert solve(typed(), "direct:decode=rule").is_feasible


def test_direct_without_weights_that_fit_does_without_torch():
    script = """import sys; import schedopt
b = schedopt.GraphBuilder("g"); b.add_op("a", outputs=[4], runtime=1); b.add_op("b", inputs=[(0, 0)], runtime=1)
schedopt.solve(schedopt.Problem(b.build(), "runtime", 2), method="direct"); sys.exit("torch" in sys.modules)"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_graph_too_large_for_the_network_gets_the_rule(monkeypatch):
    monkeypatch.setattr(direct, "MOST_EDGES", 5)
    found, rule = (solve(typed(), f"direct:decode={decode}") for decode in ("greedy", "rule"))
    assert found.value == rule.value
    assert any("are too many for direct's network" in note for note in found.notes)


def test_a_search_that_is_stopped_within_the_network_gets_the_rule(monkeypatch):
    search = Search(typed())
    asked = iter([False, True])
    monkeypatch.setattr(search, "exhausted", lambda: next(asked, False))
    direct.solve(search, parse_method("direct:decode=greedy").parameters)
    assert search.best_value == solve(typed(), "direct:decode=rule").value
    assert "there was no time for direct's network" in search.notes[0]


def test_weights_that_do_not_fit_are_refused():
    with pytest.raises(FormatError, match="no such file, and no weights of this name"):
        parse_method("direct:weights=nowhere")
    machine = dataclasses.replace(typed().machine, bandwidth=1e6)
    for problem in (problem_of(), problem_of("memory"), Problem(typed().graph, "runtime", machine=machine)):
        with pytest.raises(UsageError, match="weights of direct are for makespans where transfers are free"):
            solve(problem, "direct:weights=direct-runtime-types")
