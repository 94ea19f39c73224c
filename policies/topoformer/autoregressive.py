"""The autoregressive decoder that Topoformer's is compared with (appendix B, Table 4): Kool et al., ICLR 2019, 3.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ...core.graph.buffers import Buffers
from ...core.kernels.orders.set_beam import first_level, forward_walk, materialise, new_candidates
from .features import GraphBatch

GLIMPSE_HEADS = 8


class DecodedBatch(NamedTuple):
    """Orders of each graph of a batch."""

    orders: Tensor  # the op of each step, and -1 after a graph's last op; shape `(graphs, rows, ops)`, int64
    log_probability: Tensor  # log-probability of each order, shape `(graphs, rows)`, float32


class _Context(NamedTuple):
    """What the steps share, all of it linear in the embeddings."""

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
    """Chooses each next op by the ops scheduled first and last, the graph, and the ops that can be next.

    At step t the query is the sum of linear maps of three embeddings: the mean over the ops, the last op, the first
    op; at the first step learned ones stand for the latter two. Heads attend with it to the ops that can be
    scheduled, and what they hear, projected, gives with each such op's key `k` the logit `C tanh(q k / sqrt(width))`,
    whose softmax is the distribution. Paper: 8 heads, C = 10, width 128 (here the encoder's).
    """

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
    def beam(self, embeddings: Tensor, batch: GraphBatch, buffers: Sequence[Buffers], width: int) -> DecodedBatch:
        """Extend partial orders by one op at a time and keep the `width` most probable (section 4.2, item 3)."""
        # Of equal executed sets only that of least peak is kept, though what follows has other probabilities.
        context = self._context(embeddings, batch)
        graphs, ops = batch.is_op.shape
        device = batch.is_op.device
        beams = [_Beam(b, width) for b in buffers]
        for step in range(ops):
            ends = np.full((2, graphs, width), ops)
            ready = np.zeros((graphs, width, ops), bool)
            for graph, beam in enumerate(beams):
                parents, following = beam.successors
                ready[graph, parents, following] = True
                if step:
                    ends[:, graph, : len(beam.orders)] = beam.orders[:, [-1, 0]].T
            last, first = torch.from_numpy(ends).to(device)
            distribution = self._distribution(context, last, first, torch.from_numpy(ready).to(device)).cpu().numpy()
            for graph, beam in enumerate(beams):
                beam.extend(distribution[graph])
        orders = np.full((graphs, 1, ops), -1)
        for graph, beam in enumerate(beams):
            orders[graph, 0, : beam.orders.shape[1]] = beam.orders[0]
        log_probability = np.array([beam.log_probability[:1] for beam in beams], np.float32)
        return DecodedBatch(torch.from_numpy(orders).to(device), torch.from_numpy(log_probability).to(device))

    @torch.no_grad()
    def roll_out(
        self, embeddings: Tensor, batch: GraphBatch, rows: int = 1, generator: torch.Generator | None = None
    ) -> DecodedBatch:
        """Schedule one op per step in all rows of all graphs: drawn, or the most probable, ties by index."""
        context = self._context(embeddings, batch)
        graphs, ops = batch.is_op.shape
        device = batch.is_op.device
        releases = batch.before.transpose(1, 2).contiguous()
        waiting = batch.before.sum(2, dtype=torch.int32).masked_fill(~batch.is_op, -1)[:, None].repeat(1, rows, 1)
        orders = torch.full((graphs, rows, ops), -1, device=device)
        log_probability = torch.zeros((graphs, rows), device=device)
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
            log_probability += distribution.gather(2, chosen[..., None]).squeeze(2).where(is_running, 0.0)
            orders[:, :, step] = chosen.where(is_running, -1)
            waiting -= releases[torch.arange(graphs, device=device)[:, None], chosen].int()
            waiting.scatter_(2, chosen[..., None], -1)
            last, first = chosen, first if step else chosen
        return DecodedBatch(orders, log_probability)

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
        heard = F.scaled_dot_product_attention(
            self._split(queries), context.keys, context.values, attn_mask=ready[:, None]
        )
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
    producers, consumers = batch.reduction
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
