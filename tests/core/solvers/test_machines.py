"""Methods on machines: against every plan of small ones, and each plan against the verifier."""

from dataclasses import replace

import numpy as np
import pytest
from models.small_graphs import sketch
from naive.machines import least_makespan, random_graph, random_machine
from schedopt import Device, GraphBuilder, Machine, Problem, Schedule, ScheduleError, Search, UsageError
from schedopt.core.bounds.bounds import lower_bound
from schedopt.core.graph.annotations import Annotations, Resident
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.search.method_spec import parse_method
from schedopt.core.search.plans import Plans, topological
from schedopt.core.search.registry import METHODS as METHODS_
from schedopt.core.search.registry import load
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements import annealing
from schedopt.core.solvers.placements.clusters import clusters_of
from schedopt.core.solvers.placements.first_fit_devices import filled_placements
from schedopt.core.solvers.placements.plan_annealing import Repair
from schedopt.core.solvers.portfolio import parts


def small_problem(rng):
    while True:
        machine = random_machine(rng, int(rng.integers(1, 4)))
        if any(device.speed for device in machine.devices):
            graph = random_graph(rng, int(rng.integers(1, 4 if len(machine.devices) > 2 else 5)), residents=1)
            return Problem(graph, "runtime", machine=machine, replicate=bool(rng.random() < 0.3))


def annealed(problem, evaluations):
    search = Search(problem, max_evaluations=evaluations, lower_bound=lower_bound(problem))
    annealing.solve(search, annealing.Parameters())
    verify(problem, search.best, runtime=search.best_simulation.runtime)
    return search.best_value


@pytest.mark.parametrize(("count", "seed"), [(20, 1), pytest.param(500, 2, marks=pytest.mark.slow)])
def test_annealing_finds_the_best_of_all_plans(count, seed):
    """Nearly always at once; no bound and no plan is below it."""
    rng = np.random.default_rng(seed)
    at_once = 0
    for _ in range(count):
        problem = small_problem(rng)
        least = least_makespan(problem)
        assert lower_bound(problem) <= least * (1 + 1e-9)
        value = annealed(problem, 2000)
        at_once += value <= least * (1 + 1e-9)
        value = min(value, annealed(problem, 40_000)) if value > least * (1 + 1e-9) else value
        assert value == pytest.approx(least, rel=1e-9)
    assert at_once >= 0.98 * count


def towers(count, height):
    """Chains that begin at one op: what is sent takes six times as long as an op, so that no op leaves alone."""
    builder = GraphBuilder("towers")
    builder.add_op("source", outputs=[300], runtime=1.0)
    for op in range(count * height):
        tower, level = divmod(op, height)
        builder.add_op(f"{tower}/{level}", inputs=[(op if level else 0, 0)], outputs=[300], runtime=50.0)
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_groups_of_ops_leave_together_without_a_limit(seed):
    devices = tuple(Device(name, "gpu") for name in "abcd")
    machine = Machine(devices, np.full((4, 4), 1e6), np.zeros((4, 4)), transfers="blocking")
    problem = Problem(towers(4, 60), "runtime", machine=machine)
    alone = problem.graph.runtime.sum()
    assert solve(problem, "annealing", evaluations=3000, seed=seed).value < 0.8 * alone


def test_auto_partitions_and_lists_on_several_devices():
    for settings in ({"devices": 2, "bandwidth": 1e9}, {"machine": Machine.equal(2, 1e9)}):
        used = parts(Problem(chain_of_two(True), "runtime", **settings), is_counted=False)
        assert {"heft", "gp-dfs", "annealing"} <= set(used)


METHODS = [name for name, m in METHODS_.items() if not m.memory_on_one_device_only and m.recomputation != "only"]


def random_problem(rng, task):
    while True:
        machine = random_machine(rng, 3, limits=bool(rng.random() < 0.5))
        if sum(device.speed > 0 for device in machine.devices) > 1:
            graph = random_graph(rng, 12, residents=2)
            return Problem(graph, task, machine=machine, replicate=bool(rng.random() < 0.3))


@pytest.mark.parametrize(
    "name", [m for m in METHODS if m not in ("topoformer", "regal", "gas", "idrs", "direct", "brkga-tuned", "cp-sat")]
)
@pytest.mark.parametrize("task", ["runtime", "memory"])
def test_every_method_gives_plans_that_the_verifier_takes(name, task):
    rng = np.random.default_rng([1, len(name)])
    for seed in range(6):
        problem = random_problem(rng, task)
        search = Search(problem, seed=seed, max_evaluations=100, lower_bound=lower_bound(problem))
        load(name)(search, parse_method(name).parameters)
        costs = search.best_simulation
        totals = verify(problem, search.best, runtime=costs.runtime, enforce_limit=False)
        assert totals.peak_per_device == costs.peak_per_device.tolist()
        assert search.best_value >= lower_bound(problem) * (1 - 1e-9)


@pytest.mark.slow
def test_auto_is_never_worse_than_one_device_or_a_list_scheduler():
    rng = np.random.default_rng(5)
    for _ in range(10):
        problem = random_problem(rng, "runtime")
        found = {}
        for name in ("auto", "heft", "peft", "cpop", "input"):
            search = Search(problem, max_evaluations=200, lower_bound=lower_bound(problem))
            load(name)(search, parse_method(name).parameters)
            found[name] = search.best_fitness
        assert found["auto"] == min(found.values())


@pytest.mark.slow
def test_filled_devices_keep_pins_groups_and_limits():
    """Every op is where it may be, groups are together, and what fits in an empty machine is kept below the limit."""
    rng = np.random.default_rng(6)
    for _ in range(40):
        problem = random_problem(rng, "runtime")
        rules = problem.rules
        for placement in filled_placements(problem):
            assert rules.allowed[np.arange(problem.graph.num_ops), placement].all()
            assert (placement[rules.group] == placement).all()
    wide = sketch("; ".join(f"op{number} -> 10f us=1" for number in range(8)), "wide")
    devices = (Device("fast", memory=45, speed=4.0), Device("slow", memory=45))
    problem = Problem(wide, "runtime", machine=Machine(devices, 1e9))
    assert next(filled_placements(problem)).tolist() == [0] * 4 + [1] * 4


def test_auto_keeps_the_limits_of_devices_that_a_division_keeps():
    builder = GraphBuilder("wide")
    before = [builder.add_op(f"op{number}", outputs=[10], runtime=1.0, final=True) for number in range(30)]
    builder.add_op("last", control=before, outputs=[1], runtime=1.0)
    devices = (Device("fast", memory=170, speed=100.0), Device("slow", memory=170))
    problem = Problem(builder.build(), "runtime", machine=Machine(devices, 1e9))
    assert solve(problem, "heft").status == "limit-not-met"
    assert solve(problem, "auto", evaluations=100).status == "feasible"


def relieved(problem, placement):
    """Return where ops are after repair in the input order, and what prices a placement."""
    plans = Plans(problem)
    plan = plans.plan(problem.graph.input_order)
    repair = Repair(Search(problem), plans, clusters_of(problem))
    return repair.repaired(plan, placement), lambda where: plans.price(plan, where)[1]


@pytest.mark.slow
def test_repair_keeps_pins_and_groups_and_never_exceeds_limits_more():
    rng = np.random.default_rng(7)
    relieved_some = 0
    for _ in range(40):
        problem = random_problem(rng, "runtime")
        plans = Plans(problem)
        if not plans.may_exceed:
            continue
        for start in plans.placements_of_one_device():
            placement, price = relieved(problem, start)
            rules = problem.rules
            assert rules.allowed[np.arange(problem.graph.num_ops), placement].all()
            assert (placement[rules.group] == placement).all()
            if np.isfinite(price(start).runtime):
                assert price(placement).excess <= price(start).excess
                relieved_some += price(placement).excess < price(start).excess
    assert relieved_some > 5


@pytest.mark.slow
def test_cp_sat_proves_the_best_of_all_plans():
    """From a poor hint; but where times have no common unit: nearly."""
    rng = np.random.default_rng(12)
    for _ in range(100):
        problem = small_problem(rng)
        if problem.devices == 1:
            continue
        least = least_makespan(problem)
        result = solve(problem, "cp-sat:hint=0", time_limit=60)
        assert result.value == pytest.approx(least, rel=1e-9)
        assert least * (1 - 1e-4) <= result.lower_bound <= least * (1 + 1e-9)


def test_the_peak_beside_work_is_searched_as_if_transfers_blocked():
    """Those of two equal devices would give a home to fewer residents: the schedules are of the problem's own graph."""
    machine = Machine((Device("a"), Device("b")), 1e6, 1.0, transfers="beside")
    problem = Problem(random_graph(np.random.default_rng(3), 70, residents=4), "memory", machine=machine)
    assert problem.graph is replace(problem, machine=replace(machine, transfers="blocking")).graph
    result = solve(problem, "annealing", evaluations=2000)
    verify(problem, result.schedule)
    assert result.value < result.input_value


@pytest.mark.slow
def test_cp_sat_proves_that_residents_do_not_fit():
    """Two of five on each of two devices: the bytes of all would fit. OR-Tools' symmetries fail on this model."""
    made = "10f keep=1536"
    ops = f"a -> {made} us=10; b -> {made} us=20; c: b -> {made} us=30; d: c -> {made} us=10; e: d -> {made} us=20"
    devices = (Device("a", memory=4096), Device("b", memory=4096, speed=3.0))
    problem = Problem(sketch(ops, "five"), "runtime", machine=Machine(devices, 1e6))
    assert solve(problem, "cp-sat", time_limit=20).status == "infeasible"


def test_cp_sat_on_a_machine_of_one_device_heeds_its_speed():
    graph = sketch("first -> 100 us=10; second: first -> 1f us=20", "one")
    problem = Problem(graph, "runtime", machine=Machine((Device("a", memory=1000, speed=2.0),)))
    result = solve(problem, "cp-sat:hint=0", time_limit=20)
    assert (result.value, result.lower_bound, result.status) == (15.0, 15.0, "optimal")


def test_times_that_only_small_denominators_tell_are_whole():
    """Ops of 10 us at speeds of 3 and 7, a link of 0.3 bytes per us: the solver's bound is exact."""
    graph = sketch("a -> 1f us=10; b -> 1f us=11; c -> 1f us=12; d -> 1f us=13; e -> 1f us=14", "thirds")
    devices = (Device("a", speed=3.0), Device("b", speed=7.0))
    problem = Problem(graph, "runtime", machine=Machine(devices, 3e5))
    assert solve(problem, "cp-sat", time_limit=60).status == "optimal"


def test_cp_sat_proves_the_least_peak_and_keeps_limits_that_differ():
    """Three tensors of 10 are kept to the end: two on the slow device, and one on the fast one, which holds no more."""
    graph = sketch("a -> 10f us=6; b -> 10f us=6; c -> 10f us=6", "three")
    machine = Machine((Device("fast", memory=15, speed=3.0), Device("slow", memory=30)), 1e6)
    for task, value in (("memory", 20 / 30), ("runtime", 12.0)):
        result = solve(Problem(graph, task, machine=machine), "cp-sat:hint=0", time_limit=60)
        assert (result.value, result.lower_bound, result.status) == (value, value, "optimal")


def test_cp_sat_says_that_it_minimises_no_peak_beside_work():
    machine = Machine((Device("a"), Device("b", speed=2.0)), 1e6, transfers="beside")
    with pytest.raises(UsageError, match="'cp-sat' minimises the makespan alone where transfers run beside work"):
        solve(Problem(chain_of_two(True), machine=machine), "cp-sat")


def chain_of_two(shared):
    """Two ops that share a weight, as the importers say it."""
    weight = Resident("w", "parameter", 4_000_000, 0, (0, 1))
    notes = Annotations(residents=(weight,) if shared else ())
    return sketch(f"one -> 8 us=500 keep=4000000; two -> 8 us=500 keep={0 if shared else 4000000}", "shared", notes)


@pytest.mark.slow
def test_a_weight_is_sent_or_replicated():
    given = {"devices": 2, "bandwidth": 1e9}
    free = solve(Problem(chain_of_two(False), "runtime", **given), time_limit=1)
    assert (free.runtime, len(free.schedule)) == (500.0, 2)
    sent = solve(Problem(chain_of_two(True), "runtime", **given), evaluations=500)
    assert sent.runtime == 1000.0
    replicated = solve(Problem(chain_of_two(True), "runtime", **given, replicate=True), evaluations=500)
    assert (replicated.runtime, replicated.peak_memory) == (500.0, 4_000_008)


@pytest.mark.parametrize("replicate", [False, True])
def test_what_writes_a_weight_runs_at_its_home(replicate):
    notes = Annotations(residents=(Resident("w", "parameter", 100, 0, (0, 1, 2), (2,)),))
    graph = sketch("read -> 8 us=10 keep=100; other -> 8 us=10; update: read other -> 0 us=1", "step", notes)
    problem = Problem(graph, "runtime", devices=2, replicate=replicate)
    result = solve(problem, evaluations=500)
    assert result.runtime == 11.0
    assert result.placement["update"] == result.placement["w"]
    wrong = Schedule.from_steps([3, 0, 1, ~0, ~1, ~3, 2], [0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 1, 1, 1])
    with pytest.raises(ScheduleError, match="'w' and 'update' are to be at the home of 'w'"):
        verify(problem, wrong)


@pytest.mark.slow
def test_a_plan_is_priced_as_its_schedule_is():
    rng = np.random.default_rng(11)
    priced = 0
    for _ in range(150):
        problem = random_problem(rng, str(rng.choice(["runtime", "memory"])))
        plans = Plans(problem)
        order = topological(plans.graph, rng.permutation(plans.ops))
        plan = plans.plan(order, rng.integers(0, 3, plans.ops))
        draws = np.where(problem.rules.allowed, rng.random(problem.rules.allowed.shape), -1.0)
        placement = draws.argmax(axis=1)[problem.rules.group]
        _, cost = plans.price(plan, placement)
        costs = simulate(problem, plans.schedule(plan, placement))
        assert cost.runtime == costs.runtime
        if plans.aim.memory:
            peaks = costs.peak_per_device.tolist()
            assert (cost.peak, cost.excess) == (int(problem.counted_peak(peaks)), problem.fitness(peaks, 0.0)[0])
            priced += 1
    assert priced > 50


def test_what_is_proven_as_if_transfers_blocked_stays(monkeypatch):
    monkeypatch.setattr(annealing, "_in_steps", lambda search, parameters: search.raise_lower_bound(10**9))
    machine = Machine((Device("gpu0"), Device("gpu1")), bandwidth=1e6, transfers="beside")
    graph = random_graph(np.random.default_rng(4), annealing.LARGEST_IN_CYCLES + 1)
    search = Search(Problem(graph, "memory", machine=machine), max_evaluations=40)
    annealing.solve(search, annealing.Parameters())
    assert search.lower_bound == 10**9


def test_no_device_is_filled_while_a_plan_keeps_the_limits(monkeypatch):
    monkeypatch.setattr("schedopt.core.solvers.placements.plan_annealing.filled_placements", None)
    graph = random_graph(np.random.default_rng(4), 5)
    machine = Machine((Device("gpu0", memory=2**40), Device("gpu1", memory=2**40)), transfers="beside")
    assert annealed(Problem(graph, "runtime", machine=machine), 50) > 0  # else None would have been called


@pytest.mark.parametrize("transfers", ["blocking", "beside"])
def test_the_peak_of_a_machine_is_bounded_by_cuts_before_it_is_searched(monkeypatch, transfers):
    """Eight ops forward keep 10 bytes each for eight back, so that no order has less than 80, and two devices 40."""
    builder = GraphBuilder("back-and-forth")
    for op in range(8):
        builder.add_op(f"forward{op}", inputs=[(op - 1, 0)] if op else [], outputs=[10])
    for op in range(8):
        builder.add_op(f"back{op}", inputs=[(7 + op, 0), (7 - op, 0)][op == 0 :], outputs=[1])
    machine = Machine((Device("gpu0"), Device("gpu1", speed=0.5)), bandwidth=1e6, transfers=transfers)
    problem = Problem(builder.build(), "memory", machine=machine)
    search = Search(problem, max_evaluations=1000, lower_bound=lower_bound(problem))
    for part in ("offer_starts", "go_on"):
        monkeypatch.setattr(annealing.PlanAnnealing, part, lambda plans: None)
    annealing.solve(search, annealing.Parameters())
    assert lower_bound(problem) < 40 <= search.lower_bound <= 45
