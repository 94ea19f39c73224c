"""The encoders of the ablation: who hears whom, and that nothing else matters."""

import pytest
import torch
from models import batches
from schedopt.policies.topoformer.encoders import make_encoder

INPUTS, LAYERS, WIDTH, HEADS, HEAD_WIDTH = 6, 2, 8, 2, 5
NAMES = ["mlp", "transformer", "edge-transformer", "gat", "gat-bidirectional"]


def encoder_of(name, layers=LAYERS, seed=0):
    """Biases too are drawn, so that none of them can be forgotten."""
    encoder = make_encoder(name, INPUTS, layers, WIDTH, (HEADS,), HEAD_WIDTH)
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=draws))
    return encoder


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


@pytest.mark.parametrize("name", NAMES)
def test_an_op_depends_on_those_it_can_hear_through_the_layers(name):
    """By the gradients of each op's embedding; in a batch of two graphs, one of them padded."""
    plains = [plain for _, plain in batches.random_plains(4, 12, 9)]
    batch, encoder = batches.graph_batch(plains, INPUTS), encoder_of(name)
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


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_company_do_not_matter(name):
    """What is padded holds nonsense; one graph is a single op, without any edge."""
    plains = [plain for _, plain in batches.random_plains(5, 9, 1, 14)]
    encoder = encoder_of(name)
    together = encoder(batches.graph_batch(plains, INPUTS, padding=3))
    for graph, plain in enumerate(plains):
        alone = encoder(batches.graph_batch([plain], INPUTS))
        torch.testing.assert_close(alone[0], together[graph, plain.ops])
        assert together[graph, plain.ops].isfinite().all()


def attention_by_hand(name, encoder, features, plain):
    """One layer op by op: h + W concat_heads(softmax(q k / sqrt(head width)) v), then h + MLP(h) (eq. 4, 5)."""
    layer, embeddings = encoder.layers[0], encoder.embed(features)
    attention, normal = layer.attention, layer.attention_norm(embeddings)
    queries, keys, values = (linear(normal) for linear in (attention.query, attention.key, attention.value))
    rows = []
    for op in plain.ops:
        others, heard = sorted(speakers(name, plain, op)), []
        for head in range(HEADS):
            part = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
            scores = torch.stack([queries[op, part] @ keys[other, part] for other in others]) / HEAD_WIDTH**0.5
            heard.append(scores.softmax(0) @ values[others, part])
        hidden = embeddings[op] + attention.project(torch.cat(heard))
        rows.append(hidden + layer.perceptron(layer.perceptron_norm(hidden)))
    return torch.stack(rows)


@pytest.mark.parametrize("name", ["transformer", "edge-transformer"])
@pytest.mark.parametrize("seed", range(3))
def test_attention_by_hand(name, seed):
    [(_, plain)] = batches.random_plains(seed, 10)
    batch, encoder = batches.graph_batch([plain], INPUTS), encoder_of(name, layers=1, seed=seed)
    expected = attention_by_hand(name, encoder, batch.features[0], plain)
    torch.testing.assert_close(encoder(batch)[0], expected)
