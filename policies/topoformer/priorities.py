"""The non-autoregressive decoder: from one priority per op to orders, and their probability (Topoformer 4.2)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.base.arrays import IndexArray, IntArray
from ...core.graph.graph import Buffers
from ...core.kernels.orders import priority_orders

_ROUNDING = 8.0


class Decoded(NamedTuple):
    """Orders of one graph and what they cost."""

    orders: IndexArray  # orders of one graph, shape `(rows, ops)`
    peaks: IntArray  # peak memory of each order on one device in bytes, persistent ones left out, shape `(rows,)`


def normalised_priorities(priorities: Tensor, is_op: Tensor | None = None, alpha: float = 5.0) -> Tensor:
    """Return priorities shifted and scaled to mean 0 and standard deviation `alpha` over each graph's ops (eq. 17)."""
    values = _at_least_float32(priorities)
    if is_op is None:
        is_op = torch.ones_like(values, dtype=torch.bool)
    values = values.masked_fill(~is_op, 0.0)
    count = is_op.sum(-1, keepdim=True).clamp(min=1)
    centred = (values - values.sum(-1, keepdim=True) / count).masked_fill(~is_op, 0.0)
    variance = centred.square().sum(-1, keepdim=True) / count
    rounding = _ROUNDING * torch.finfo(values.dtype).eps * values.detach().abs().amax(-1, keepdim=True)
    is_constant = variance <= rounding.square()
    scaled = alpha * centred / variance.masked_fill(is_constant, 1.0).sqrt()
    return scaled.masked_fill(is_constant, 0.0)


def order_log_probability(priorities: Tensor, orders: Tensor, ready_steps: Tensor) -> Tensor:
    """Return the log-probability of whole orders: at each step, a softmax over the ops that are ready (eq. 6, 8)."""
    # An op is ready from the step after its last predecessor up to its own. Each such stretch of steps is cut into at
    # most 2 log2(ops) nodes of a binary tree over the steps; a node takes the log-sum-exp of the ops that have it, a
    # step that of the nodes above it: O(rows ops log(ops)), all terms added and none subtracted.
    rows, ops = orders.shape
    orders, first = orders.long(), ready_steps.long()
    is_step = orders >= 0
    steps = torch.arange(ops, device=orders.device)
    last = orders.new_full((rows, ops + 1), -1)
    last.scatter_(1, orders.masked_fill(~is_step, ops), steps.expand(rows, ops))
    last = last[:, :ops]
    values = _at_least_float32(priorities).masked_fill(last < 0, 0.0)
    denominator = _log_sum_exp_of_stretches(values, first.masked_fill(last < 0, 0), last)
    chosen = values.gather(1, orders.clamp(min=0))
    return (chosen - denominator).masked_fill(~is_step, 0.0).sum(1)


def _log_sum_exp_of_stretches(values: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Return per step the log-sum-exp of the values whose stretch `first` to `last` holds it, all `(rows, ops)`."""
    rows, ops = values.shape
    levels = max(ops - 1, 0).bit_length()
    leaves = 2**levels
    nodes = _nodes_of_stretches(first, last, levels)  # (rows, ops * 2 (levels + 1))
    repeated = values.repeat_interleave(2 * (levels + 1), 1)
    least = torch.finfo(values.dtype).min
    largest = values.new_full((rows, 2 * leaves + ops), least)
    largest.scatter_reduce_(1, nodes, repeated.detach(), "amax")
    total = torch.zeros_like(largest).scatter_add(1, nodes, (repeated - largest.gather(1, nodes)).exp())

    steps = torch.arange(ops, device=values.device) + leaves
    above = torch.stack([steps >> level for level in range(levels + 1)])  # (levels + 1, ops)
    largest_above = largest[:, above]  # (rows, levels + 1, ops)
    most = largest_above.amax(1)
    sums = (total[:, above] * (largest_above - most[:, None]).exp()).sum(1)
    is_empty = most == least
    return (most + sums.masked_fill(is_empty, 1.0).log()).masked_fill(is_empty, 0.0)


def _nodes_of_stretches(first: Tensor, last: Tensor, levels: int) -> Tensor:
    """Return the nodes that make up the steps `first` to `last`, in a tree with `levels` levels above its leaves."""
    leaves = 2**levels
    unused = torch.arange(2 * leaves, 2 * leaves + first.shape[1], device=first.device)
    low, high = first + leaves, last + leaves + 1
    nodes = []
    for _ in range(levels + 1):
        is_open = low < high
        starts, ends = is_open & (low % 2 == 1), is_open & (high % 2 == 1)
        nodes += [low.where(starts, unused), (high - 1).where(ends, unused)]
        low, high = (low + 1) >> 1, high >> 1
    return torch.stack(nodes, -1).flatten(1)


def _at_least_float32(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()


def decode_greedy(b: Buffers, priorities: Any) -> Decoded:
    """Take the ready op of highest priority at each step, ties by index (4.2, item 1)."""
    orders = priority_orders.greedy(b, priorities)
    return Decoded(orders, priority_orders.price_orders(b, orders))


def decode_samples(b: Buffers, priorities: Any, count: int, rng: np.random.Generator) -> Decoded:
    """Draw `count` orders from the distribution of eq. 8 by priorities of shape `(ops,)` (4.2, item 2)."""
    orders = priority_orders.sample(b, priorities, count, rng)
    return Decoded(orders, priority_orders.price_orders(b, orders))
