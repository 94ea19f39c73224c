"""What `direct` sees of a problem, and the rule that its network corrects."""

import numpy as np
import pytest
from schedopt.core.graph.builder import GraphBuilder
from schedopt.core.problem.machine import Device, Machine
from schedopt.core.problem.problem import Problem
from schedopt.policies.direct.keys import NODE_FEATURES, PATIENCE, rule_keys, seen


def chain_and_twig(scale=1):
    """Op a leads to b and c, b to d; times and bytes are multiples of the scale."""
    builder = GraphBuilder("twig")
    builder.add_op("a", outputs=[4 * scale], runtime=2 * scale)
    builder.add_op("b", inputs=[(0, 0)], outputs=[2 * scale], runtime=3 * scale)
    builder.add_op("c", inputs=[(0, 0)], outputs=[scale], runtime=scale)
    builder.add_op("d", inputs=[(1, 0)], runtime=5 * scale)
    return builder.build()


def test_the_rule_of_the_makespan_is_the_longest_path_to_the_end():
    keys = rule_keys(Problem(chain_and_twig(), "runtime", devices=2))
    np.testing.assert_allclose(keys, [1.0, 0.8, 0.1, 0.5, PATIENCE], rtol=1e-6)


def test_the_rule_of_the_peak_falls_along_the_order_that_keeps_it_low():
    keys = rule_keys(Problem(chain_and_twig(), "memory", devices=2))
    assert keys[0] == 1
    assert sorted(keys[:-1].tolist()) == pytest.approx([0, 1 / 3, 2 / 3, 1])


@pytest.mark.parametrize("task", ["runtime", "memory"])
def test_units_do_not_matter(task):
    """A graph a thousand times as large and slow, with links that slow, looks the same."""
    links = {"bandwidth": 1e6, "latency": 0.5}
    one = seen(Problem(chain_and_twig(), task, devices=3, **links))
    other = seen(Problem(chain_and_twig(1000), task, devices=3, **links | {"latency": 500.0}))
    np.testing.assert_allclose(one.nodes, other.nodes, atol=1e-6)
    assert one.transfers_take_time == other.transfers_take_time == (task == "runtime")


def test_links_are_seen_against_the_mean_op():
    """Ops take 2, 3, 1 and 5 us; sending takes 1 us and 1 per byte, of tensors of 4, 2 and 1 bytes."""
    nodes = seen(Problem(chain_and_twig(), "runtime", devices=2, bandwidth=1e6, latency=1.0)).nodes
    mean = 11 / 4
    fetched = np.array([0.0, 5.0, 5.0, 3.0])
    np.testing.assert_allclose(nodes[:, NODE_FEATURES], np.log1p(fetched / mean), rtol=1e-6)
    np.testing.assert_allclose(nodes[:, NODE_FEATURES + 1], np.log1p((7 / 3 + 1) / mean), rtol=1e-6)
    np.testing.assert_allclose(nodes[:, NODE_FEATURES + 2], np.log1p(1 / mean), rtol=1e-6)
    free = seen(Problem(chain_and_twig(), "runtime", devices=2)).nodes
    assert not free[:, NODE_FEATURES:].any()


def test_a_graph_without_costs_gives_numbers():
    builder = GraphBuilder("free")
    for at in range(3):
        builder.add_op(f"op{at}")
    for task in ("runtime", "memory"):
        found = seen(Problem(builder.build(), task, devices=2))
        assert np.isfinite(found.nodes).all()
        assert np.isfinite(found.rule).all()


def test_a_machine_of_equal_devices_is_seen_as_devices_and_others_by_their_means():
    graph = chain_and_twig()
    machines = [Machine.equal(2, 1e6, 0.5), Machine((Device("a"), Device("b", speed=0.5)), 1e6, 0.5)]
    equal, other = (seen(Problem(graph, "runtime", machine=machine)) for machine in machines)
    one = seen(Problem(graph, "runtime", devices=2, bandwidth=1e6, latency=0.5))
    np.testing.assert_array_equal(equal.nodes, one.nodes)
    np.testing.assert_allclose(other.rule, one.rule)
    assert (other.nodes[:, -1] < one.nodes[:, -1]).all()
