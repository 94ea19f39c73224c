"""What is said of a peak on one device and of a makespan: what is proven, who holds it, and what it waits for."""

from dataclasses import replace

import numpy as np
import pytest
import schedopt
from models import small_graphs
from models.seeds import seeds
from models.small_graphs import chain_of, sketch, training_step
from naive import machines
from naive.graphs import random_graph
from schedopt import Machine, Problem, Schedule
from schedopt.core.bounds.bounds import memory_bound, path_and_work, recomputation_bound
from schedopt.core.graph.annotations import NO_ANNOTATIONS, Annotations, Resident
from schedopt.core.model.simulator import simulate
from schedopt.core.report.explanation import (
    DEVICE,
    INPUT,
    LINK,
    TURN,
    WIDTH,
    _recomputation,
    critical_chain,
    explain,
    explain_makespan,
    held_at,
    infeasible_reason,
    runs_again,
)
from schedopt.core.report.memory_by_role import alive_at_peak


def branches(annotations=NO_ANNOTATIONS, persistent=0, skip=0):
    """Two branches of one input, all wide before the first is narrow: 10 + 8 + 8 KiB, branch by branch 10 + 8 + 1."""
    sizes, join = (10 * 1024, 8 * 1024, 1024), f"1024f {skip}f"
    return small_graphs.branches(sizes=sizes, us=(0, 0, 0, 0), join=join, keep=persistent, annotations=annotations)


def explained(graph, *bounds):
    """What is said of program order."""
    problem, schedule = Problem(graph), Schedule.single_device(np.arange(graph.num_ops))
    return explain(problem, schedule, simulate(problem, schedule), *bounds)


def test_an_order_that_is_better_and_optimal():
    first, second, third = schedopt.solve(branches()).explain().splitlines()
    assert first == "No order needs less than 19.0 KiB (proven); program order needs 26.0 KiB."
    assert second == "Peak: start 10.0 KiB (53%), wide1 8.00 KiB (42%), narrow1 1.00 KiB (5%)."
    assert third == "Even with recomputation nothing goes below 18.0 KiB (op wide1)."


def test_program_order_that_is_already_optimal():
    explained = schedopt.solve(chain_of(5)).explain().splitlines()
    assert explained[0] == "Program order is already optimal: no order needs less than 9 B."
    assert explained[2] == "Recomputation cannot help: op4 alone needs as much."


def test_an_optimal_order_far_above_the_bound_of_recomputation_names_a_limit(tmp_path):
    layered = "examples/graphs/layered-50.pbtxt"
    said = schedopt.solve(layered, evaluations=1000).explain().splitlines()
    assert said[-1] == "Less than any order: --memory-limit 54% --recompute lets ops run again."
    machine = tmp_path / "one.yaml"  # on which recomputation is refused
    machine.write_text("devices: [{name: a, memory: 30MiB}]")
    assert schedopt.solve(layered, evaluations=1000, machine=machine).explain().splitlines()[: len(said)] == said[:-1]


def test_what_may_not_run_again_bounds_what_recomputation_gains():
    """The last op reads `a`, which is there while `c` runs, unless it may be made again."""
    text = "source -> 1; a: source -> 4000 once; b: a -> 10; c: b -> 6000; d: c -> 10; e: a d -> 10f"
    said = schedopt.solve(sketch(text)).explain().splitlines()[2:]
    assert said == ["Recomputation cannot help: c, with what cannot be made again, needs as much."]
    free, limit = schedopt.solve(sketch(text.replace("once", ""))).explain().splitlines()[2:]
    assert free == "Even with recomputation nothing goes below 5.87 KiB (op c)."
    assert limit.startswith("Less than any order: --memory-limit ")


def test_a_method_that_proves_nothing_claims_nothing():
    said = schedopt.solve(branches(), "input").explain().splitlines()[0]
    assert said == "No order better than program order was found; none is below 18.0 KiB (proven)."
    worse = explained(branches(), 20_000, 19_456)
    assert worse[0] == "Peak 26.0 KiB, program order 19.5 KiB; no order is below 19.0 KiB (proven)."


def test_the_bound_of_a_search_under_a_limit_is_not_that_of_all_orders():
    result = replace(schedopt.solve(branches(), memory_limit=1024), lower_bound=19.0 * 1024 + 5)
    assert result.status == "infeasible"
    result = replace(result, is_proven_infeasible=False)
    first = result.explain().splitlines()[0]
    assert first == "Peak 19.0 KiB, program order 26.0 KiB; no order is below 18.0 KiB (proven)."


def test_a_recomputation_that_could_save_little_is_said_to():
    graph = sketch("small -> 10; large -> 1000; join: small large -> 1", "held")
    least = explained(graph, 1011, 1000)
    assert least[2] == "Recomputation cannot help: join alone needs as much."
    assert _recomputation(1011, 1000, "join") == "Recomputation could save at most 11 B."


def test_tensors_are_named_in_the_users_words_and_resident_bytes_by_role():
    annotations = Annotations(
        modules=("", "left", "right", "left", "right", ""),
        lines=("m.py:1", "m.py:2", "m.py:2", "m.py:3", "m.py:3", "m.py:4"),
        residents=(
            Resident("left.weight", "parameter", 9000, 0),
            Resident("x", "input", 1000, 0),
            Resident("unread", "buffer", 5000, -1),
        ),
    )
    graph = branches(annotations, persistent=10_240)
    held = held_at(graph, alive_at_peak(Problem(graph), Schedule.single_device(graph.input_order)))
    assert {words for words, _ in held} == {
        "start [m.py:1]",
        "parameters",
        "wide1 [left, m.py:2]",
        "wide2 [right, m.py:2]",
        "inputs",
        "other persistent bytes",
    }


def test_what_stays_to_the_end_may_be_what_no_schedule_is_below():
    result = schedopt.solve(sketch("a -> 1024f; b -> 1024f; c -> 1024f; d -> 1024f", "results"))
    assert result.explain().splitlines()[2] == "Recomputation cannot help: what stays to the end is as much."


@pytest.mark.parametrize("seed", seeds(30, quick=4))
def test_the_held_bytes_are_the_peak_and_no_order_is_below_the_bounds(seed):
    graph, _ = random_graph(np.random.default_rng(seed), 12)
    result = schedopt.solve(graph, "dfs")
    held = held_at(graph, alive_at_peak(result.problem, result.schedule))
    assert sum(size for _, size in held) == result.peak_memory
    least, _ = recomputation_bound(graph)
    assert least <= memory_bound(Problem(graph)) <= result.lower_bound
    bounds = int(result.input_value), int(result.lower_bound)
    first, second, _ = explain(result.problem, result.schedule, result.simulation, *bounds)
    assert len(first) <= WIDTH
    assert len(second) <= WIDTH or len(held) == 1 or " more" in second


@pytest.mark.parametrize(("runtime", "said"), [(2.0, "layer2 +2 us"), (0.0, "layer2 +1 run")])
def test_what_runs_again_is_named(runtime, said):
    problem = schedopt.Problem(training_step(4, runtime=runtime), task="runtime", memory_limit=320, recompute=True)
    again = schedopt.Schedule.single_device([0, 1, 2, 3, 4, 5, 2, 6, 7, 8])
    assert runs_again(problem, again) == f"Runs again: {said}."
    assert runs_again(problem, schedopt.Schedule.single_device(range(9))) == ""
    often = schedopt.Schedule.single_device([0, 0, 0, 1, 1, *range(2, 9)])
    assert runs_again(problem, often).startswith("Runs again: layer0 +"), "what adds most comes first"
    result = schedopt.solve(problem, "recompute", evaluations=2000)
    assert result.explain() == runs_again(problem, result.schedule)
    assert result.explain().startswith("Runs again: ")


@pytest.mark.parametrize("seed", seeds(60, quick=8))
def test_the_critical_chain_adds_up_to_the_makespan(seed):
    rng = np.random.default_rng(seed)
    machine = machines.random_machine(rng, int(rng.integers(1, 5)), hosts=False)
    problem = Problem(machines.random_graph(rng, 14), task="runtime", machine=machine)
    schedule = machines.random_schedule(rng, problem)
    costs = simulate(problem, schedule)
    chain, graph = critical_chain(problem, schedule, costs), problem.graph
    assert sum(link.time for link in chain) == pytest.approx(costs.runtime)
    assert max(path_and_work(problem)) <= costs.runtime * (1 + 1e-9)
    end = 0.0
    for before, link in zip((None, *chain), chain, strict=False):
        assert costs.step_start[link.step] == end
        end = costs.step_end[link.step]
        if before is None:
            continue
        item, earlier = (int(schedule.items[at]) for at in (link.step, before.step))
        read = set(graph.inputs[1][slice(*graph.inputs[0][item : item + 2])].tolist()) if item >= 0 else {~item}
        made = set(graph.outputs(earlier)) if earlier >= 0 else {~earlier}
        ends = [{int(schedule.sources[at]), int(schedule.targets[at])} for at in (link.step, before.step)]
        assert ends[0] & ends[1]
        assert bool(read & made) or link.waits_for != INPUT
        assert link.waits_for not in (LINK, TURN) or (item < 0 and machine.transfers == "beside")
        assert link.waits_for != LINK or (machine.contention and ends[0] == ends[1] and earlier < 0)
    told = explain_makespan(problem, schedule, costs, 0.0, 0.0) if costs.runtime else ()
    assert all(len(said) <= WIDTH or " more" in said for said in told[2:])


def test_a_makespan_is_told_by_what_its_critical_chain_runs_and_waits_for():
    ops = "long -> 1000000 us=6; short -> 1000000 us=2; other -> 1000000 us=3; join: long short -> 8 us=1"
    two = Machine.equal(2, bandwidth=1e12, latency=1.0)
    schedule = Schedule.from_steps([2, 1, 0, ~1, 3], [1, 1, 0, 1, 0], [1, 1, 0, 0, 0])
    problem = Problem(sketch(ops, "two"), task="runtime", machine=two)
    costs = simulate(problem, schedule)
    assert [(link.name, link.waits_for) for link in critical_chain(problem, schedule, costs)] == [
        ("long", DEVICE),
        ("short:0 to device 0", DEVICE),
        ("join", INPUT),
    ]
    assert explain_makespan(problem, schedule, costs, 12.0, 7.0) == (
        "Makespan 9 us, program order 12 us; no schedule is below 7 us (proven).",
        "The longest path takes 7 us, all work on 2 devices 6 us.",
        "Critical chain: 78% on device 0, 22% transfers.",
        "Its steps wait: 67% for a busy device, 22% for their inputs.",
        "Longest on it: long 6 us (67%), short:0 to device 0 2 us (22%), 1 more.",
    )
    assert explain_makespan(problem, schedule, costs, 12.0, 9.0)[0].startswith("No schedule takes less than 9 us (")
    result = schedopt.solve(sketch(ops, "two"), "heft", task="runtime", bandwidth=1e12, latency=1.0)
    assert result.explain().splitlines()[2].startswith("Critical chain: ")


def graph_with_weights():
    return sketch(f"a -> {3 * 2**20} keep={2**20}; b: a -> {2**20}", "net")


def test_the_sentence_names_the_limit_what_is_needed_and_the_weights():
    problem = Problem(graph_with_weights(), memory_limit=4 * 2**20)
    assert infeasible_reason(problem, 0) == (
        "no order of net fits in 4.00 MiB: every order needs at least 5.00 MiB, of which 1.00 MiB are weights"
    )
    assert "5.25 MiB" in infeasible_reason(problem, 5.25 * 2**20)
    assert infeasible_reason(Problem(graph_with_weights(), memory_limit=6 * 2**20), 0) == ""
    assert infeasible_reason(Problem(graph_with_weights()), 0) == ""


def test_on_several_devices_it_is_each_that_is_too_small():
    problem = Problem(graph_with_weights(), "runtime", devices=2, memory_limit=2**20)
    assert infeasible_reason(problem, 10.0) == (
        "no schedule on 2 devices of net fits in 1.00 MiB each: every schedule needs at least 4.00 MiB on one of them"
    )


def test_a_search_of_all_that_ended_without_one_is_a_proof():
    problem = Problem(graph_with_weights(), "runtime", devices=2, memory_limit=4 * 2**20)
    assert infeasible_reason(problem, float("inf")).endswith("fits in 4.00 MiB: a search of all ended without one")
