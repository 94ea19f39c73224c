"""From priorities to orders and their probability (Topoformer 4.2), orders tightened, and op by op (appendix B)."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ...core.base.arrays import FloatArray, IndexArray, IntArray
from ...core.graph.graph import Buffers
from ...core.kernels.orders import priority_orders
from ...core.kernels.orders.set_beam import beam, first_level, forward_walk, materialise, new_candidates
from .features import GraphBatch

_ROUNDING = 8.0


class Decoded(NamedTuple):
    """Orders of one graph and their costs."""

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
    return (alpha * centred / variance.masked_fill(is_constant, 1.0).sqrt()).masked_fill(is_constant, 0.0)


def order_log_probability(priorities: Tensor, b: Buffers, orders: IndexArray) -> Tensor:
    """Return the log-probability of whole orders of a graph: at each step, a softmax over ready ops (eq. 6, 8)."""
    # Shape `(rows,)`, for orders of shape `(rows, ops)`; differentiable once.
    found, gradients = priority_orders.log_probabilities(b, priorities.detach().double().cpu().numpy(), orders)
    linear = (torch.from_numpy(gradients).to(priorities) * priorities).sum(1)
    return torch.from_numpy(found).to(priorities) + (linear - linear.detach())


def _at_least_float32(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()


def priced(b: Buffers, orders: IndexArray) -> Decoded:
    """Return orders of one graph with their peaks."""
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
            along = -np.argsort(self.orders[row]).astype(np.float64)  # by which greedy decoding makes this very order
            is_made = self.make(row, along, width, is_backward)
            stuck, is_backward = 0 if is_made else stuck + 1, not is_backward

    def draw(self, priorities: FloatArray) -> bool:
        """Make orders by drawn priorities, from either end in turn; whether one had a lower peak."""
        rng, before = np.random.default_rng(0), self.peaks.min()
        for number in range(DRAWS):
            if not self.has_room_for(1):
                break
            self.make(self.best, priorities + rng.gumbel(size=len(priorities)), 1, number % 2 == 1)
        return bool(self.peaks.min() < before)


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
        return priced(b, priority_orders.greedy(b, priorities)), width
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


GLIMPSE_HEADS = 8


class _Context(NamedTuple):
    """The common inputs of the steps, all of them linear in the embeddings."""

    # of the glimpse, shape `(graphs, heads, ops, width / heads)`
    keys: Tensor
    values: Tensor
    choices: Tensor  # what the glimpse is compared with, shape `(graphs, ops, width)`
    of_graph: Tensor  # shape `(graphs, 1, width)`: what the graph adds to the query
    # shape `(graphs, ops + 1, width)`: what each op adds if it is the last or first scheduled; the last row stands for
    # none
    of_last: Tensor
    of_first: Tensor


class AutoregressiveDecoder(nn.Module):
    """Chooses each next op by the ops scheduled first and last, the graph, and the ops that can be next."""

    # The query is the sum of linear maps of the mean over the ops, the last op and the first; at the first step learned
    # embeddings stand for the latter two. Heads attend with it to the ops that can be scheduled; their messages, which
    # are projected, give with each such op's key `k` the logit `C tanh(q k / sqrt(width))`. 8 heads and C = 10
    # are of Kool et al. (ICLR 2019), whose decoder appendix B adapts.

    def __init__(self, width: int, heads: int = GLIMPSE_HEADS, clipping: float = 10.0) -> None:
        super().__init__()
        self.heads, self.clipping = heads, clipping
        self.glimpse_key, self.glimpse_value, self.choice_key = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.query_of_graph, self.query_of_last, self.query_of_first = (
            nn.Linear(width, width, bias=False) for _ in range(3)
        )
        self.project = nn.Linear(width, width, bias=False)
        self.no_last, self.no_first = (nn.Parameter(torch.empty(1, width).uniform_(-1, 1)) for _ in range(2))

    def log_probability(self, embeddings: Tensor, batch: GraphBatch, orders: Tensor) -> Tensor:
        """Return the log-probability of complete orders; differentiable."""
        # All steps are computed at once, several floats per graph, row, step and op.
        graphs, rows, ops = orders.shape
        is_step = orders >= 0
        chosen = orders.where(is_step, ops)
        none = chosen.new_full((graphs, rows, 1), ops)
        last = torch.cat((none, chosen[:, :, :-1]), dim=2)
        first = torch.cat((none, chosen[:, :, :1].expand(-1, -1, ops - 1)), dim=2)
        ready = _ready_at_each_step(chosen, batch)
        log_probability = self._distribution(
            self._context(embeddings, batch), last.flatten(1), first.flatten(1), ready.flatten(1, 2)
        ).view(graphs, rows, ops, ops)
        of_steps = log_probability.gather(3, chosen.clamp(max=ops - 1)[..., None]).squeeze(3)
        return of_steps.where(is_step, 0.0).sum(2)

    @torch.no_grad()
    def beam(self, embeddings: Tensor, batch: GraphBatch, buffers: Sequence[Buffers], width: int) -> Tensor:
        """Return the order of a beam that keeps the `width` most probable (section 4.2, item 3), as `roll_out` does."""
        # Of equal executed sets only that of least peak is kept, though what follows has other probabilities.
        context = self._context(embeddings, batch)
        graphs, ops = batch.is_op.shape
        device = batch.is_op.device
        beams = [_Beam(b, width) for b in buffers]
        for step in range(ops):
            ends = np.full((2, graphs, width), ops)
            ready = np.zeros((graphs, width, ops), bool)
            for graph, of_graph in enumerate(beams):
                parents, following = of_graph.successors
                ready[graph, parents, following] = True
                if step:
                    ends[:, graph, : len(of_graph.orders)] = of_graph.orders[:, [-1, 0]].T
            last, first = torch.from_numpy(ends).to(device)
            distribution = self._distribution(context, last, first, torch.from_numpy(ready).to(device)).cpu().numpy()
            for graph, of_graph in enumerate(beams):
                of_graph.extend(distribution[graph])
        orders = np.full((graphs, 1, ops), -1)
        for graph, of_graph in enumerate(beams):
            orders[graph, 0, : of_graph.orders.shape[1]] = of_graph.orders[0]
        return torch.from_numpy(orders).to(device)

    @torch.no_grad()
    def roll_out(
        self, embeddings: Tensor, batch: GraphBatch, rows: int = 1, generator: torch.Generator | None = None
    ) -> Tensor:
        """Schedule one op per step in all rows of all graphs: drawn, or the most probable, ties by index.

        Returns the op of each step, and -1 after a graph's last op; shape `(graphs, rows, ops)`, int64.
        """
        context = self._context(embeddings, batch)
        graphs, ops = batch.is_op.shape
        device = batch.is_op.device
        releases = batch.before.transpose(1, 2).contiguous()
        waiting = batch.before.sum(2, dtype=torch.int32).masked_fill(~batch.is_op, -1)[:, None].repeat(1, rows, 1)
        orders = torch.full((graphs, rows, ops), -1, device=device)
        last = first = torch.full((graphs, rows), ops, device=device)
        for step in range(ops):
            ready = waiting == 0
            is_running = ready.any(2)
            distribution = self._distribution(context, last, first, ready)
            scores = distribution
            if generator is not None:  # the least of exponential times with these rates
                times = torch.empty(ready.shape, device=generator.device).exponential_(generator=generator)
                scores = distribution - times.log().to(device)
            chosen = scores.masked_fill(~ready, -torch.inf).argmax(2)
            orders[:, :, step] = chosen.where(is_running, -1)
            waiting -= releases[torch.arange(graphs, device=device)[:, None], chosen].int()
            waiting.scatter_(2, chosen[..., None], -1)
            last, first = chosen, first if step else chosen
        return orders

    def _context(self, embeddings: Tensor, batch: GraphBatch) -> _Context:
        embeddings = embeddings.masked_fill(~batch.is_op[..., None], 0.0)
        mean = embeddings.sum(1, keepdim=True) / batch.is_op.sum(1)[:, None, None]
        with_no_last, with_no_first = (
            torch.cat((embeddings, none.expand(len(embeddings), 1, -1)), dim=1)
            for none in (self.no_last, self.no_first)
        )
        return _Context(
            self._split(self.glimpse_key(embeddings)),
            self._split(self.glimpse_value(embeddings)),
            self.choice_key(embeddings),
            self.query_of_graph(mean),
            self.query_of_last(with_no_last),
            self.query_of_first(with_no_first),
        )

    def _split(self, values: Tensor) -> Tensor:
        return values.view(*values.shape[:2], self.heads, -1).transpose(1, 2)

    def _distribution(self, context: _Context, last: Tensor, first: Tensor, ready: Tensor) -> Tensor:
        """Return the log-probability of each op to be next, shape `(graphs, queries, ops)`, in float32."""
        graph = torch.arange(len(last), device=last.device)[:, None]
        queries = context.of_graph + context.of_last[graph, last] + context.of_first[graph, first]
        ready = ready | ~ready.any(2, keepdim=True)
        heard = F.scaled_dot_product_attention(self._split(queries), context.keys, context.values, ready[:, None])
        glimpse: Tensor = self.project(heard.transpose(1, 2).flatten(2))
        with torch.autocast(glimpse.device.type, enabled=False):
            compared = glimpse.float() @ context.choices.float().transpose(1, 2)
            logits = self.clipping * torch.tanh(compared * glimpse.shape[2] ** -0.5)
            return logits.masked_fill(~ready, -torch.inf).log_softmax(2)


def _ready_at_each_step(chosen: Tensor, batch: GraphBatch) -> Tensor:
    """Return whether each op could be scheduled at each step of each order, shape `(graphs, rows, steps, ops)`."""
    graphs, rows, ops = chosen.shape
    steps = torch.arange(ops, device=chosen.device)
    position = chosen.new_full((graphs, rows, ops + 1), -1).scatter(2, chosen, steps.expand_as(chosen))[:, :, :ops]
    of_op = position.transpose(1, 2).flatten(0, 1)  # (graphs * ops, rows)
    producers, consumers = batch.reduction.sources, batch.reduction.targets
    since = torch.zeros_like(of_op).scatter_reduce(0, consumers[:, None].expand(-1, rows), of_op[producers] + 1, "amax")
    since = since.view(graphs, ops, rows).transpose(1, 2)
    return (since[:, :, None] <= steps[:, None]) & (steps[:, None] <= position[:, :, None])


class _Beam:
    """The partial orders of one graph."""

    def __init__(self, b: Buffers, width: int) -> None:
        self._buffers, self._width, self._walk = b, width, forward_walk(b)
        self._zobrist = np.random.default_rng(0).integers(0, 2**64, len(b.own), dtype=np.uint64)
        self._level = first_level(self._walk)
        self.orders = np.empty((1, 0), np.int32)
        self.log_probability = np.zeros(1)

    @property
    def successors(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Every partial order with every op that can extend it."""
        return np.repeat(np.arange(len(self.orders)), np.diff(self._level.ready_ptr)), self._level.ready

    def extend(self, distribution: NDArray[np.float32]) -> None:
        """Extend the partial orders, given each one's log-probabilities of the next op; none can be if complete."""
        level = self._level
        parents, ops = self.successors
        if not len(ops):
            return
        score = self.log_probability[parents] + distribution[parents, ops]
        peak = np.maximum(level.peak[parents], level.resident[parents] + self._walk.step[ops])
        key = level.hash[parents] ^ self._zobrist[ops]
        by_set = np.lexsort((parents, -score, peak, key))
        is_best = np.append(True, np.diff(key[by_set]) != 0)
        best = by_set[is_best]
        kept = best[np.lexsort((parents[best], ops[best], -score[best]))[: self._width]]
        candidates = new_candidates(1, 1)._replace(
            hash=key[kept], peak=peak[kept], parent=parents[kept].astype(np.int32), op=ops[kept]
        )
        self._level = materialise(level, self._buffers, self._walk, candidates, len(kept), -1)
        self.orders = np.concatenate((self.orders[parents[kept]], ops[kept, None]), axis=1)
        self.log_probability = score[kept]
