"""Signals, threads and long runs, in small: see `tests/bench/surroundings.py`."""

import random
import warnings

import pytest
from models.surroundings import GROWING, NUMBERS, THREADS, Interrupted, growth

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("what", "points", "times"), [("step", 20_000, 50), ("optimize", 150_000, 4)])
def test_a_signal_leaves_nothing(what, points, times):
    call, rng = Interrupted(what), random.Random(0)
    assert [call.wrong_after(NUMBERS[at % 2], rng.randrange(1, points)) for at in range(times)] == [[]] * times


@pytest.mark.parametrize("what", THREADS)
def test_threads(what):
    assert THREADS[what]() == []


@pytest.mark.parametrize("what", sorted(set(GROWING) - {"make_fx"}))  # which is PyTorch alone
def test_no_memory_is_left(what):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stays, blocks = growth(what, 20, 60)
    assert blocks < 50, "Python keeps an object"
    assert stays < 50_000 or what == "optimize", "as `make_fx`, it leaves gaps between blocks of C"
