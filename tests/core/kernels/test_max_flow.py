"""Maximum flows and minimum cuts of buffers, against all closed sets of ops."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.kernels.orders.max_flow import SINK, SOURCE, max_flow, network_of, new_flow, reachable, source_side

LARGEST = 2**62


def draw_sides(rng, plain):
    """Draw ops that have run, with all they wait for, and ops that have not, with all that wait for them."""
    inside, outside = set(), set()
    for op in rng.permutation(len(plain.ops))[:3].tolist():
        before, after = naive.reachable(plain.before, op) | {op}, naive.reachable(plain.after, op) | {op}
        if rng.random() < 0.5 and not before & outside:
            inside |= before
        elif not after & inside:
            outside |= after
    return inside, outside


@pytest.mark.parametrize("seed", seeds(60, quick=4))
def test_flow_is_the_least_memory_between_two_sides(seed):
    """Also when it goes on after more ops were given a side."""
    rng = np.random.default_rng([54, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(2, 9)))
    inside, outside = draw_sides(rng, plain)
    network = network_of(graph.buffers)
    flow = new_flow(network)
    sent = 0
    for part in (0.5, 1.0):
        flow.label[[op for op in inside if rng.random() < part]] = SOURCE
        flow.label[[op for op in outside if rng.random() < part]] = SINK
        sent += max_flow(network, flow, LARGEST)
    assert sent == min(map(plain.resident, naive.closed_sets(plain, inside, outside)))


@pytest.mark.parametrize("seed", seeds(40, quick=4))
def test_sides_are_the_smallest_and_the_largest_of_least_memory(seed):
    rng = np.random.default_rng([55, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(2, 9)))
    inside, outside = draw_sides(rng, plain)
    network = network_of(graph.buffers)
    flow, side = new_flow(network), np.empty(len(network.pointers) - 1, bool)
    flow.label[list(inside)], flow.label[list(outside)] = SOURCE, SINK
    least = max_flow(network, flow, LARGEST)
    sets = [chosen for chosen in naive.closed_sets(plain, inside, outside) if plain.resident(chosen) == least]
    source_side(network, flow, side)
    assert set(np.flatnonzero(side[: len(plain.ops)])) == set.intersection(*sets)
    assert set(np.flatnonzero(flow.level[: len(plain.ops)] < 0)) == set.union(*sets)


@pytest.mark.parametrize("seed", range(25))
def test_reachable_is_the_transitive_closure(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, 14, edges=0.9)
    for op in plain.ops:
        assert set(np.flatnonzero(reachable(*graph.successors, op))) == naive.reachable(plain.after, op)
        assert set(np.flatnonzero(reachable(*graph.predecessors, op))) == naive.reachable(plain.before, op)
