"""From a priority per op to orders and their probability (Topoformer 4.2); orders tightened from both ends (ours)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.base.arrays import FloatArray, IndexArray, IntArray
from ...core.graph.buffers import Buffers
from ...core.kernels.orders import priority_orders
from ...core.kernels.orders.priority_beam import beam

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


WIDTHS = (1, 2, 4, 8, 16)  # partial orders that a pass keeps, each width where those of the one before are stuck
WIDER = 4  # how many times its first width a beam of both ends may have at last
DRAWS = 60  # passes by priorities that are drawn anew each time


def tightened(
    b: Buffers,
    decoded: Decoded,
    priorities: FloatArray | None = None,
    *,
    most: float = math.inf,
    bound: int = 0,
    must_stop: Callable[[], bool] = lambda: False,
) -> tuple[Decoded, int]:
    """Return orders of no higher peaks, in the rows of those that they were made of; and the passes over them."""
    # A pass makes an order anew, from its first op or its last one, below the best peak of all: the op that stood first
    # (or last) of those that stay below, and at once any that leaves no more resident. Where both ends are stuck the
    # next order follows, and after all of them the best again, by beams that keep up to the last of `WIDTHS`; then
    # passes by drawn priorities, and if these found something, the beams again.
    passes = _Passes(b, decoded, most, bound, must_stop)
    for row in np.argsort(decoded.peaks, kind="stable"):
        passes.go_through(int(row), 1)
    for width in WIDTHS[1:]:
        passes.go_through(passes.best, width)
    if priorities is not None and passes.draw(priorities):
        for width in WIDTHS:
            passes.go_through(passes.best, width)
    return Decoded(passes.orders, passes.peaks), passes.count


class _Passes:
    """Orders, their peaks, and the passes that were made."""

    def __init__(self, b: Buffers, decoded: Decoded, most: float, bound: int, must_stop: Callable[[], bool]) -> None:
        self.buffers, self.most, self.bound, self.must_stop = b, most, bound, must_stop
        self.orders, self.peaks, self.count = decoded.orders.copy(), decoded.peaks.copy(), 0

    @property
    def best(self) -> int:
        """Row of the order of least peak."""
        return int(self.peaks.argmin())

    def has_room_for(self, width: int) -> bool:
        """Whether a pass of this width may be made."""
        return bool(self.peaks.min() > self.bound) and self.count + width <= self.most and not self.must_stop()

    def make(self, row: int, priorities: FloatArray, width: int, is_backward: bool) -> bool:
        """Put an order of lower peak than any in a row; False where there is none."""
        below, must_stop = int(self.peaks.min()), self.must_stop
        found = beam(self.buffers, priorities, width, is_backward=is_backward, limit=below, must_stop=must_stop)
        self.count += width
        if len(found.orders):
            self.orders[row], self.peaks[row] = found.orders[0], found.peaks[0]
        return len(found.orders) > 0

    def go_through(self, row: int, width: int) -> None:
        """Make a row's order anew until both ends are stuck."""
        is_backward, stuck = False, 0
        while stuck < 2 and self.has_room_for(width):
            is_made = self.make(row, _by_place(self.orders[row]), width, is_backward)
            stuck, is_backward = 0 if is_made else stuck + 1, not is_backward

    def draw(self, priorities: FloatArray) -> bool:
        """Make orders by drawn priorities, from either end in turn; whether one had a lower peak."""
        rng, before = np.random.default_rng(0), self.peaks.min()
        for number in range(DRAWS):
            if not self.has_room_for(1):
                break
            self.make(self.best, priorities + rng.gumbel(size=len(priorities)), 1, number % 2 == 1)
        return bool(self.peaks.min() < before)


def _by_place(order: IndexArray) -> FloatArray:
    """Return priorities by which greedy decoding makes this very order."""
    priorities = np.empty(len(order))
    priorities[order] = -np.arange(len(order))
    return priorities


def decode_two_way(
    b: Buffers,
    priorities: Any,
    width: int,
    *,
    most: float = math.inf,
    bound: int = 0,
    must_stop: Callable[[], bool] = lambda: False,
) -> tuple[Decoded, int]:
    """Return the orders found, the best first, each better than those behind; and the partial orders kept per op."""
    # The first beam goes forward without a limit, as the paper's; the others keep below the best peak so far: from the
    # other end where one finds nothing, and then twice as wide, up to `WIDER` times the first.
    found = beam(b, priorities, width, must_stop=must_stop)
    if not len(found.orders):
        return decode_greedy(b, priorities), width
    orders, peaks, kept = [found.orders[0]], [int(found.peaks[0])], width
    wide, is_backward, failed = width, False, 0
    while peaks[-1] > bound and wide <= WIDER * width and kept + wide <= most and not must_stop():
        found = beam(b, priorities, wide, is_backward=is_backward, limit=peaks[-1], must_stop=must_stop)
        kept += wide
        if len(found.orders):
            orders.append(found.orders[0])
            peaks.append(int(found.peaks[0]))
            failed = 0
            continue
        is_backward, failed = not is_backward, failed + 1
        if failed == 2:
            wide, failed = 2 * wide, 0
    return Decoded(np.array(orders[::-1]), np.array(peaks[::-1], np.int64)), kept
