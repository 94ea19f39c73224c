"""The network of `direct`: a correction of the rule, the same in any batch, whose draws are as likely as it says."""

import dataclasses

import naive
import numpy as np
import pytest
import torch
from models.networks import write_direct_weights
from schedopt import Problem
from schedopt.policies.direct.keys import drawn, seen
from schedopt.policies.direct.network import DirectNetwork, DirectNetworkParameters, batch_of, load_network

SHAPE = DirectNetworkParameters(width=8, rounds=2)


def problems(**links):
    graphs = [naive.random_graph(np.random.default_rng([4, seed]), 10 + 5 * seed)[0] for seed in range(3)]
    return [seen(Problem(graph, "runtime", devices=2, **links)) for graph in graphs]


def test_before_training_the_keys_are_the_rules():
    found = problems(bandwidth=1e6)
    for keys, problem in zip(DirectNetwork(SHAPE)(batch_of(found)).most_likely(), found, strict=True):
        np.testing.assert_array_equal(keys, problem.rule)


def test_what_else_is_in_the_batch_does_not_matter(tmp_path):
    network, found = load_network(write_direct_weights(tmp_path / "w.safetensors")), problems(bandwidth=1e6)
    together = network(batch_of(found)).most_likely()
    for keys, problem in zip(together, found, strict=True):
        np.testing.assert_allclose(network(batch_of([problem])).most_likely()[0], keys, atol=1e-5)
        assert not np.allclose(keys, problem.rule)


def test_draws_come_in_their_orders_as_often_as_their_probability_says(tmp_path):
    """The three orders of two ops of which one is nearly as urgent, and of a third: by enumeration and by drawing."""
    (found,) = problems()[:1]
    network = load_network(write_direct_weights(tmp_path / "w.safetensors"))
    policy = network(batch_of([found]))
    mean = torch.zeros_like(policy.mean)
    mean[:] = torch.linspace(1, 0, len(mean))
    mean[1] = mean[0] + 0.03
    policy = dataclasses.replace(policy, mean=mean)
    keys = drawn(policy.most_likely()[0], 40_000, np.random.default_rng(0))
    orders = np.argsort(-keys[:, :-1], axis=1)
    kinds, first, counts = np.unique(orders, axis=0, return_index=True, return_counts=True)
    chances = np.exp(len(mean) * policy.log_probability([keys[first]])[0].detach().numpy())
    assert chances.sum() == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(counts / len(orders), chances, atol=0.01)
    assert sorted(counts)[-2] > 1000 and len(kinds) > 2
