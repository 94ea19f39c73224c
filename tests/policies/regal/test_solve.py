"""The methods `regal`, `gas` and `idrs`: their budget, their weights, and what the network decides."""

import threading
import time
from typing import get_args

import naive
import numpy as np
import pytest
import torch
from models.networks import write_regal_weights, write_weights
from models.small_graphs import sketch
from schedopt import Device, FormatError, Machine, Problem, Search, UsageError
from schedopt.core.kernels.placements import random_keys
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.search.method_spec import parse_method
from schedopt.core.search.registry import load
from schedopt.core.search.search import Watcher
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements import brkga
from schedopt.core.solvers.placements.brkga import GeneDistribution
from schedopt.core.solvers.placements.chromosomes import Chromosomes
from schedopt.policies.networks import shipped
from schedopt.policies.networks.network import write_network
from schedopt.policies.regal import features as multigraph
from schedopt.policies.regal import solve as regal
from schedopt.policies.regal.actions import ActionParameters, Taken
from schedopt.policies.regal.features import searched_graph
from schedopt.policies.regal.network import load_network
from torch import nn

pytestmark = pytest.mark.usefixtures("tiny_shipped")

METHODS = ("regal", "gas", "idrs")
ENCODER = {"regal": "gnn", "gas": "lstm", "idrs": "gnn"}


def problem_of(task="runtime", devices=2, ops=30, seed=1, **values):
    return Problem(naive.random_graph(np.random.default_rng([190, seed]), ops)[0], task, devices, **values)


def steps_of(result):
    schedule = result.schedule
    return [column.tolist() for column in (schedule.items, schedule.sources, schedule.targets)]


@pytest.fixture
def priced(monkeypatch):
    """How many rows each call priced, and whether a crossover came before it; the warm-up's are left out."""
    rows, crossed = [], []
    price, cross = Chromosomes.price, random_keys.cross

    def recorded(self, population):
        if self.graph.num_ops > 4:
            rows.append((len(population), bool(crossed)))
        crossed.clear()
        return price(self, population)

    def crossing(*arguments):
        crossed.append(True)
        cross(*arguments)

    monkeypatch.setattr(Chromosomes, "price", recorded)
    monkeypatch.setattr(brkga, "cross", crossing)
    return rows


FEATURES = [(100, False), (80, True), (80, True), (80, True), (60, True)]


@pytest.mark.parametrize(
    ("method", "text", "evaluations", "features", "rest"),
    [
        ("regal", "", 1000, FEATURES, [(100, False), *[(80, True)] * 6, (20, True)]),
        ("gas", "", 600, [*FEATURES[:3], (40, True)], [(100, False), (80, True), (80, True), (40, True)]),
        ("idrs", "", 1000, FEATURES, [(100, False)] * 6),
        ("regal", ":features=120", 250, [(100, False), (20, True)], [(100, False), (30, True)]),
        ("idrs", ":features=50", 211, [(50, False)], [(100, False), (61, False)]),
        ("regal", "", 7, [(3, False)], [(4, False)]),
        ("regal", "", 1, [(1, False)], []),
        ("idrs", "", 2, [(1, False)], [(1, False)]),
    ],
)
def test_the_budget_is_kept_exactly(priced, method, text, evaluations, features, rest):
    """The features take theirs, at most half; what is left is a run of its own, without a crossover for idrs."""
    result = solve(problem_of(), method + text, evaluations=evaluations)
    assert result.evaluations == evaluations
    assert priced == features + rest
    assert (result.found_by, result.notes, result.is_repeatable) == (method, (), True)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("task", "devices"), [("memory", 2), ("runtime", 3)])
def test_the_result_depends_on_the_seed_alone(method, task, devices):
    problem = problem_of(task, devices, memory_limit=150, bandwidth=1e6)
    results = [solve(problem, method, evaluations=700, seed=3, jobs=jobs) for jobs in (1, 2, 5)]
    assert all(steps_of(result) == steps_of(results[0]) for result in results)
    assert steps_of(solve(problem, method, evaluations=700, seed=4)) != steps_of(results[0])


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 5, 8])
@pytest.mark.parametrize("method", METHODS)
def test_two_to_eight_devices(method, devices, tmp_path):
    for task in ("memory", "runtime"):
        shape = {"task": task, "devices": devices, "actions": ActionParameters(2, 4, 3, 2)}
        file = write_regal_weights(tmp_path / f"{task}.safetensors", encoder=ENCODER[method], **shape)
        problem = problem_of(task, devices, ops=15)
        search = Search(problem, max_evaluations=300)
        load(method)(search, parse_method(f"{method}:weights={file}").parameters)
        verify(problem, search.best)
        assert search.evaluations == 300


@pytest.fixture
def distributions(monkeypatch):
    """The distributions that runs drew from, the plain ones of the features left out."""
    seen = []
    fill = GeneDistribution.fill

    def recorded(self, rng, mutants):
        if np.ndim(self.alpha) and mutants.shape[1] > 50:  # not the warm-up's
            seen.append(self)
        return fill(self, rng, mutants)

    monkeypatch.setattr(GeneDistribution, "fill", recorded)
    return seen


def certain_weights(path, levels, **shape):
    """Write weights that choose the same level of each head for every op, for sure."""
    write_regal_weights(path, **shape)
    network = load_network(path)
    with torch.no_grad():
        network.choose.layers[2].weight.zero_()
        biases = [100.0 * nn.functional.one_hot(torch.tensor(level), k) for level, k in zip(*levels, strict=True)]
        network.choose.layers[2].bias.copy_(torch.cat(biases))
    write_network(path, network)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("method", ["regal", "idrs"])
@pytest.mark.parametrize("actions", get_args(Taken))
def test_the_levels_that_are_chosen_are_drawn_from(method, actions, distributions, tmp_path):
    """k = 5, placement: means 1/6 and 1/2, variances of levels 4 and 1; the latter pair is uniform."""
    levels = ((0, 4, 2, 1), (5, 5, 5, 5))
    file = certain_weights(tmp_path / "certain.safetensors", levels, actions=ActionParameters(5, 0))
    problem = problem_of(ops=20)
    solve(problem, f"{method}:weights={file}:actions={actions}", evaluations=900)
    chosen = distributions[-1]
    assert chosen.alpha[:40:2] == pytest.approx(np.full(20, 1 / 6 / 5))
    assert chosen.beta[:40:2] == pytest.approx(np.full(20, 5 / 6 / 5))
    assert (chosen.alpha[1:40:2] == 1).all()
    assert (chosen.alpha[40:] == 1).all()
    assert (chosen.bias == 0.7).all()


@pytest.mark.slow
def test_uniform_choices_are_plain_brkga(tmp_path):
    """From the state of the random numbers after the features, the same mutants and children."""
    levels = ((2, 1), (5, 5))
    file = certain_weights(tmp_path / "uniform.safetensors", levels, actions=ActionParameters(0, 5))
    problem = problem_of(ops=40)
    result = solve(problem, f"regal:weights={file}:actions=most-likely", evaluations=2000, seed=2)
    search = Search(problem, seed=2, max_evaluations=2000)
    searched_graph(search, 400)
    brkga.solve(search, brkga.Parameters())
    assert steps_of(result) == [column.tolist() for column in vars(search.best).values()]


@pytest.mark.slow
def test_the_weights_say_which_actions_are_taken(tmp_path):
    """Unless the method does."""
    kinds, found = get_args(Taken), {}
    for taken in kinds:
        file = write_regal_weights(tmp_path / f"{taken}.safetensors", taken=taken)
        for actions in ("", *kinds):
            parameters = regal.Parameters(weights=str(file), actions=actions)
            search = Search(problem_of(), seed=1, max_evaluations=450)
            found[taken, actions] = regal.propose(search, parameters).alpha.tolist()
    for taken in kinds:
        assert [kind for kind in kinds if found[taken, kind] == found[taken, ""]] == [taken]


@pytest.mark.parametrize(
    ("method", "shape", "message"),
    [
        ("regal", {"devices": 3}, "for runtime on 3 devices, not for runtime on 2; schedopt train regal"),
        ("idrs", {"task": "memory"}, "for memory on 2 devices, not for runtime on 2; .* train regal --task runtime"),
        ("gas", {"encoder": "lstm", "devices": 4}, "runtime on 4 devices.* train gas --task runtime --devices 2"),
        ("gas", {}, "these weights are of schedopt train regal, not of schedopt train gas"),
        ("regal", {"encoder": "lstm"}, "these weights are of schedopt train gas, not of schedopt train regal"),
        ("idrs", {"encoder": "lstm"}, "these weights are of schedopt train gas, not of schedopt train regal"),
    ],
)
def test_weights_for_something_else_are_refused_before_any_evaluation(method, shape, message, tmp_path, priced):
    file = write_regal_weights(tmp_path / "other.safetensors", **shape)
    with pytest.raises(UsageError, match=message) as refusal:
        solve(problem_of(), f"{method}:weights={file}", evaluations=100)
    assert "\n" not in str(refusal.value)
    assert priced == []


def test_weights_that_are_not_installed(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="regal has no weights for memory on 5 devices, only for memory on 2 devices"):
        solve(problem_of("memory", 5), "regal")
    with pytest.raises(UsageError, match=r"for memory on 9 devices, .*; there can be some for 2 to 8 devices$"):
        solve(problem_of("memory", 9), "idrs")
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    write_weights(tmp_path / "topoformer-layered.safetensors")
    for method, train in (("regal", "regal"), ("gas", "gas"), ("idrs", "regal")):
        with pytest.raises(UsageError, match=f"{train} has no weights: .*schedopt train {train} makes some, --weights"):
            parse_method(method)


def test_shipped_weights_are_chosen_by_what_they_are_for(tmp_path, monkeypatch):
    """By task, devices and encoder; of several the first by name, and any by its name."""
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    for name, shape in {
        "regal-a": {"task": "memory"},
        "regal-b": {"devices": 3},
        "regal-c": {},
        "regal-c-transfers": {},
        "regal-d": {"actions": ActionParameters(0, 2)},
        "gas-a": {"encoder": "lstm"},
    }.items():
        write_regal_weights(tmp_path / f"{name}.safetensors", **shape)
    problems = [problem_of("memory", 2), problem_of("runtime", 3), problem_of("runtime", 2)]
    assert [regal.Parameters().file(problem).stem for problem in problems] == ["regal-a", "regal-b", "regal-c"]
    assert regal.Parameters(weights="regal-d").file(problems[2]).stem == "regal-d"
    assert parse_method("gas").parameters.file(problems[2]).stem == "gas-a"


def test_files_that_are_no_weights_are_refused_when_they_are_named(tmp_path):
    with pytest.raises(FormatError, match="absent: cannot be read"):
        parse_method(f"regal:weights={tmp_path / 'absent'}")
    with pytest.raises(FormatError, match=r"is a folder; name the weights in it, as .*/weights\.safetensors"):
        parse_method(f"regal:weights={tmp_path}")
    file = write_weights(tmp_path / "topoformer.safetensors")
    with pytest.raises(FormatError, match=r"is not a file of schedopt train regal"):
        parse_method(f"idrs:weights={file}")


def test_a_graph_too_large_for_the_network_gets_plain_brkga_and_a_note(monkeypatch):
    monkeypatch.setattr(regal, "MOST_EDGES", 10)
    result = solve(problem_of(), "regal", evaluations=900)
    assert result.evaluations == 900
    (note,) = result.notes
    assert "edges are too many for regal's network, which takes 10; all genes are drawn as plain brkga draws" in note


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupt_within_the_network_is_heard(method):
    problem, calls = problem_of(), []
    count = Watcher(on_progress=lambda search: calls.append(search.evaluations))
    solve(problem, method, evaluations=500, watcher=count)
    within = [at for at, spent in enumerate(calls, start=1) if spent == 250]
    assert len(within) > 5
    for last in (within[2], within[-2]):
        interrupt, seen = threading.Event(), []

        def watch(search, last=last, seen=seen, interrupt=interrupt):
            seen.append(search)
            if len(seen) == last:
                interrupt.set()

        result = solve(problem, method, evaluations=500, watcher=Watcher(interrupt, watch))
        assert (result.status, result.evaluations) == ("interrupted", 250)
        assert problem.value(*simulated(problem, result)) == result.value


def simulated(problem, result):
    totals = simulate(problem, result.schedule)
    return totals.peak, totals.runtime


def test_the_features_take_half_of_the_time_at_most(priced, monkeypatch):
    """Where a generation takes a second of four, the first two are for the features."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    price = Chromosomes.price

    def slowly(self, population):
        now[0] += 1.0
        return price(self, population)

    monkeypatch.setattr(Chromosomes, "price", slowly)
    search = Search(problem_of(), deadline=4.0)
    regal.solve(search, regal.Parameters())
    assert priced == [*FEATURES[:2], (100, False), (80, True)]
    assert (search.notes, search.timed_out) == ([], True)


@pytest.mark.parametrize("method", ["brkga", *METHODS])
def test_plans_that_all_need_a_link_that_devices_lack_give_way_to_another(method):
    chain = sketch(";".join(f"op{op}: {f'op{op - 1}' * (op > 0)} -> 8 us=3" for op in range(40)))
    machine = Machine((Device("a"), Device("b", speed=0.5)), bandwidth=0.0)
    result = solve(Problem(chain, "runtime", machine=machine), parse_method(method), evaluations=100)
    why = f"every plan that {method} tried needs a link that the devices lack"
    assert result.notes[0] == f"graph: {why}; this is a list schedule"
    assert result.value == 120.0


def test_a_note_says_that_time_ended_before_the_network_ran(monkeypatch):
    def late(search, evaluations, until):
        graph = searched_graph(search, evaluations)
        search.deadline = 0.0
        return graph

    monkeypatch.setattr(multigraph, "searched_graph", late)
    search = Search(problem_of(), deadline=1e9)
    regal.solve(search, regal.Parameters())
    assert search.evaluations == 400
    (note,) = search.notes
    assert "there was no time for regal's network; this is what plain brkga found" in note
