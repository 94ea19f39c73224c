"""Searches side by side: each its own, the best of all kept, ended together; and `auto` with several workers."""

import threading
import time

import naive
import numpy as np
import pytest
from schedopt import Machine, Problem, Search
from schedopt.core.model.simulator import input_peak
from schedopt.core.search.search import Watcher
from schedopt.core.solve.solve import solve
from schedopt.core.solvers import portfolio as auto
from schedopt.core.solvers.portfolio import search_side_by_side

GRAPH, PLAIN = naive.random_graph(np.random.default_rng(230), 30)
LIMIT = input_peak(GRAPH)
PATIENCE = 30.0  # s: far more than any of these takes, so that nothing waits for ever


def timed(problem, seconds=PATIENCE, **values):
    return Search(problem, deadline=time.monotonic() + seconds, **values)


def orders_by_peak():
    """Return some orders of the graph, no two of one peak, that of the least first."""
    search, rng = Search(Problem(GRAPH)), np.random.default_rng(5)
    orders = [np.array(naive.random_order(rng, PLAIN), np.int32) for _ in range(50)]
    by_peak = {search.offer_order(order).peak: order for order in orders}
    return [by_peak[peak] for peak in sorted(by_peak)]


def offering(order, name, then=lambda branch: None):
    def course(branch):
        branch.offer_order(order, by=name)
        then(branch)

    return course


def wait_for_the_end(branch):
    while not branch.exhausted():
        time.sleep(0.001)


def test_the_best_of_all_is_kept_with_what_found_it_and_every_evaluation_counts():
    orders = orders_by_peak()
    search = timed(Problem(GRAPH))
    courses = [(offering(orders[place], f"course {place}"), number) for number, place in enumerate((3, 0, 1))]
    search_side_by_side(search, courses)
    assert search.best.op_order().tolist() == orders[0].tolist()
    assert (search.found_by, search.evaluations) == ("course 0", 3)
    assert search.depends_on_time, "who is first is luck"


def test_what_one_proves_of_what_another_found_ends_all_of_them():
    best, *_, worst = orders_by_peak()
    least = Search(Problem(GRAPH)).offer_order(best).peak

    def prove(branch):
        branch.offer_order(worst)
        branch.raise_lower_bound(least)
        wait_for_the_end(branch)

    search = timed(Problem(GRAPH))
    search_side_by_side(search, [(prove, 0), (offering(best, "found", wait_for_the_end), 1)])
    assert search.is_optimal
    assert search.found_by == "found"
    assert not search.timed_out


def test_each_begins_as_it_would_alone_and_number_0_draws_from_the_seed_of_the_run():
    drawn, orders = {}, orders_by_peak()
    start = Search(Problem(GRAPH))
    start.offer_order(orders[5])

    def draw(number):
        def course(branch):
            drawn[number] = branch.rng.random()
            assert branch.best.op_order().tolist() == orders[5].tolist(), "others' orders are not its own"
            branch.offer_order(orders[number])
            wait_for_the_end(branch)

        return course

    search = timed(Problem(GRAPH), 0.2, seed=8, initial=start.best)
    search_side_by_side(search, [(draw(number), number) for number in range(3)])
    assert drawn[0] == np.random.default_rng(8).random()
    assert len(set(drawn.values())) == 3


def test_ctrl_c_ends_all_with_the_best_so_far():
    interrupt, orders = threading.Event(), orders_by_peak()
    search = timed(Problem(GRAPH), watcher=Watcher(interrupt))
    begun = time.monotonic()

    def interrupted(branch):
        branch.offer_order(orders[0])
        interrupt.set()
        wait_for_the_end(branch)

    search_side_by_side(search, [(offering(orders[1], "", wait_for_the_end), 0), (interrupted, 1)])
    assert search.best.op_order().tolist() == orders[0].tolist()
    assert time.monotonic() - begun < PATIENCE / 2


def test_an_error_of_one_ends_the_others_and_is_raised():
    def fail(branch):
        raise MemoryError

    search, begun = timed(Problem(GRAPH)), time.monotonic()
    with pytest.raises(MemoryError):
        search_side_by_side(search, [(offering(GRAPH.input_order, "", wait_for_the_end), 0), (fail, 1)])
    assert time.monotonic() - begun < PATIENCE / 2


def test_what_the_user_should_know_is_what_the_best_of_them_says():
    orders, courses = orders_by_peak(), []
    for place in (1, 0):
        said = f"said by {place}"
        courses.append((offering(orders[place], "", lambda branch, said=said: branch.notes.append(said)), 0))
    search = timed(Problem(GRAPH))
    search_side_by_side(search, courses)
    assert search.notes == ["said by 0"]


PROBLEMS = [
    Problem(GRAPH),
    Problem(GRAPH, "memory", 2),
    Problem(GRAPH, "runtime", 3),
    Problem(GRAPH, "runtime", 2, bandwidth=1e7, latency=2.0, memory_limit=LIMIT),
    Problem(GRAPH, "runtime", 2, machine=Machine.equal(2)),
    Problem(GRAPH, "runtime", memory_limit=LIMIT, recompute=True),
]


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: f"{problem.task}-{problem.devices}")
@pytest.mark.parametrize("jobs", [2, 7])
def test_auto_with_several_workers_is_never_worse_than_the_input_order(problem, jobs):
    result = solve(problem, time_limit=0.3, jobs=jobs)
    assert result.is_feasible, "as the input order is"
    assert result.value <= result.input_value
    assert result.lower_bound <= result.value


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: f"{problem.task}-{problem.devices}")
def test_every_second_worker_runs_another_method_as_it_is_alone(problem, monkeypatch):
    ran, lock = [], threading.Lock()
    drawn = {np.random.default_rng(4).random(): 0, np.random.default_rng([4, 1]).random(): 1}

    def run(search, step):
        with lock:
            ran.append((step.method, drawn.get(search.rng.random())))
        search.offer_order(problem.graph.input_order)

    monkeypatch.setattr(auto, "_run", run)
    monkeypatch.setattr(auto, "_search_alone", lambda search: run(search, auto.Step("auto")))
    auto.solve(timed(problem, seed=4, jobs=12), None)
    alone = [name for name, number in ran if number == 0]
    assert len(alone) == len(set(alone)) >= 1
    assert "auto" not in alone
    assert ("auto", 1) in ran
    assert len(ran) == 12
    if problem.devices > 1:
        assert {"annealing", "brkga", "local-search"} <= set(alone)


def test_workers_do_not_matter_where_evaluations_are_limited():
    problem = Problem(GRAPH, "runtime", 2)
    one, several = (solve(problem, evaluations=300, time_limit=PATIENCE, seed=2, jobs=jobs) for jobs in (1, 4))
    assert one.schedule.items.tolist() == several.schedule.items.tolist()
    assert one.is_repeatable
    assert several.is_repeatable
