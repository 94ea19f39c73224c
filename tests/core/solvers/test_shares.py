"""The memory task on machines whose devices all have a memory: the largest share of it is minimised."""

import json
from itertools import product

import naive
import numpy as np
import pytest
import schedopt
from models.seeds import seeds
from naive.machines import plain_of_problem
from schedopt.core.base.errors import ScheduleError
from schedopt.core.base.units import shares_alike
from schedopt.core.bounds.bounds import lower_bound, memory_bound
from schedopt.core.experiments.pareto_search import Sweep
from schedopt.core.problem.machine import Device, Machine
from schedopt.core.problem.problem import Problem
from schedopt.core.report.explanation import infeasible_reason
from schedopt.core.search.options import ParetoOptions


def machine_of(*memories, **given):
    return Machine(tuple(Device(f"d{at}", memory=memory) for at, memory in enumerate(memories)), **given)


def least_share(problem, memories):
    """The least share of every placement and every order of steps, by trying all; all steps of a set at once."""
    plain, best = plain_of_problem(problem), np.inf
    for placement in product(range(len(memories)), repeat=len(plain.ops)):
        level = {frozenset(): (0.0, [])}
        while level:
            following = {}
            for done, (_, path) in level.items():
                for step in naive.runnable(plain, placement, set(done)):
                    peaks = naive.replay(plain, placement, [*path, step], len(memories)).peaks
                    share = max(peak / memory for peak, memory in zip(peaks, memories, strict=True))
                    known = following.get(done | {step}, (np.inf,))
                    if share < min(known[0], best):
                        following[done | {step}] = share, [*path, step]
            last, level = level, following
        if len(last) == 1 and not naive.runnable(plain, placement, set(next(iter(last)))):
            best = min(best, next(iter(last.values()))[0])
    return best


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(24, quick=6))
def test_the_least_share_of_all_schedules(seed):
    """No bound is above it, none of the searches below; what is optimal has it, and `cp-sat` proves it."""
    rng = np.random.default_rng([331, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(2, 5)))
    total = sum(plain.persistent) + sum(plain.size.values()) + sum(plain.workspace)
    memories = rng.integers(total, 4 * total + 2, 2 if len(plain.ops) > 3 else 3).tolist()
    machine = machine_of(*memories)
    problem = Problem(graph, machine=machine)
    least = least_share(problem, memories)
    assert problem.shown(lower_bound(problem)) <= least
    for method in ("cp-sat", "auto", "annealing", "brkga", "step-search", "local-search"):
        result = schedopt.solve(graph, method, machine=machine, evaluations=None if method == "cp-sat" else 60)
        peaks = result.simulation.peak_per_device
        assert result.value == max(peaks / np.array(memories)) >= least >= result.lower_bound
        assert result.status != "optimal" or result.value == least
    assert result.status == "optimal" or schedopt.solve(graph, "cp-sat", machine=machine).status == "optimal"


def chain():
    builder = schedopt.GraphBuilder("chain")
    ops = [builder.add_op("op0", outputs=[60], runtime=1.0)]
    for at in range(1, 4):
        ops.append(builder.add_op(f"op{at}", inputs=[(ops[-1], 0)], outputs=[60]))
    return builder.build()


def test_all_is_on_the_device_where_it_is_the_least_share_though_not_the_fewest_bytes():
    result = schedopt.solve(chain(), machine=machine_of(200, 800, transfers="beside"), evaluations=50)
    assert result.simulation.peak_per_device.tolist() == [0, 120]
    assert (result.value, result.peak_memory, result.input_value) == (0.15, 120, 0.15)
    assert result.status == "optimal" and result.lower_bound == 0.15 and "15.0%" in str(result)
    held = schedopt.solve(chain(), machine=Machine((Device("a", memory=200), Device("b"))), evaluations=50)
    assert held.value == held.peak_memory == 120
    page = schedopt.compare([chain()], ["input", "auto"], machine=machine_of(200, 800), evaluations=50)
    assert {cell.value for cell in page.cells} == {0.15} and "largest share" in page.title
    assert "15.0%" in page.summary(per_graph=True)


def test_equal_memories_change_no_schedule(sized=1000):
    rng = np.random.default_rng(333)
    graph, _ = naive.random_graph(rng, 12)
    one, two = (schedopt.solve(graph, machine=machine_of(memory, memory), evaluations=200) for memory in (None, sized))
    assert np.array_equal(one.schedule.items, two.schedule.items)
    assert np.array_equal(one.schedule.targets, two.schedule.targets)
    assert (two.value, two.lower_bound) == (one.value / sized, one.lower_bound / sized)


def test_limits_that_no_share_keeps_and_fronts_in_bytes():
    result = schedopt.solve(chain(), machine=machine_of(64, 32), evaluations=50)
    assert result.status == "infeasible"
    assert "keeps the limits of all devices: every schedule needs at least 187.5% of one" in result.notes[-1]
    problem = Sweep(chain(), ParetoOptions(machine=machine_of(200, 800))).problem
    assert not problem.counts_shares and lower_bound(problem) == memory_bound(problem) == 120


@pytest.mark.parametrize("task", ["memory", "runtime"])
@pytest.mark.parametrize(
    ("memories", "limit", "reason"),
    [
        ((2000, 500, 4000), 100, "fits in 100 B each: every schedule needs at least 120 B on one of them"),
        ((2000, 90, 110), 100, "keeps the limits of all devices: every schedule needs at least 120.0% of one"),
        ((2000, 90, 110), 120, ""),
    ],
)
def test_a_limit_is_refuted_by_shares_of_the_limits(task, memories, limit, reason):
    """120 bytes are needed, which are little of the largest memory."""
    problem = Problem(chain(), task, machine=machine_of(*memories), memory_limit=limit)
    said = infeasible_reason(problem, lower_bound(problem))
    assert said.endswith(reason) and bool(said) == bool(reason)


def test_a_file_says_its_share_and_is_refused_with_another(tmp_path):
    path, machine = tmp_path / "s.json", machine_of(200, 800)
    result = schedopt.solve(chain(), machine=machine, evaluations=50)
    result.save(path)
    schedopt.verify(chain(), path)
    document = json.loads(path.read_text())
    assert (document["peak_share"], document["peak_share_bound"], document["peak_memory"]) == (0.15, 0.15, 120)
    assert document["format"] == 3 and "lower_bound" not in document
    for change, message in {
        "share": ({"peak_share": 0.14}, "claims 0.14 of a device's memory, but takes 0.15"),
        "bound": ({"peak_share_bound": 0.2}, "claims that none is below 0.2, but has 0.15"),
        "optimal": ({"peak_share_bound": 0.1}, "claims to be optimal, but has 0.15, above its bound 0.1"),
    }.values():
        path.write_text(json.dumps(document | change))
        with pytest.raises(ScheduleError, match=message):
            schedopt.verify(chain(), path)
    older = {name: value for name, value in document.items() if not name.startswith("peak_share")}
    path.write_text(json.dumps(older | {"format": 2, "lower_bound": 120}))  # in bytes
    assert schedopt.verify(chain(), path).shares(machine) == [0.0, 0.15]


def test_shares_are_told_apart():
    written = shares_alike([0.71301, 0.713, 0.5])
    assert [written(share) for share in (0.71301, 0.713, 0.5)] == ["71.301%", "71.300%", "50.000%"]
    assert shares_alike([0.0004364])(0.0004364) == "0.0436%"
