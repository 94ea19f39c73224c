"""Topoformer's encoder against attention written out op by op, over relations that networkx finds."""

import networkx as nx
import numpy as np
import pytest
import torch
from models import batches
from schedopt.policies.topoformer import encoders
from schedopt.policies.topoformer.encoders import make_encoder, relations_of
from schedopt.policies.topoformer.features import batch_of, encode

INPUTS, LAYERS, WIDTH, HEAD_WIDTH = 6, 2, 8, 3
ABLATION = ["mlp", "transformer", "edge-transformer", "gat", "gat-bidirectional"]
UNEQUAL = (2, 1, 3, 1, 2, 1, 4), False
SOME_HEADS = {
    "unequal": UNEQUAL,
    "tied": ((2, 1, 3, 2, 1, 3, 2), True),
    "reduction and incomparable alone": ((1, 0, 0, 0, 0, 0, 2), False),
    "backwards alone": ((0, 0, 0, 1, 1, 2, 0), False),
    "closure alone, tied": ((0, 0, 2, 0, 0, 2, 0), True),
}


def drawn(module, seed=0):
    """Draw all parameters, biases and scales included, so that none of them can be forgotten."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator))
    return module


def encoder_of(heads=UNEQUAL, layers=LAYERS, seed=0):
    return drawn(make_encoder("topoformer", INPUTS, layers, WIDTH, heads[0], HEAD_WIDTH, heads[1]), seed)


def seven_relations(plain):
    """The graphs of section 4.1 by networkx, as sets of (listener, speaker), in the order of `RELATIONS`."""
    dag = nx.DiGraph([(first, second) for second in plain.ops for first in plain.before[second]])
    dag.add_nodes_from(plain.ops)
    edges, closure = set(dag.edges), set(nx.transitive_closure_dag(dag).edges)
    reduction = set(nx.transitive_reduction(dag).edges)
    forward = [{(second, first) for first, second in part} for part in (reduction, edges - reduction, closure - edges)]
    back = [{(speaker, listener) for listener, speaker in part} for part in forward]
    comparable = closure | {(second, first) for first, second in closure}
    return [*forward, *back, {(a, b) for a in plain.ops for b in plain.ops if a != b} - comparable]


def some_plains(seed, *sizes):
    return [plain for _, plain in batches.random_plains(seed, *sizes)]


@pytest.mark.parametrize("seed", range(8))
def test_each_pair_is_in_the_relation_that_networkx_finds(seed):
    """Through all that is between a graph and the network, in batches of graphs of different sizes."""
    pairs = batches.random_plains([1, seed], 11, 1, 2, 17, 6)
    found = relations_of(batch_of([encode(graph, 2) for graph, _ in pairs]))
    ops = 17
    for at, (_, plain) in enumerate(pairs):
        expected, total = seven_relations(plain), 0
        for relation, wanted in zip(found, expected, strict=True):
            if isinstance(relation, torch.Tensor):
                rows = relation[at].nonzero().tolist()
            else:
                relation = torch.stack((relation.sources, relation.targets))
                inside = (relation >= at * ops) & (relation < (at + 1) * ops)
                assert (inside[0] == inside[1]).all()
                rows = (relation[:, inside[0]] - at * ops).flip(0).T.tolist()
            assert sorted(map(tuple, rows)) == sorted(wanted)
            total += len(rows)
        assert total == len(plain.ops) * (len(plain.ops) - 1)


def naive_attention(attention, heads, embeddings, relations):
    """Eq. 4 op by op and head by head; of tied relations the second uses the heads of the first."""
    counts, are_tied = heads
    starts = np.cumsum([0, *counts]).tolist()
    of_relations = [*zip(starts, counts, strict=False)]
    if are_tied:
        of_relations = of_relations[:3] * 2 + [(starts[3], counts[6])]
    queries, keys, values = (linear(embeddings) for linear in (attention.query, attention.key, attention.value))
    rows = []
    for op in range(len(embeddings)):
        heard = []
        for (start, count), relation in zip(of_relations, relations, strict=True):
            speakers = [speaker for listener, speaker in sorted(relation) if listener == op]
            for head in range(start, start + count):
                part = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
                if not speakers:
                    heard.append(torch.zeros(HEAD_WIDTH, dtype=embeddings.dtype))
                    continue
                weights = (keys[speakers, part] @ queries[op, part] / HEAD_WIDTH**0.5).softmax(0)
                heard.append(weights @ values[speakers, part])
        rows.append(attention.project(torch.cat(heard)))
    return torch.stack(rows)


def naive_encoder(encoder, heads, features, relations):
    hidden = encoder.embed(features)
    for layer in encoder.layers:
        hidden = hidden + naive_attention(layer.attention, heads, layer.attention_norm(hidden), relations)
        hidden = hidden + layer.perceptron(layer.perceptron_norm(hidden))
    return hidden


@pytest.mark.parametrize("listeners", [1, 4, 128])
@pytest.mark.parametrize("heads", SOME_HEADS.values(), ids=SOME_HEADS)
def test_attention_by_hand(monkeypatch, heads, listeners):
    """In double precision; some ops hear nobody along each relation, and the last graph's op along none."""
    monkeypatch.setattr(encoders, "LISTENERS_AT_ONCE", listeners)
    plains = some_plains(2, 13, 7, 1)
    encoder = encoder_of(heads).double()
    batch = batches.graph_batch(plains, INPUTS, padding=2)
    batch = batch._replace(features=batch.features.double())
    embeddings = encoder(batch)
    for graph, plain in enumerate(plains):
        relations = seven_relations(plain)
        assert all(len({listener for listener, _ in relation}) < len(plain.ops) for relation in relations[:6])
        expected = naive_encoder(encoder, heads, batch.features[graph, plain.ops], relations)
        torch.testing.assert_close(embeddings[graph, plain.ops], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_the_papers_size():
    """C.2, 100 ops; per layer 3 (256 + 1) 4480 + (4480 + 1) 256 + 2 (256 + 1) 256 + 4 * 256 parameters."""
    encoder = make_encoder("topoformer", 28, 4, 256, (10,) * 7, 64)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 29 * 256 + 4 * 4_733_824
    batch = batches.graph_batch(some_plains(9, 100), 28)
    with torch.no_grad():
        embeddings = encoder(batch)
    assert embeddings.isfinite().all()
    assert embeddings.std(1).min() > 0.01


def ablation_encoder(name, layers=LAYERS, seed=0):
    return drawn(make_encoder(name, INPUTS, layers, WIDTH, (2,), HEAD_WIDTH), seed)


def speakers(name, plain, op):
    """Whom an op listens to in one layer."""
    around = {
        "mlp": set(),
        "transformer": set(plain.ops),
        "edge-transformer": set(plain.before[op]) | set(plain.after[op]),
        "gat": set(plain.before[op]),
        "gat-bidirectional": set(plain.before[op]) | set(plain.after[op]),
    }[name]
    return around | {op}


@pytest.mark.parametrize("name", ABLATION)
def test_an_op_depends_on_those_it_can_hear_through_the_layers(name):
    """By the gradients of each op's embedding; in a batch of two graphs, one of them padded."""
    plains = [plain for _, plain in batches.random_plains(4, 12, 9)]
    batch, encoder = batches.graph_batch(plains, INPUTS), ablation_encoder(name)
    features = batch.features.clone().requires_grad_()
    embeddings = encoder(batch._replace(features=features))
    some = 0
    for graph, plain in enumerate(plains):
        for op in plain.ops:
            heard = {op}
            for _ in range(LAYERS):
                heard = set().union(*(speakers(name, plain, other) for other in heard))
            (gradient,) = torch.autograd.grad(embeddings[graph, op].norm(), features, retain_graph=True)
            found = (gradient.abs().sum(2) > 0).nonzero().tolist()
            assert found == [[graph, other] for other in sorted(heard)]
            some += len(heard) < len(plain.ops)
    assert (some == 0) == (name == "transformer")


@pytest.mark.parametrize("name", ABLATION)
def test_padding_and_company_do_not_matter(name):
    """What is padded holds nonsense; one graph is a single op, without any edge."""
    plains = [plain for _, plain in batches.random_plains(5, 9, 1, 14)]
    encoder = ablation_encoder(name)
    together = encoder(batches.graph_batch(plains, INPUTS, padding=3))
    for graph, plain in enumerate(plains):
        alone = encoder(batches.graph_batch([plain], INPUTS))
        torch.testing.assert_close(alone[0], together[graph, plain.ops])
        assert together[graph, plain.ops].isfinite().all()


@pytest.mark.parametrize("name", ["transformer", "edge-transformer"])
@pytest.mark.parametrize("seed", range(3))
def test_attention_along_one_relation_by_hand(name, seed):
    (plain,) = some_plains(seed, 10)
    batch, encoder = batches.graph_batch([plain], INPUTS), ablation_encoder(name, layers=1, seed=seed)
    relation = {(op, other) for op in plain.ops for other in speakers(name, plain, op)}
    expected = naive_encoder(encoder, ((2,), False), batch.features[0], [relation])
    torch.testing.assert_close(encoder(batch)[0], expected)
