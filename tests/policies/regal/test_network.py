"""REGAL's networks: eq. 1 edge by edge, and distributions over actions against their definitions."""

import math
from collections import Counter
from itertools import product

import naive
import numpy as np
import pytest
import torch
from models.frequencies import chi_square
from schedopt import Problem, Search
from schedopt.policies.regal.actions import ActionParameters
from schedopt.policies.regal.features import searched_graph
from schedopt.policies.regal.network import BaselineNetwork, RegalNetwork, RegalNetworkParameters, multigraph_batch

UPDATES = [(update, aggregation) for update in ("gru", "residual", "mlp") for aggregation in ("mean", "sum")]
KINDS = [("gnn", "independent"), ("lstm", "independent"), ("gnn", "autoregressive"), ("lstm", "autoregressive")]


def network_of(seed=0, kind=RegalNetwork, spread=40.0, **parameters):
    """A small network whose choices differ enough from uniform ones for a mistake to be seen."""
    torch.manual_seed(seed)
    network = kind(RegalNetworkParameters(**{"width": 8, **parameters})).eval()
    choices = getattr(network, "choose", getattr(getattr(network, "autoregressive", None), "choose", None))
    if choices is not None:
        with torch.no_grad():
            for parameter in choices.layers[2].parameters():
                parameter.mul_(spread)
    return network


def graphs_of(seed, *sizes, task="runtime", devices=2):
    problems = [Problem(naive.random_graph(np.random.default_rng([seed, ops]), ops)[0], task, devices) for ops in sizes]
    return [searched_graph(Search(problem, max_evaluations=30)) for problem in problems]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def by_hand(encoder, graph, rounds, update, aggregation):
    """Eq. 1, node by node and edge by edge."""
    nodes = [encoder.embed_node(row) for row in torch.from_numpy(graph.nodes)]
    edges = [encoder.embed_edge(row) for row in torch.from_numpy(graph.edges)]
    ends = list(zip(graph.producers.tolist(), graph.consumers.tolist(), strict=True))
    for _ in range(rounds):
        following = []
        for node, own in enumerate(nodes):
            heard = torch.zeros_like(own)
            for message, end in ((encoder.forwards, 1), (encoder.backwards, 0)):
                messages = [
                    message(torch.cat((nodes[pair[0]], nodes[pair[1]], edge)))
                    for pair, edge in zip(ends, edges, strict=True)
                    if pair[end] == node
                ]
                if messages:
                    heard = heard + (sum(messages) / len(messages) if aggregation == "mean" else sum(messages))
            if update == "gru":
                following.append(encoder.update(heard[None], own[None])[0])
            else:
                updated = encoder.update(torch.cat((own, heard)))
                following.append(own + updated if update == "residual" else updated)
        nodes = following
    return torch.stack(nodes)


@pytest.mark.slow
@pytest.mark.parametrize(("update", "aggregation"), UPDATES)
@pytest.mark.parametrize("rounds", [0, 3])
def test_messages_by_hand(update, aggregation, rounds):
    (graph,) = graphs_of(1, 12)
    encoder = network_of(update=update, aggregation=aggregation, rounds=rounds).encoder
    assert len(graph.edges) > len(set(zip(graph.producers.tolist(), graph.consumers.tolist(), strict=True)))
    with torch.no_grad():
        found = encoder(multigraph_batch([graph]))
        torch.testing.assert_close(found, by_hand(encoder, graph, rounds, update, aggregation), rtol=1e-4, atol=1e-5)


def test_the_sequence_model_by_hand():
    """Eq. 6 to 11 along the input order, which is not that of the indices."""
    (graph,) = graphs_of(4, 13)
    order = graph.problem.graph.input_order.tolist()
    assert order != sorted(order)
    encoder = network_of(encoder="lstm").encoder
    found = encoder(multigraph_batch([graph]))
    weights = (encoder.lstm.weight_ih_l0, encoder.lstm.weight_hh_l0)
    biases = (encoder.lstm.bias_ih_l0, encoder.lstm.bias_hh_l0)
    output = memory = torch.zeros(8)
    for op in order:
        inputs = encoder.embed_node(torch.from_numpy(graph.nodes[op]))
        gates = sum(w @ x + b for w, x, b in zip(weights, (inputs, output), biases, strict=True))
        i, f, g, o = gates.split(8)
        memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
        output = o.sigmoid() * memory.tanh()
        torch.testing.assert_close(found[op], output, rtol=1e-4, atol=1e-6)


def test_the_baseline_by_hand():
    graphs = graphs_of(7, 6, 11)
    network = network_of(8, BaselineNetwork)
    with torch.no_grad():
        found = network(multigraph_batch(graphs))
        for graph, value in zip(graphs, found, strict=True):
            embeddings = by_hand(network.encoder, graph, 2, "gru", "mean")
            expected = network.of_graph(sum(network.of_node(row) for row in embeddings) / len(embeddings))
            torch.testing.assert_close(value, expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("task", "devices"), [("memory", 2), ("memory", 8), ("runtime", 5)])
@pytest.mark.parametrize(("encoder", "decoder"), KINDS)
def test_a_batch_is_its_graphs(encoder, decoder, task, devices):
    """The same probabilities, surest actions and entropies as alone, whatever the sizes."""
    graphs = graphs_of(9, 7, 1, 12, task=task, devices=devices)
    network = network_of(encoder=encoder, decoder=decoder, task=task, devices=devices)
    with torch.no_grad():
        whole = network(multigraph_batch(graphs))
        actions = whole.sample(3, generator())
        likely, expected, probabilities = whole.most_likely(), whole.expected(), whole.log_probability(actions)
        assert probabilities.shape == (3, 3)
        starts = [0, 7, 8, 20]
        for at, graph in enumerate(graphs):
            mine = slice(starts[at], starts[at + 1])
            alone = network(multigraph_batch([graph]))
            assert torch.equal(alone.most_likely(), likely[mine])
            assert torch.equal(alone.expected(), expected[mine])
            found = alone.log_probability(actions[:, mine])[:, 0]
            torch.testing.assert_close(found, probabilities[:, at], rtol=1e-4, atol=1e-4)
            if decoder == "independent":
                torch.testing.assert_close(alone.entropy()[0], whole.entropy()[at], rtol=1e-4, atol=1e-5)


TINY = ActionParameters(placement=2, scheduling=3)


def all_actions(nodes, heads):
    """Every joint action, `(count, nodes, heads)`."""
    levels = [range(head.choices) for _ in range(nodes) for head in heads]
    return torch.tensor(list(product(*levels))).view(-1, nodes, len(heads))


def tiny_policy(decoder, ops=2, actions=None, **options):
    actions = actions or ActionParameters(placement=2, scheduling=0)
    network = network_of(10, decoder=decoder, actions=actions, **options)
    with torch.no_grad():
        return network(multigraph_batch(graphs_of(11, ops)))


@pytest.mark.parametrize(("encoder", "decoder"), KINDS)
def test_probabilities_of_all_joint_actions_add_up_to_one(encoder, decoder):
    for numbers, ops in (((2, 0), 2), ((0, 3, 2), 2), ((0, 0, 0, 3), 3)):
        actions = ActionParameters(*numbers)
        policy = tiny_policy(decoder, ops, actions, encoder=encoder)
        probabilities = policy.log_probability(all_actions(ops, policy.heads)).exp()
        assert len(probabilities) > 200
        assert probabilities.sum().item() == pytest.approx(1, rel=1e-4)
        assert probabilities.max() > 2 * probabilities.min()


@pytest.mark.parametrize("decoder", ["independent", "autoregressive"])
def test_samples_have_their_frequencies(decoder):
    """All 256 joint actions of two ops, drawn 40,000 times, the rarest together."""
    policy, count = tiny_policy(decoder), 40_000
    with torch.no_grad():
        every = all_actions(2, policy.heads)
        expected = policy.log_probability(every)[:, 0].exp().double()
        drawn = policy.sample(count, generator(1))
    expected = {tuple(joint): one for joint, one in zip(every.flatten(1).tolist(), expected.tolist(), strict=True)}
    often = [one for one in expected.values() if count * one > 10]
    assert len(often) > 50
    assert max(often) > 10 * min(often)
    assert chi_square(Counter(map(tuple, drawn.flatten(1).tolist())), expected) < 1


@pytest.mark.parametrize("decoder", ["independent", "autoregressive"])
def test_the_most_likely_actions(decoder):
    """Independent: of all joint ones; autoregressive: op by op, along the order."""
    policy = tiny_policy(decoder)
    every = all_actions(2, policy.heads)
    with torch.no_grad():
        probabilities, likely = policy.log_probability(every)[:, 0].exp(), policy.most_likely()
    if decoder == "autoregressive":
        for op in policy.batch.order.tolist():
            marginal = {tuple(row): 0.0 for row in every[:, op].tolist()}
            for row, probability in zip(every[:, op].tolist(), probabilities.tolist(), strict=True):
                marginal[tuple(row)] += probability
            best = torch.tensor(max(marginal, key=marginal.get))
            kept = (every[:, op] == best).all(1)
            every, probabilities = every[kept], probabilities[kept]
            assert torch.equal(likely[op], best)
    else:
        assert torch.equal(likely, every[probabilities.argmax()])


@pytest.mark.parametrize("decoder", ["independent", "autoregressive"])
def test_the_expected_actions(decoder):
    """Means of all joint actions, rounded; autoregressive: given those that the ops before expect."""
    policy = tiny_policy(decoder, actions=ActionParameters(0, 5))
    every = all_actions(2, policy.heads)
    with torch.no_grad():
        probabilities, found = policy.log_probability(every)[:, 0].exp(), policy.expected()
        assert not torch.equal(found, policy.most_likely())
    for op in policy.batch.order.tolist():
        mean = (probabilities[:, None] * every[:, op]).sum(0) / probabilities.sum()
        assert torch.equal(found[op], mean.round().long())
        if decoder == "autoregressive":
            kept = (every[:, op] == found[op]).all(1)
            every, probabilities = every[kept], probabilities[kept]


def entropy(probabilities):
    return -sum(p * math.log(p) for p in probabilities if p > 0)


def test_the_entropy_by_enumeration():
    """The joint one of an op's choices, for one kind and for all, averaged over the ops."""
    policy = tiny_policy("independent", 3, TINY)
    found = {kind: policy.entropy(kind).item() for kind in ("placement", "scheduling", None)}
    for kind, chosen in (("placement", range(4)), ("scheduling", (4, 5)), (None, range(6))):
        expected = 0.0
        for node in range(3):
            levels = [policy.logits[at][node].softmax(0).tolist() for at in chosen]
            expected += entropy([math.prod(joint) for joint in product(*levels)]) / 3
        assert found[kind] == pytest.approx(expected, rel=1e-5)
    assert found["placement"] < math.log(16)


@pytest.mark.parametrize("decoder", ["independent", "autoregressive"])
def test_samples_follow_the_generator_and_rise_with_its_draws(decoder):
    graphs = multigraph_batch(graphs_of(14, 20))
    network = network_of(15, decoder=decoder)
    with torch.no_grad():
        policy = network(graphs)
        one, same, other = (policy.sample(5, generator(seed)) for seed in (1, 1, 2))
        assert torch.equal(one, same)
        assert not torch.equal(one, other)
        assert torch.equal(one[:2], policy.sample(2, generator(1)))
        for parameter in network.parameters():
            parameter.add_(1e-4 * torch.randn(parameter.shape, generator=generator(3)))
        nearly = network(graphs).sample(5, generator(1))
    assert (nearly != one).float().mean() < 0.02
