"""What the levels that REGAL chooses stand for: the formulas of A.6, and which gene each is for."""

import naive
import numpy as np
import pytest
from schedopt import Problem, Search
from schedopt.core.solvers.placements.chromosomes import Chromosomes
from schedopt.policies.regal.actions import ActionParameters, beta_parameters, dequantise
from scipy import stats

LEVELS = (2, 4, 5, 11, 16)


def by_the_paper(m, v, k):
    """Alpha and beta as A.6 writes them."""
    mu = (m + 1) / (k + 1)
    variance = mu * (1 - mu) * (v + 1) / (k + 1)
    beta = mu * (1 - mu) ** 2 / variance - 1 + mu
    return beta * mu / (1 - mu), beta


@pytest.mark.parametrize("k", LEVELS)
def test_every_pair_of_levels_is_the_papers_beta_distribution(k):
    """By its formulas, and by the mean and variance that scipy gives for the result."""
    seen = set()
    for m in range(k):
        for v in range(k):
            alpha, beta = beta_parameters(m, v, k)
            assert (alpha, beta) == pytest.approx(by_the_paper(m, v, k), rel=1e-12)
            mean, variance = stats.beta.stats(alpha, beta)
            assert mean == pytest.approx((m + 1) / (k + 1))
            assert variance == pytest.approx((m + 1) * (k - m) * (v + 1) / (k + 1) ** 3)
            seen.add((alpha, beta))
    assert len(seen) == k * k
    levels = np.arange(k)
    alphas, betas = beta_parameters(levels[:, None], levels[None], k)
    assert {(a, b) for a, b in zip(alphas.flat, betas.flat, strict=True)} == seen


@pytest.mark.parametrize("k", range(2, 24))
def test_uniform_is_among_the_levels_where_six_divides_k_plus_one(k):
    """Exactly, so that such genes are drawn as plain BRKGA draws them."""
    pairs = [beta_parameters(m, v, k) for m in range(k) for v in range(k)]
    assert pairs.count((1.0, 1.0)) == ((k + 1) % 6 == 0)


def test_the_heads_of_the_paper():
    """(d + 1) pairs of mean and variance per op; its joint actions are 16 for placement and 4 for scheduling (A.13)."""
    heads = ActionParameters(2, 2).heads(2)
    assert [(head.kind, head.entry, head.what) for head in heads] == [
        ("placement", 0, "mean"),
        ("placement", 0, "variance"),
        ("placement", 1, "mean"),
        ("placement", 1, "variance"),
        ("scheduling", 2, "mean"),
        ("scheduling", 2, "variance"),
    ]
    assert np.prod([head.choices for head in heads if head.kind == "placement"]) == 16
    assert np.prod([head.choices for head in heads if head.kind == "scheduling"]) == 4


def expected_genes(plain, actions, devices, heads, bias):
    """Return (alpha, beta, bias) of each gene, its place in the chromosome written out (A.5)."""
    ops = len(plain.ops)
    genes = [[1.0, 1.0, bias] for _ in range(ops * (devices + 1) + len(plain.tensors) * devices)]
    for op in plain.ops:
        own = [op * devices + device for device in range(devices)] + [ops * devices + op]
        sent = [
            ops * (devices + 1) + plain.index[tensor] * devices + device
            for tensor in plain.outputs[op]
            for device in range(devices)
        ]
        level = dict(zip(((head.kind, head.entry, head.what) for head in heads), actions[op].tolist(), strict=True))
        for head in heads:
            for gene in sent if head.kind == "transfers" else [own[head.entry]]:
                if head.what == "bias":
                    genes[gene][2] = 0.5 * (1 + (level[head[:3]] + 1) / head.choices)
                elif head.what in ("alpha", "beta"):
                    genes[gene][head.what == "beta"] = 0.25 * 64 ** (level[head[:3]] / (head.choices - 1))
                else:
                    pair = (level[head.kind, head.entry, what] for what in ("mean", "variance"))
                    genes[gene][:2] = by_the_paper(*pair, head.choices)
    return np.array(genes).T


@pytest.mark.parametrize("seed", range(12))
def test_each_gene_gets_what_was_chosen_for_it(seed):
    rng = np.random.default_rng([70, seed])
    graph, plain = naive.random_graph(rng, 10)
    devices = int(rng.integers(1, 9))
    ks = [int(k) for k in rng.choice([0, 2, 3, 5, 16], 4)]
    kind = ("mean-variance", "alpha-beta")[seed % 2]
    parameters = ActionParameters(*ks, levels=kind) if any(ks) else ActionParameters(levels=kind)
    heads = parameters.heads(devices)
    actions = np.column_stack([rng.integers(0, head.choices, graph.num_ops) for head in heads])
    found = dequantise(actions, graph, devices, parameters, 0.6)
    alpha, beta, bias = expected_genes(plain, actions, devices, heads, 0.6)
    assert len(found.alpha) == Chromosomes(Search(Problem(graph, devices=devices))).genes
    np.testing.assert_allclose(found.alpha, alpha, rtol=1e-12)
    np.testing.assert_allclose(found.beta, beta, rtol=1e-12)
    np.testing.assert_allclose(found.bias, bias, rtol=1e-12)
