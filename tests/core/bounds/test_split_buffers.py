"""Buffers split where views may be sent alone: by hand, and against what schedules hold at every moment."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.small_graphs import sketch
from schedopt import Problem
from schedopt.core.bounds.bounds import memory_bound, split_buffers
from schedopt.core.solve.solve import solve


def pieces(graph):
    """Return per buffer its bytes, maker, whether it is final, and users."""
    b = split_buffers(graph)
    users = [b.users[first:last] for first, last in zip(b.user_ptr[:-1], b.user_ptr[1:], strict=True)]
    return [
        (int(size), int(maker), bool(final), sorted(readers.tolist()))
        for size, maker, final, readers in zip(b.size, b.producer, b.is_final, users, strict=True)
    ]


def qkv(views=(30, 20, 10), *, is_final=False):
    """Op 0 makes 60 bytes, of which each next op makes a view; then an op reads each."""
    made = [f"view{at}: base -> {size}{'f' * is_final}@0" for at, size in enumerate(views)]
    read = [f"reader{at}: view{at} -> 1" for at in range(len(views))]
    return sketch("; ".join(["base -> 60", *made, *read]), "qkv")


def test_views_that_fit_beside_each_other_are_pieces_of_their_own():
    assert pieces(qkv())[:2] == [(30, 0, False, [1, 2, 3, 4]), (20, 0, False, [1, 2, 3, 5])]
    assert pieces(qkv())[2] == (10, 0, False, [1, 2, 3, 6])


def test_views_that_do_not_fit_share_pieces():
    """The third begins where the first does: 20 bytes are needed for both of them, 20 more for the first alone."""
    assert pieces(qkv((40, 20, 20)))[:3] == [
        (20, 0, False, [1, 2, 3, 4, 6]),
        (20, 0, False, [1, 2, 3, 4]),
        (20, 0, False, [1, 2, 3, 5]),
    ]


@pytest.mark.parametrize("seed", seeds(100, quick=4))
def test_devices_together_hold_the_pieces_at_every_moment(seed):
    rng = np.random.default_rng([131, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(2, 13)), edges=2.0)
    devices = int(rng.integers(2, 5))
    made = [(size, maker, final, set(users)) for size, maker, final, users in pieces(graph)]
    for _ in range(6):
        placement, steps = naive.random_steps(rng, plain, devices)
        done = set()
        alive = naive.costs.alive_on(plain, placement, done)
        for step in steps:
            done.add(step)
            held = sum(size for size, maker, final, users in made if maker in done and (final or users - done))
            assert sum(alive(device) for device in range(devices)) >= held


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(60, quick=4))
def test_no_bound_is_above_the_optimum(seed):
    """Where views are of any size, by trying everything; the bounds are raised by cuts and proofs."""
    rng = np.random.default_rng([132, seed])
    graph, plain = naive.random_graph(rng, 5, edges=2.0)
    for devices in (2, 3):
        optimum = naive.best_schedule(plain, devices, "memory")[1]
        result = solve(Problem(graph, "memory", devices), "annealing", evaluations=600, seed=seed)
        assert memory_bound(Problem(graph, "memory", devices)) <= result.lower_bound <= optimum
