"""The network of `direct`: a correction of the rule, the same in any batch, whose draws are as likely as it says."""

import dataclasses

import naive
import numpy as np
import pytest
import torch
from models.networks import write_direct_weights
from schedopt import Problem
from schedopt.policies.direct.keys import NODE_FEATURES, seen
from schedopt.policies.direct.network import DirectNetwork, DirectNetworkParameters, batch_of, load_network

SHAPE = DirectNetworkParameters(width=8, rounds=2)


def problems(**links):
    graphs = [naive.random_graph(np.random.default_rng([4, seed]), 10 + 5 * seed)[0] for seed in range(3)]
    return [seen(Problem(graph, "runtime", devices=2, **links)) for graph in graphs]


def test_before_training_the_keys_are_the_rules():
    found = problems(bandwidth=1e6)
    for keys, problem in zip(DirectNetwork(SHAPE)(batch_of(found)).most_likely(), found, strict=True):
        np.testing.assert_array_equal(keys, problem.rule[None])


def test_what_else_is_in_the_batch_does_not_matter(tmp_path):
    network, found = load_network(write_direct_weights(tmp_path / "w.safetensors")), problems(bandwidth=1e6)
    together = network(batch_of(found)).most_likely()
    for keys, problem in zip(together, found, strict=True):
        np.testing.assert_allclose(network(batch_of([problem])).most_likely()[0], keys, atol=1e-5)
        assert not np.allclose(keys, problem.rule)


def test_draws_come_in_their_orders_as_often_as_their_probability_says(tmp_path):
    """The three orders of two ops of which one is nearly as urgent, and of a third: by enumeration and by drawing."""
    (found,) = problems()[:1]
    network = load_network(write_direct_weights(tmp_path / "w.safetensors", noise="gumbel"))
    policy = network(batch_of([found]))
    mean = torch.zeros_like(policy.mean)
    mean[:] = torch.linspace(1, 0, len(mean))
    mean[1] = mean[0] + 0.03
    policy = dataclasses.replace(policy, mean=mean)
    (keys,) = policy.sample(40_000, np.random.default_rng(0))
    orders = np.argsort(-keys[:, :-1], axis=1)
    kinds, first, counts = np.unique(orders, axis=0, return_index=True, return_counts=True)
    chances = np.exp(len(mean) * policy.log_probability([keys[first]])[0].detach().numpy())
    assert chances.sum() == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(counts / len(orders), chances, atol=0.01)
    assert sorted(counts)[-2] > 1000 and len(kinds) > 2


def test_the_patience_is_the_rules_where_transfers_are_free(tmp_path):
    found = problems()
    policy = load_network(write_direct_weights(tmp_path / "w.safetensors"))(batch_of(found))
    for rows, problem in zip(policy.sample(5, np.random.default_rng(0)), found, strict=True):
        assert (rows[:, -1] == problem.rule[-1]).all()
        assert len(np.unique(rows[:, 0])) == 5


@pytest.mark.parametrize("stays", [False, True])
def test_of_the_keys_to_decode_one_row_keeps_to_one_device(stays, tmp_path):
    found = problems(bandwidth=1e6)
    policy = load_network(write_direct_weights(tmp_path / "w.safetensors", waiting=1.0))(batch_of(found))
    policy = dataclasses.replace(policy, patience=policy.patience.abs() * (-1 if stays else 1))
    for rows, (means,) in zip(policy.to_decode(16, np.random.default_rng(0)), policy.most_likely(), strict=True):
        np.testing.assert_array_equal(rows[0], means)
        assert np.flatnonzero(rows[:, -1] < 0).tolist() == [0 if stays else 1]
        assert len(np.unique(rows[:, 0])) == len(np.unique(rows[:, -1])) == 16
    for rows, means in zip(policy.to_decode(1, np.random.default_rng(0)), policy.most_likely(), strict=True):
        np.testing.assert_array_equal(rows, means)


def test_what_links_cost_is_seen_by_networks_that_look_at_it(tmp_path):
    """Of two problems alike but for their links, whose outputs cost the same to send."""
    found = problems(latency=1.0)[:1]
    nodes = found[0].nodes
    dearer = [found[0]._replace(nodes=np.hstack((nodes[:, :NODE_FEATURES], nodes[:, NODE_FEATURES:] + 1)))]
    for links in (False, True):
        network = load_network(write_direct_weights(tmp_path / f"{links}.safetensors", links=links))
        (one,), (other,) = (network(batch_of(seen)).most_likely() for seen in (found, dearer))
        assert np.array_equal(one, other) != links


def test_moved_means_are_those_of_a_network_with_other_weights(tmp_path):
    network, batch = load_network(write_direct_weights(tmp_path / "w.safetensors")), batch_of(problems(bandwidth=1e6))
    directions = torch.from_numpy(np.random.default_rng(1).standard_normal((1, 8), dtype=np.float32))
    with torch.inference_mode():
        hidden = network.hidden(batch)
        found = network.policy(batch, *hidden).moved(hidden, directions)
        network.of_op[-1].weight[0] += directions[0, :4]
        network.of_graph[-1].weight[0] += directions[0, 4:]
        for keys, wanted in zip(found, network(batch).most_likely(), strict=True):
            np.testing.assert_allclose(keys, wanted, atol=1e-5)
