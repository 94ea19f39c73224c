"""Local search: its moves are legal, can be taken back, reach every place, and are priced and counted."""

import naive
import numpy as np
import pytest
from models.small_graphs import chain_of, sketch
from schedopt import Problem, Search
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements.local_search import Parameters, _Walk, random_order
from schedopt.core.solvers.placements.local_search import solve as local_search


@pytest.mark.parametrize("seed", range(10))
def test_a_random_order_takes_the_ready_op_of_least_priority(seed):
    graph, plain = naive.random_graph(np.random.default_rng([130, seed]), 15)
    priority = np.random.default_rng(seed).random(15).tolist()
    assert random_order(graph, np.random.default_rng(seed)).tolist() == naive.random_priority_order(plain, priority)


@pytest.mark.parametrize("devices", [1, 3])
def test_every_move_is_legal_and_can_be_taken_back(devices):
    graph, plain = naive.random_graph(np.random.default_rng(131), 12, edges=0.9)
    walk = _Walk(Search(Problem(graph, "runtime", devices), seed=4))
    walk.restart()
    kinds = set()
    for turn in range(300):
        order, placement = walk.order.tolist(), walk.placement.tolist()
        undo = walk.move()
        if undo is None:
            assert (walk.order.tolist(), walk.placement.tolist()) == (order, placement)
            continue
        now = walk.order.tolist()
        changed = sum(a != b for a, b in zip(placement, walk.placement.tolist(), strict=True))
        assert (now != order) + changed == 1
        kinds.add(changed)
        assert sorted(now) == list(plain.ops)
        assert all(plain.before[op] <= set(now[:at]) for at, op in enumerate(now))
        assert walk.place[walk.order].tolist() == list(plain.ops)
        if turn % 3 == 0:
            undo()
            assert (walk.order.tolist(), walk.placement.tolist()) == (order, placement)
    assert kinds == ({0} if devices == 1 else {0, 1})


def test_moves_reach_every_place_between_the_neighbours():
    """A free op beside a chain of three can go anywhere; with one device nothing else moves."""
    walk = _Walk(Search(Problem(sketch("a -> 1; b: a -> 1; c: b -> 1; free -> 1")), seed=1))
    walk.restart()
    seen = set()
    for _ in range(300):
        walk.move()
        assert [op for op in walk.order.tolist() if op < 3] == [0, 1, 2]
        seen.add(int(walk.place[3]))
    assert seen == {0, 1, 2, 3}


def test_a_chain_on_one_device_has_no_moves_and_still_ends():
    search = Search(Problem(chain_of(5)), max_evaluations=30, lower_bound=-1)
    local_search(search, Parameters(patience=3))
    assert search.evaluations == 30


def test_what_makes_a_schedule_worse_is_taken_back(monkeypatch):
    """Each move begins at the best schedule since the last restart."""
    price, move, restart, priced = _Walk.price, _Walk.move, _Walk.restart, []

    def seen_price(self):
        priced.append(price(self))
        return priced[-1]

    def seen_move(self):
        assert price(self) == min(priced)
        return move(self)

    def seen_restart(self):
        priced.clear()
        restart(self)

    for name, seen in (("price", seen_price), ("move", seen_move), ("restart", seen_restart)):
        monkeypatch.setattr(_Walk, name, seen)
    graph, _ = naive.random_graph(np.random.default_rng(134), 20)
    assert solve(Problem(graph, "memory", 2, latency=1.0), "local-search:patience=30", evaluations=500).evaluations
