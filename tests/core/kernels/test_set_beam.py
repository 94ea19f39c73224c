"""Levels of the beam over executed sets against exact dynamic programming."""

import naive
import numpy as np
import pytest
from schedopt.core.kernels.orders import set_beam


def sets_of(level, ops):
    return [frozenset(op for op in range(ops) if int(row[op >> 6]) >> (op & 63) & 1) for row in level.executed]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "ops"), [*((seed, 8) for seed in range(3)), (100, 70)])
@pytest.mark.parametrize("size", [1, 3, 10**6])
@pytest.mark.parametrize("is_backward", [False, True])
def test_levels_of_the_beam(seed, ops, size, is_backward):
    """Levels are those of exact dynamic programming over sets, cut to the least peaks, ties by salted hash."""
    rng = np.random.default_rng([seed, size])
    edges = 1.4 if ops < 20 else 6.0
    graph, plain = naive.random_graph(rng, ops, edges=edges)
    if ops > 20 and size > 3:
        size = 20
    b = graph.buffers
    walk = set_beam.backward_walk(b) if is_backward else set_beam.forward_walk(b)
    zobrist = rng.integers(0, 2**64, ops, dtype=np.uint64)
    level = set_beam.first_level(walk)
    exact = {frozenset(): 0}
    for _ in range(ops):
        salt = np.uint64(2 * int(rng.integers(0, 2**62)) + 1)
        candidates = set_beam.new_candidates(size, len(level.ready))
        count, truncated = set_beam.expand(level, b, walk, candidates, zobrist, size, 2**62, salt)
        expected = naive.level_sets(plain, exact, is_backward=is_backward)
        assert truncated == (len(expected) > size)

        parents = sets_of(level, ops)
        level = set_beam.materialise(level, b, walk, candidates, count, -1)
        sets = sets_of(level, ops)
        hashes = {s: int(np.bitwise_xor.reduce(zobrist[list(s)])) for s in expected}
        best = sorted(expected, key=lambda s: (expected[s], hashes[s] * int(salt) % 2**64))[:size]
        exact = {s: expected[s] for s in best}
        assert dict(zip(sets, level.peak.tolist(), strict=True)) == exact
        assert len(sets) == len(exact)
        for at, executed in enumerate(sets):
            parent, op = parents[candidates.parent[at]], int(candidates.op[at])
            assert parent | {op} == executed
            assert op not in parent
            assert level.hash[at] == hashes[executed]
            before = frozenset(plain.ops) - executed if is_backward else executed
            assert level.resident[at] == plain.resident(before)
            ready = level.ready[level.ready_ptr[at] : level.ready_ptr[at + 1]].tolist()
            assert sorted(ready) == naive.joinable(plain, executed, is_backward)
    assert sets == [frozenset(range(ops))]


@pytest.mark.parametrize("seed", range(6))
def test_one_state_in_place_takes_the_op_of_least_peak_then_of_least_bytes(seed):
    """Until no op is below the limit; bytes of sets and steps are those of the twin."""
    graph, plain = naive.random_graph(np.random.default_rng([7, seed]), 12)
    b, ops, is_backward = graph.buffers, frozenset(plain.ops), bool(seed % 2)
    walk = set_beam.backward_walk(b) if is_backward else set_beam.forward_walk(b)
    chosen, peak = [], 0
    while len(chosen) < len(ops):
        options = []
        for op in naive.joinable(plain, frozenset(chosen), is_backward):
            first = ops - {*chosen, op} if is_backward else frozenset(chosen)
            needed = max(peak, plain.resident(first) + plain.own[op] + plain.workspace[op])
            options.append((needed, plain.resident(first if is_backward else first | {op}), op))
        peak, _, op = min(options)
        chosen.append(op)
    for limit in (peak, peak + 1):
        is_done = set_beam.extend_in_place(b, walk, set_beam.new_state(b, walk), limit, 0, 12)
        assert is_done == (limit > peak)
    assert set_beam.extend_in_place(b, walk, state := set_beam.new_state(b, walk), peak + 1, 0, 7)
    assert set_beam.extend_in_place(b, walk, state, peak + 1, 7, 12)
    assert (state.chosen.tolist(), state.totals[0]) == (chosen, peak)
