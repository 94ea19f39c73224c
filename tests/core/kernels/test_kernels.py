"""Every kernel against its plain-Python twin on seeded random graphs; CI runs this again with bounds checks."""

import heapq
from itertools import pairwise

import naive
import numpy as np
import pytest
from schedopt.core.buffers import buffers_of
from schedopt.core.costs.simulator import simulate
from schedopt.core.kernels.cost_model import new_state, step_through
from schedopt.core.kernels.graph_arrays import graph_arrays
from schedopt.core.kernels.heap import pop, push
from schedopt.core.kernels.one_device import set_beam
from schedopt.core.kernels.one_device.lpmf import least_peak_memory_first
from schedopt.core.kernels.one_device.order_memory import order_memory
from schedopt.core.kernels.reach import reachable
from schedopt.core.kernels.several_devices import random_keys
from schedopt.core.problem import Problem
from schedopt.core.schedule import Schedule
from schedopt.core.search.search import Search
from schedopt.core.solvers.one_device.lpmf import greedy_order
from schedopt.core.solvers.several_devices.random_keys import Chromosomes

SEEDS = range(25)


def csr_sets(pointers, columns):
    return [columns[a:b].tolist() for a, b in pairwise(pointers)]


@pytest.mark.parametrize("seed", SEEDS)
def test_reachable_is_the_transitive_closure(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, 14, edges=0.9)
    for op in plain.ops:
        assert set(np.flatnonzero(reachable(*graph.successors, op))) == naive.reachable(plain.after, op)
        assert set(np.flatnonzero(reachable(*graph.predecessors, op))) == naive.reachable(plain.before, op)


@pytest.mark.parametrize("seed", SEEDS)
def test_buffers_are_the_groups_of_views(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, 12)
    buffers = buffers_of(graph)
    roots = [t for t in plain.tensors if t not in plain.alias and t[1] != naive.CONTROL]
    users = csr_sets(buffers.user_ptr, buffers.users)
    used = csr_sets(buffers.used_ptr, buffers.used)
    assert len(users) == len(roots)
    for at, root in enumerate(roots):
        assert buffers.size[at] == plain.size[root]
        assert buffers.producer[at] == root[0]
        assert buffers.is_final[at] == plain.is_kept(root)
        assert sorted(users[at]) == sorted(plain.users(root))
    for op in plain.ops:
        read = {plain.root(t) for t in plain.reads[op] if t[1] != naive.CONTROL}
        assert sorted(used[op]) == sorted(roots.index(root) for root in read)
        assert [roots[b][0] for b in range(buffers.made_ptr[op], buffers.made_ptr[op + 1])] == [op] * (
            buffers.made_ptr[op + 1] - buffers.made_ptr[op]
        )
    assert buffers.made_ptr[-1] == len(roots)
    assert buffers.own.tolist() == plain.own


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("devices", [1, 2, 3, 5])
def test_step_through_prices_every_step(seed, devices):
    rng = np.random.default_rng([seed, devices])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 14)))
    placement, steps = naive.random_steps(rng, plain, devices)
    bandwidth, latency = float(rng.integers(1, 50)) * 1e5, float(rng.integers(0, 4))
    expected = naive.replay(plain, placement, steps, devices, bandwidth=bandwidth, latency=latency)

    items, _, targets = naive.schedule_of(plain, placement, steps)
    arrays = graph_arrays(graph)
    state = new_state(arrays, devices, True)
    state.placement[:] = placement
    memory, ends = np.empty(len(items), np.int64), np.empty(len(items))
    columns = np.array(items, np.int32), np.array(targets, np.int32)
    wrong = step_through(arrays, state, *columns, devices, latency, 1e6 / bandwidth, memory, ends)

    assert wrong == -1
    assert memory.tolist() == expected.step_memory
    assert ends.tolist() == pytest.approx(expected.step_end, rel=1e-9)
    assert state.peak.tolist() == expected.peaks
    assert state.clock.tolist() == pytest.approx(expected.clocks, rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_step_through_points_at_the_first_step_without_its_inputs(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, 8, edges=2.0)
    placement, steps = naive.random_steps(rng, plain, 2)
    shuffled = [steps[i] for i in rng.permutation(len(steps))]
    done, first = set(), -1
    for at, step in enumerate(shuffled):
        if step not in naive.runnable(plain, placement, done):
            first = at
            break
        done.add(step)

    items, _, targets = naive.schedule_of(plain, placement, shuffled)
    arrays = graph_arrays(graph)
    state = new_state(arrays, 2, True)
    state.placement[:] = placement
    scratch = np.empty(len(items), np.int64), np.empty(len(items))
    columns = np.array(items, np.int32), np.array(targets, np.int32)
    assert step_through(arrays, state, *columns, 2, 0.0, 0.0, *scratch) == first


@pytest.mark.parametrize("seed", SEEDS)
def test_least_peak_memory_first(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 18)))
    order, peak = naive.least_peak_memory_first(plain)
    assert greedy_order(buffers_of(graph)).tolist() == order
    assert peak + sum(plain.persistent) == naive.order_peak(plain, order)


def test_least_peak_memory_first_returns_its_peak():
    rng = np.random.default_rng(7)
    graph, plain = naive.random_graph(rng, 12)
    b = buffers_of(graph)
    users = np.diff(b.user_ptr).astype(np.int64)
    freed = np.zeros(12, np.int64)
    for root, group in plain.members.items():
        if root[1] != naive.CONTROL and not plain.is_kept(root):
            readers = set().union(*(plain.readers[t] for t in group))
            if len(readers) <= 1:
                freed[readers.pop() if readers else root[0]] += plain.size[root]
    waiting = np.diff(b.predecessor_ptr).astype(np.int64)
    order = np.empty(12, np.int32)
    peak = least_peak_memory_first(b, waiting, users, freed, np.zeros(12, np.bool_), np.empty(12, np.int32), order)
    assert (order.tolist(), peak) == naive.least_peak_memory_first(plain)


# The beam -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_select_is_an_order_statistic(dtype):
    rng = np.random.default_rng(1)
    for _ in range(200):
        count = int(rng.integers(1, 40))
        values = rng.integers(0, rng.choice([3, 50, 2**62]), count).astype(dtype)
        beyond = rng.integers(0, 5, 3).astype(dtype)
        rank = int(rng.integers(0, count))
        given = np.concatenate((values, beyond))
        assert set_beam.select(given, count, rank) == sorted(values.tolist())[rank]
        assert sorted(given[:count].tolist()) == sorted(values.tolist())
        assert given[count:].tolist() == beyond.tolist()


def test_keep_best_keeps_the_least_peaks_and_breaks_ties_by_hash():
    rng = np.random.default_rng(2)
    for _ in range(100):
        count = int(rng.integers(2, 40))
        size = int(rng.integers(1, count))
        salt = np.uint64(2 * int(rng.integers(0, 2**62)) + 1)
        candidates = set_beam.new_candidates(count, count)
        hashes = rng.integers(0, 2**64, count, dtype=np.uint64)
        candidates.hash[:] = hashes
        candidates.peak[:] = rng.integers(0, 5, count)
        candidates.parent[:] = np.arange(count)
        candidates.op[:] = np.arange(count) + 100
        keys = sorted(
            (int(p), int(h) * int(salt) % 2**64, at)
            for at, (p, h) in enumerate(zip(candidates.peak, hashes, strict=True))
        )
        limit, largest_tie, kept = set_beam._keep_best(candidates, size, count, salt)
        assert kept == size
        assert (limit, largest_tie) == keys[size - 1][:2]
        assert sorted(candidates.parent[:kept].tolist()) == sorted(at for *_, at in keys[:size])
        assert (candidates.op[:kept] == candidates.parent[:kept] + 100).all()
        assert (candidates.hash[:kept] == hashes[candidates.parent[:kept]]).all()


def sets_of(level, ops):
    return [frozenset(op for op in range(ops) if int(row[op >> 6]) >> (op & 63) & 1) for row in level.executed]


@pytest.mark.parametrize(("seed", "ops"), [*((seed, 8) for seed in range(12)), (100, 70)])
@pytest.mark.parametrize("size", [1, 3, 10**6])
@pytest.mark.parametrize("is_backward", [False, True])
def test_levels_of_the_beam(seed, ops, size, is_backward):
    """Levels are those of exact dynamic programming over sets, cut to the least peaks, ties by salted hash."""
    rng = np.random.default_rng([seed, size])
    edges = 1.4 if ops < 20 else 6.0
    graph, plain = naive.random_graph(rng, ops, edges=edges)
    if ops > 20 and size > 3:
        size = 20
    b = buffers_of(graph)
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


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_backward", [False, True])
def test_cutoff_of_the_beam(seed, is_backward):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, 7)
    b = buffers_of(graph)
    walk = set_beam.backward_walk(b) if is_backward else set_beam.forward_walk(b)
    optimum = naive.least_peak(plain) - sum(plain.persistent)
    cutoff = optimum + int(rng.integers(0, 6))
    zobrist = rng.integers(0, 2**64, 7, dtype=np.uint64)
    level, exact = set_beam.first_level(walk), {frozenset(): 0}
    for _ in plain.ops:
        candidates = set_beam.new_candidates(1000, len(level.ready))
        count, _ = set_beam.expand(level, b, walk, candidates, zobrist, 1000, cutoff, np.uint64(1))
        exact = naive.level_sets(plain, exact, cutoff, is_backward)
        assert count == len(exact)
        if not count:
            break
        level = set_beam.materialise(level, b, walk, candidates, count, -1)
        assert dict(zip(sets_of(level, 7), level.peak.tolist(), strict=True)) == exact
    assert bool(exact) == (optimum < cutoff)


@pytest.mark.parametrize("seed", range(40))
def test_memory_of_an_order(seed):
    rng = np.random.default_rng([26, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 30)), edges=2.0)
    b, order = graph.buffers, np.array(naive.random_order(rng, plain), np.int32)
    memory = np.empty(len(order), np.int64)
    order_memory(b, order, int(graph.persistent.sum()), np.empty(len(b.size), np.int32), memory)
    assert memory.tolist() == naive.order_step_memory(plain, order.tolist())


# Chromosomes --------------------------------------------------------------------------------------------------


def test_heap_pops_the_largest_first():
    rng = np.random.default_rng(3)
    heap, size, twin = np.empty(100, np.int64), 0, []
    for _ in range(2000):
        if size < 100 and (not twin or rng.random() < 0.55):
            key = int(rng.integers(0, 2**62)) if rng.random() < 0.7 else int(rng.integers(0, 4))
            size = push(heap, size, key)
            heapq.heappush(twin, -key)
        else:
            assert heap[0] == -twin[0]
            size = pop(heap, size)
            heapq.heappop(twin)
        assert size == len(twin)
        assert not size or heap[0] == -twin[0]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_decode_runs_the_most_urgent_ready_step(seed, devices):
    rng = np.random.default_rng([seed, devices])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 13)))
    problem = Problem(graph, devices=devices)
    chromosomes = Chromosomes(Search(problem))
    genes = rng.random(chromosomes.genes, dtype=np.float32)
    if seed % 2:  # many ties
        genes = np.floor(genes * 4).astype(np.float32) / 4
    if seed % 5 == 0:
        genes[rng.random(len(genes)) < 0.3] = 1.0
    placement, steps = naive.decode(plain, naive.as_floats(genes), devices, problem.fixed_op)
    items, sources, targets = naive.schedule_of(plain, placement, steps)
    schedule = chromosomes.decode(genes)
    assert schedule.items.tolist() == items
    assert schedule.sources.tolist() == sources
    assert schedule.targets.tolist() == targets


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_price_is_the_cost_of_the_decoded_schedule(seed, task):
    rng = np.random.default_rng(seed)
    devices = int(rng.integers(1, 5))
    graph, plain = naive.random_graph(rng, 10)
    problem = Problem(graph, task, devices, bandwidth=2e6, latency=0.5)
    chromosomes = Chromosomes(Search(problem))
    population = rng.random((6, chromosomes.genes), dtype=np.float32)
    fitness = chromosomes.price(population)
    for row, genes in zip(fitness, population, strict=True):
        placement, steps = naive.decode(plain, naive.as_floats(genes), devices, problem.fixed_op)
        expected = naive.replay(plain, placement, steps, devices, bandwidth=2e6, latency=0.5)
        value = max(expected.peaks) if task == "memory" else max(expected.clocks)
        assert row.tolist() == pytest.approx([0, value], rel=1e-9)


def test_cross_takes_each_gene_by_its_draw():
    rng = np.random.default_rng(4)
    parents = rng.random((8, 30), dtype=np.float32)
    elites, others = rng.integers(0, 3, 20), rng.integers(3, 8, 20)
    bias = rng.random(30)
    children = rng.random((20, 30), dtype=np.float32)
    draws = children.tolist()
    random_keys.cross(parents, elites, others, bias, children)
    assert children.tolist() == naive.crossover(
        draws, parents.tolist(), elites.tolist(), others.tolist(), bias.tolist()
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_look_up_takes_each_draw_to_its_quantile(seed):
    rng = np.random.default_rng(seed)
    tables = np.sort(rng.random((4, 9), dtype=np.float32), axis=1)
    rows = rng.integers(-1, 4, 30).astype(np.int32)
    draws = rng.random((6, 30), dtype=np.float32)
    draws[0, :10], draws[1, :10], draws[2, :9] = 0.0, np.nextafter(np.float32(1), np.float32(0)), np.arange(9) / 9
    expected = naive.looked_up(naive.as_floats(draws), naive.as_floats(tables), rows.tolist())
    kept = draws[:, rows < 0].copy()
    random_keys.look_up(tables, rows, draws)
    np.testing.assert_allclose(draws, expected, rtol=0, atol=1e-6)
    assert (draws[:, rows < 0] == kept).all()


def test_sixty_four_devices_use_every_bit_of_the_target_set():
    """One tensor read on 63 other devices: 63 transfers, each counted once."""
    from schedopt.core.graph import GraphBuilder

    builder = GraphBuilder("star")
    builder.add_op("source", outputs=[10], runtime=1.0)
    for reader in range(63):
        builder.add_op(f"reader{reader}", inputs=[(0, 0)], outputs=[1], runtime=1.0)
    graph = builder.build()
    plain = naive.plain_of(graph)
    placement = list(range(64))
    steps = [0]
    while choices := naive.runnable(plain, placement, set(steps)):
        steps.append(choices[-1])
    assert len(steps) == 1 + 63 + 63
    expected = naive.replay(plain, placement, steps, 64, latency=0.25)
    result = simulate(
        Problem(graph, devices=64, latency=0.25),
        Schedule.from_steps(*naive.schedule_of(plain, placement, steps)),
    )
    assert result.peak_per_device.tolist() == expected.peaks == [10] + [11] * 63
    assert result.clock_per_device.tolist() == expected.clocks
