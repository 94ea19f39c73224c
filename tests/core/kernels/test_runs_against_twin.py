"""Sequences of runs against their plain twin: valid or not, and the bytes of each step."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.base.arrays import frozen
from schedopt.core.kernels.runs.annealing import Aim, anneal_runs, new_annealing
from schedopt.core.kernels.runs.sequences import MOST_TIMES, new_sequence, run_graph, set_sequence


def draw(rng, most_ops):
    graph, plain = naive.random_graph(rng, int(rng.integers(1, most_ops + 1)), runs_once=0.2, edges=1.8)
    arrays, capacity = run_graph(graph), 4 * graph.num_ops + 8
    return plain, arrays, new_sequence(arrays, capacity), capacity


def random_runs(rng, plain, more):
    """Draw an order, with runs inserted anywhere: mostly valid, and not always."""
    order = naive.random_order(rng, plain)
    for _ in range(more):
        longer = order.copy()
        longer.insert(int(rng.integers(len(order) + 1)), int(rng.choice(order)))
        if naive.replay_runs(plain, longer) is not None or rng.random() < 0.05:
            order = longer
    return order


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(50, quick=2))
def test_a_sequence_takes_what_its_twin_takes(seed):
    """Both refuse the same sequences but for ops that may run only once, which the kernels are never given twice."""
    rng = np.random.default_rng([1730, seed])
    refused = 0
    for _ in range(100):
        plain, arrays, sequence, _ = draw(rng, 9)
        plain.runs_once = set()
        order = random_runs(rng, plain, int(rng.integers(0, 2 * len(plain.ops) + 1)))
        if max(map(order.count, order)) > MOST_TIMES:
            continue
        expected = naive.replay_runs(plain, order)
        is_valid = set_sequence(arrays, sequence, frozen(order, np.int32))
        assert is_valid == (expected is not None)
        refused += not is_valid
        if is_valid:
            assert sequence.memory[: len(order)].tolist() == expected
    assert refused > 0


@pytest.mark.parametrize("seed", seeds(60, quick=2))
@pytest.mark.parametrize("moves_first", [True, False])
def test_annealing_goes_from_one_valid_sequence_to_another(seed, moves_first):
    """And what it calls the best keeps the limit if it says so, repeats no op that may not, and the order if asked."""
    rng = np.random.default_rng([1731, seed])
    for _ in range(10):
        plain, arrays, sequence, capacity = draw(rng, 9)
        order = naive.random_order(rng, plain)
        total = sum(plain.runtime)
        assert set_sequence(arrays, sequence, frozen(order, np.int32))
        memory = naive.replay_runs(plain, order)
        limit = int(rng.integers(sum(plain.persistent), max(memory) + 1))
        excess = float(sum(max(0, taken - limit) for taken in memory))
        state = new_annealing(arrays, capacity, seed)
        state.values[:] = [excess, total, total, excess]
        state.best[: len(order)], state.best_length[0] = order, len(order)
        aim = Aim(limit, 0.0, float(rng.choice([0.0, 0.1, 10.0])), float(rng.choice([0.1, 10.0])), moves_first)
        for _ in range(20):
            anneal_runs(arrays, sequence, state, aim, 20)
            now = sequence.items[: sequence.length[0]].tolist()
            best = state.best[: state.best_length[0]].tolist()
            for runs, (over, time) in ((now, state.values[:2]), (best, state.values[[3, 2]])):
                memory = naive.replay_runs(plain, runs)  # None if it is not valid, or repeats what may run only once
                assert over == sum(max(0, taken - limit) for taken in memory)
                assert time == pytest.approx(sum(plain.runtime[op] for op in runs))
                if not moves_first:
                    assert list(dict.fromkeys(runs)) == order
