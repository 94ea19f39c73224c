"""Packing: nothing overlaps, all is aligned, the bound is what lives at once, known instances come out."""

import numpy as np
import pytest
from models.seeds import seeds
from naive.arenas import most_alive, overlaps
from schedopt import UsageError
from schedopt.core.addresses import packing
from schedopt.core.addresses.packing import Lifetimes, PlacementOrders, cliques, pack_lifetimes


def random_lifetimes(seed, alignments=(1,), most=40):
    rng = np.random.default_rng([9, seed])
    count = int(rng.integers(1, most))
    lower = rng.integers(-5, 30, count)
    sizes = rng.integers(0, 50, count)
    return Lifetimes.of(lower, lower + rng.integers(1, 12, count), sizes, rng.choice(alignments, count))


def columns(lifetimes):
    return [column.tolist() for column in (lifetimes.lower, lifetimes.upper, lifetimes.size)]


@pytest.mark.parametrize("alignments", [(1,), (16,), (1, 4, 64), (6, 4)])
@pytest.mark.parametrize("seed", range(8))
def test_offsets_hold(seed, alignments):
    lifetimes = random_lifetimes(seed, alignments)
    packing = pack_lifetimes(lifetimes, 0.05)
    offsets = packing.offsets.tolist()
    assert overlaps(*columns(lifetimes), offsets) == []
    assert all(at % alignment == 0 for at, alignment in zip(offsets, lifetimes.alignment.tolist(), strict=True))
    assert all(at >= 0 and at + size <= packing.arena for at, size in zip(offsets, columns(lifetimes)[2], strict=True))
    assert packing.arena % lifetimes.unit == 0
    assert packing.bound == most_alive(*columns(lifetimes), lifetimes.unit) <= packing.arena
    assert packing.is_optimal == (packing.arena == packing.bound)


def test_what_first_fit_by_size_misses_is_found():
    lower, upper, size = [2, 1, 4, 2, 4, 3], [3, 4, 6, 5, 7, 6], [3, 4, 2, 1, 3, 3]
    lifetimes = Lifetimes.of(lower, upper, size)
    assert PlacementOrders(lifetimes).highest == 10
    packing = pack_lifetimes(lifetimes, 2.0)
    assert packing.arena == packing.bound == 9
    assert overlaps(lower, upper, size, packing.offsets.tolist()) == []


def test_orders_that_are_stopped_leave_valid_offsets_that_are_not_repeatable(monkeypatch):
    monkeypatch.setattr(packing, "PAIRS_AT_ONCE", 0)
    lifetimes = random_lifetimes(4, (4,))
    calls, first_fit = [], packing.first_fit
    monkeypatch.setattr(packing, "first_fit", lambda *given: calls.append(given) or first_fit(*given))
    stopped = packing.Packing(lifetimes, lambda: True)
    assert len(calls) == 1 < len(lifetimes)  # the order by start takes none
    assert overlaps(*columns(lifetimes), stopped.offsets.tolist()) == []
    assert not stopped.is_repeatable
    assert packing.Packing(lifetimes).is_repeatable


@pytest.mark.parametrize("seed", seeds(50, quick=4))
def test_cliques_overlap_as_the_lifetimes_do(seed):
    lifetimes = random_lifetimes(seed)
    lower, upper = cliques(lifetimes.lower, lifetimes.upper)
    assert np.all(lower < upper)

    def beside(lower, upper):
        return (lower[:, None] < upper) & (lower < upper[:, None])

    assert np.array_equal(beside(lower, upper), beside(lifetimes.lower, lifetimes.upper))
    assert max(upper) <= len(lower)


def test_one_seed_gives_one_packing():
    lifetimes = random_lifetimes(3, (4,))
    first, second = (pack_lifetimes(lifetimes, 1.0, seed=5) for _ in range(2))
    assert first.is_repeatable
    assert first.offsets.tolist() == second.offsets.tolist()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([3], [3], [1]), "must end after it starts, not be from 3 to 3"),
        (([0], [1], [-1]), "negative size, not -1"),
        (([0], [1], [1], 0), "alignment from 1 to 2^31, not 0"),
        (([0, 1], [1], [1]), "one lower, upper, size"),
        (([0.5], [1], [1]), "whole numbers"),
        (([0], [1], [2**62], 4), "exceed 2^63 - 1"),
    ],
)
def test_bad_lifetimes_are_refused(given, message):
    with pytest.raises(UsageError, match=message.replace("^", r"\^")):
        Lifetimes.of(*given)
