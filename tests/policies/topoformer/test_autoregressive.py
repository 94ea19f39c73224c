"""The autoregressive decoder against its formulas written out, by enumeration, and against exact search."""

import itertools
import math
from collections import Counter

import naive
import numpy as np
import pytest
import torch
from models import batches
from models.frequencies import chi_square
from models.seeds import seeds
from schedopt.policies.topoformer.decoding import AutoregressiveDecoder

WIDTH, HEADS, CLIPPING = 12, 3, 5.0


def generator(seed):
    return torch.Generator().manual_seed(seed)


def decoder_of(seed, scale=2.0):
    """Weights large enough that the tanh clips and the choices differ."""
    decoder, draws = AutoregressiveDecoder(WIDTH, HEADS, CLIPPING), generator(seed)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.copy_(scale / math.sqrt(WIDTH) * torch.randn(parameter.shape, generator=draws))
    return decoder


def embeddings_of(batch, seed=0):
    """Embeddings of each graph that depend on it and the seed alone; not a number where padded."""
    embeddings = torch.full((*batch.is_op.shape, WIDTH), torch.nan)
    for graph, is_op in enumerate(batch.is_op):
        ops = int(is_op.sum())
        embeddings[graph, :ops] = torch.randn(ops, WIDTH, generator=generator(100 * seed + ops))
    return embeddings


def case(seed, *sizes, padding=0):
    """Return a decoder, embeddings, their batch, and the graphs."""
    pairs = batches.random_plains(seed, *sizes)
    batch = batches.graph_batch([plain for _, plain in pairs], padding=padding)
    return decoder_of(seed), embeddings_of(batch, seed), batch, pairs


def next_log_probabilities(decoder, embeddings, plain, executed):
    """Kool et al., section 3.2 and appendix A, head by head; returns the log-probability per ready op."""
    weight = {name: module.weight for name, module in decoder.named_children()}
    ready = plain.ready(executed)
    last = embeddings[executed[-1]] if executed else decoder.no_last[0]
    first = embeddings[executed[0]] if executed else decoder.no_first[0]
    context = torch.cat((embeddings.mean(0), last, first))
    query = torch.cat((weight["query_of_graph"], weight["query_of_last"], weight["query_of_first"]), dim=1) @ context
    heard = []
    for head in range(HEADS):
        part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
        names = ("glimpse_key", "glimpse_value")
        keys, values = ([weight[name][part] @ embeddings[op] for op in ready] for name in names)
        compared = torch.stack([query[part] @ key / math.sqrt(WIDTH / HEADS) for key in keys])
        heard.append(sum(share * value for share, value in zip(compared.softmax(0), values, strict=True)))
    glimpse = weight["project"] @ torch.cat(heard)
    keys = [weight["choice_key"] @ embeddings[op] for op in ready]
    logits = torch.stack([CLIPPING * torch.tanh(glimpse @ key / math.sqrt(WIDTH)) for key in keys])
    return dict(zip(ready, logits.log_softmax(0), strict=True))


def log_probability_by_steps(decoder, embeddings, plain, order):
    return sum(next_log_probabilities(decoder, embeddings, plain, order[:at])[op] for at, op in enumerate(order))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_log_probability_is_the_product_of_the_steps(seed):
    """In a padded batch, with several orders per graph, and its gradient too."""
    decoder, embeddings, batch, pairs = case(seed, 9, 1, 6, 12, padding=2)
    rng = np.random.default_rng(seed)
    orders = torch.full((4, 3, 14), -1)
    for graph, (_, plain) in enumerate(pairs):
        for row in range(3):
            orders[graph, row, plain.ops] = torch.tensor(naive.random_order(rng, plain))
    embeddings.requires_grad_()
    expected = torch.zeros(4, 3)
    for graph, (_, plain) in enumerate(pairs):
        ops = len(plain.ops)
        for row in range(3):
            order = orders[graph, row, :ops].tolist()
            expected[graph, row] = log_probability_by_steps(decoder, embeddings[graph, :ops], plain, order)
    found = decoder.log_probability(embeddings, batch, orders)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(4, 3, generator=generator(seed))
    inputs = (embeddings, *decoder.parameters())
    for one, other in zip(
        torch.autograd.grad((found * weights).sum(), inputs),
        torch.autograd.grad((expected * weights).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
        assert one.isfinite().all()


@pytest.mark.parametrize("seed", range(4))
def test_probabilities_of_all_orders_add_up_to_one_and_others_have_none(seed):
    """Every permutation of six ops that is no order has probability zero."""
    decoder, embeddings, batch, [(_, plain)] = case(seed, 6)
    valid = {tuple(order) for order in naive.all_orders(plain)}
    every = list(itertools.permutations(range(6)))
    found = decoder.log_probability(embeddings, batch, torch.tensor(every)[None])[0]
    assert 1 < len(valid) < len(every)
    for order, log_probability in zip(every, found.tolist(), strict=True):
        assert (log_probability > -math.inf) == (order in valid)
    assert found.exp().sum().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(3, quick=1))
def test_samples_have_the_frequencies_of_their_probabilities(seed):
    """Chi-square over all orders of a small graph that is padded and stands beside a larger one."""
    decoder, embeddings, batch, pairs = case(42 + seed, 5, 8)
    plain = pairs[0][1]
    orders = list(naive.all_orders(plain))
    rows = torch.full((2, len(orders), 8), -1)
    rows[0, :, :5] = torch.tensor(orders)
    rows[1] = decoder.roll_out(embeddings, batch)[1]
    probability = decoder.log_probability(embeddings, batch, rows)[0].detach().exp().double()
    drawn = decoder.roll_out(embeddings, batch, 20_000, generator(seed))[0, :, :5]
    seen = Counter(map(tuple, drawn.tolist()))
    assert len(orders) > 2
    assert set(seen) <= set(map(tuple, orders))
    assert chi_square(seen, dict(zip(map(tuple, orders), probability.tolist(), strict=True))) < 1


def beam_by_sets(decoder, embeddings, plain, width):
    """Beam search with state collapsing over lists and sets."""
    level = [((), 0.0, 0)]
    for _ in plain.ops:
        best = {}
        for order, score, peak in level:
            for op, gained in next_log_probabilities(decoder, embeddings, plain, order).items():
                reached = max(peak, plain.resident(order) + plain.own[op] + plain.workspace[op])
                state = ((*order, op), score + gained.item(), reached)
                known = best.get(frozenset(state[0]))
                if known is None or (reached, -state[1]) < (known[2], -known[1]):
                    best[frozenset(state[0])] = state
        level = sorted(best.values(), key=lambda state: -state[1])[:width]
    return level[0]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_beam_by_sets(seed, width):
    decoder, embeddings, batch, pairs = case(seed, 10, 7, 12)
    decoded = decoder.beam(embeddings, batch, [graph.buffers for graph, _ in pairs], width)
    if width == 1:
        assert torch.equal(decoded, decoder.roll_out(embeddings, batch))
    for graph, (_, plain) in enumerate(pairs):
        order, *_ = beam_by_sets(decoder, embeddings[graph, plain.ops], plain, width)
        assert decoded[graph, 0, plain.ops].tolist() == list(order)


@pytest.mark.parametrize("seed", range(6))
def test_a_beam_that_cuts_nothing_is_optimal(seed):
    """Whatever the weights."""
    decoder, embeddings, batch, pairs = case(seed, 8, 9)
    decoded = decoder.beam(embeddings, batch, [graph.buffers for graph, _ in pairs], 1000)
    for graph, (_, plain) in enumerate(pairs):
        order = decoded[graph, 0, plain.ops].tolist()
        assert naive.order_peak(plain, order) == naive.least_peak(plain)
