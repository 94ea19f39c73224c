"""Splits of graphs into sets of similar sizes, no topology in two of them (REGAL A.1.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ..core.base.errors import UsageError

PARTS = ("train", "valid", "test")
Ratio = tuple[int, int, int]


def parse_ratio(text: str) -> Ratio:
    """Parse `3-1-1` as the shares of train, valid and test; UsageError unless the first is above 0."""
    if not re.fullmatch(r"[1-9]\d{0,3}-\d{1,4}-\d{1,4}", text):
        raise UsageError(f"the split '{text}' is not understood; write train-valid-test like 3-1-1")
    train, valid, test = map(int, text.split("-"))
    return train, valid, test


def _shares_of_rest(count: int, ratio: Ratio) -> list[int]:
    """Share `count` out by largest remainder; between equal remainders the earlier set comes first."""
    exact = [count * share / sum(ratio) for share in ratio]
    shares = [int(value) for value in exact]
    by_remainder = sorted(range(3), key=lambda part: shares[part] - exact[part])
    for part in by_remainder[: count - sum(shares)]:
        shares[part] += 1
    return shares


def split_by_size(graphs: Sequence[tuple[int, str]], ratio: Ratio, seed: int) -> list[str]:
    """Assign each graph to `train`, `valid` or `test`."""
    # Groups of as many graphs as the ratio adds up to, sorted by number of ops, are each split at random.
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    order = sorted(range(len(graphs)), key=lambda i: graphs[i])
    parts = [""] * len(graphs)
    size = sum(ratio)
    for start in range(0, len(order), size):
        group = order[start : start + size]
        shares = list(ratio) if len(group) == size else _shares_of_rest(len(group), ratio)
        labels = [part for part, share in zip(PARTS, shares, strict=True) for _ in range(share)]
        for graph, place in zip(group, rng.permutation(len(group)).tolist(), strict=True):
            parts[graph] = labels[place]
    return parts
