"""The networks of both parts of Topoformer: an encoder, and a decoder that makes orders of its embeddings."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from ...core.base.errors import UsageError
from ...core.kernels.orders.priority_orders import greedy, sample
from ...core.kernels.orders.set_beam import NO_LIMIT, beam
from ...core.search.parameters import Parameters, parameter
from ..networks.network import PolicyNetwork
from . import decoding
from .decoding import GLIMPSE_HEADS, AutoregressiveDecoder, Decoded, priced
from .encoders import DENSE, RELATIONS, Encoder, make_encoder
from .features import NODE_FEATURES, EncodedGraph, GraphBatch, batch_of

Decoder = Literal["priorities", "autoregressive"]


@dataclasses.dataclass(frozen=True)
class NetworkParameters(Parameters):
    """The shape of a network; the defaults are the small one's, the paper's are in C.2."""

    encoder: Encoder = parameter("topoformer", f"one of {', '.join(get_args(Encoder))}")
    decoder: Decoder = parameter("priorities", "priorities (section 4.2) or autoregressive (appendix B)")
    layers: int = parameter(4, "attention layers; paper 4", low=1, high=64)
    width: int = parameter(128, "of the embeddings; paper 256", low=8, high=4096)
    head_width: int = parameter(16, "of the queries, keys and values of a head; paper 64", low=1, high=1024)
    heads: int = parameter(4, "heads per relation, or in all where there is one relation; paper 10", low=1, high=64)
    heads_of: tuple[int, ...] = parameter((), "of each of the seven relations, in the order of `RELATIONS`, 0 for none")
    tied: bool = parameter(False, "whether a relation and its reverse share parameters")
    eigenvectors: int = parameter(20, "of the Laplacian, as positions; paper 20", low=0, high=256)
    alpha: float = parameter(5.0, "standard deviation of the priorities (eq. 17); paper 5", low=0.01, high=100)

    def __post_init__(self) -> None:
        super().__post_init__()
        heads, most = self.heads_of, 64
        if heads and not (len(heads) == RELATIONS and 0 <= min(heads) <= max(heads) <= most):
            raise UsageError(f"heads_of must be {RELATIONS} numbers of heads from 0 to {most}, not {list(heads)}")
        if self.tied and heads[:3] != heads[3:6]:
            raise UsageError(f"heads_of must be the same forwards and backwards for tied heads, not {list(heads)}")
        if not any(self.topological_heads):
            raise UsageError(f"heads_of must leave some heads to encoder {self.encoder}, not {list(heads)}")
        if self.decoder == "autoregressive" and self.width % GLIMPSE_HEADS:
            what = f"a multiple of {GLIMPSE_HEADS} for decoder autoregressive"
            raise UsageError(f"width must be {what}, not {self.width}")

    @property
    def topological_heads(self) -> tuple[int, ...]:
        """Heads of the Topoformer encoder's relations; on edges alone, those beyond them have none (Table 3)."""
        counts = self.heads_of or (self.heads,) * RELATIONS
        if self.encoder == "topoformer-edges":
            counts = tuple(0 if dense else count for dense, count in zip(DENSE, counts, strict=True))
        return counts


class PriorityPolicy:
    """Orders from one priority per op (4.2)."""

    def __init__(self, graphs: Sequence[EncodedGraph], priorities: Tensor) -> None:
        self.graphs, self.priorities = graphs, priorities

    def is_finite(self) -> bool:
        """Whether the network gave numbers; if not, nothing else can be asked."""
        return bool(torch.isfinite(self.priorities).all())

    def _values(self) -> list[tuple[Any, np.ndarray]]:
        values = self.priorities.detach().double().cpu().numpy()
        return [(g.graph.buffers, row[: g.graph.num_ops]) for g, row in zip(self.graphs, values, strict=True)]

    def greedy(self) -> list[Decoded]:
        """Return one order per graph: the most probable op at each step."""
        return [priced(b, greedy(b, row)) for b, row in self._values()]

    def sample(self, count: int, rng: np.random.Generator) -> list[Decoded]:
        """Return `count` orders per graph, drawn."""
        return [priced(b, sample(b, row, count, rng)) for b, row in self._values()]

    def beam(self, width: int, limit: int = NO_LIMIT, must_stop: Callable[[], bool] = lambda: False) -> list[Decoded]:
        """Return the best of a beam of this width per graph, with state collapsing."""
        found = [beam(b, row, width, limit=limit, must_stop=must_stop) for b, row in self._values()]
        return [Decoded(one.orders, one.peaks) for one in found]

    def of_ops(self) -> np.ndarray:
        """Return the priorities of the only graph, shape `(ops,)`."""
        ((_, row),) = self._values()
        return row

    def log_probability(self, orders: Sequence[np.ndarray]) -> Tensor:
        """Return the log-probability of orders, per graph of shape `(rows, ops)`; shape `(graphs, rows)`."""
        rows = zip(self.priorities, self.graphs, orders, strict=True)
        parts = ((row[: one.graph.num_ops], one.graph.buffers, of_graph) for row, one, of_graph in rows)
        return torch.stack([decoding.order_log_probability(*part) for part in parts])


class AutoregressivePolicy:
    """Orders op by op, each given those before it (appendix B)."""

    def __init__(
        self, graphs: Sequence[EncodedGraph], batch: GraphBatch, embeddings: Tensor, decoder: AutoregressiveDecoder
    ) -> None:
        self.graphs, self.batch, self.embeddings, self.decoder = graphs, batch, embeddings, decoder

    def is_finite(self) -> bool:
        """See `PriorityPolicy`."""
        return bool(torch.isfinite(self.embeddings[self.batch.is_op]).all())

    def _priced(self, orders: Tensor) -> list[Decoded]:
        pairs = zip((one.graph for one in self.graphs), orders.cpu().numpy(), strict=True)
        return [priced(graph.buffers, np.ascontiguousarray(o[:, : graph.num_ops], np.int32)) for graph, o in pairs]

    def greedy(self) -> list[Decoded]:
        """See `PriorityPolicy`."""
        with torch.no_grad():
            return self._priced(self.decoder.roll_out(self.embeddings, self.batch))

    def sample(self, count: int, rng: np.random.Generator) -> list[Decoded]:
        """See `PriorityPolicy`."""
        generator = torch.Generator(self.embeddings.device).manual_seed(int(rng.integers(2**62)))
        with torch.no_grad():
            return self._priced(self.decoder.roll_out(self.embeddings, self.batch, count, generator))

    def beam(self, width: int, limit: int = NO_LIMIT, must_stop: Callable[[], bool] = lambda: False) -> list[Decoded]:
        """See `PriorityPolicy`; neither the limit nor `must_stop` is heeded."""
        buffers = [graph.graph.buffers for graph in self.graphs]
        with torch.no_grad():
            return self._priced(self.decoder.beam(self.embeddings, self.batch, buffers, width))

    def log_probability(self, orders: Sequence[np.ndarray]) -> Tensor:
        """See `PriorityPolicy`."""
        padded = torch.from_numpy(_padded(orders, self.embeddings.shape[1])).to(self.embeddings.device)
        return self.decoder.log_probability(self.embeddings, self.batch, padded)


Policy = PriorityPolicy | AutoregressivePolicy  # A distribution over the orders of each graph of a batch


def _padded(orders: Sequence[np.ndarray], ops: int) -> np.ndarray:
    padded = np.full((len(orders), len(orders[0]), ops), -1, np.int64)
    for at, of_graph in enumerate(orders):
        padded[at, :, : of_graph.shape[1]] = of_graph
    return padded


class Network(PolicyNetwork):
    """From graphs to a distribution over their orders; embeddings are normalised before the decoder (ours)."""

    shape, command = NetworkParameters, "topoformer"

    def __init__(self, parameters: NetworkParameters) -> None:
        super().__init__(parameters)
        p, width, inputs = parameters, parameters.width, NODE_FEATURES + parameters.eigenvectors
        heads = p.topological_heads if p.encoder.startswith("topoformer") else (p.heads,)
        self.encoder = make_encoder(p.encoder, inputs, p.layers, width, heads, p.head_width, p.tied)
        self.norm = nn.LayerNorm(width)
        if parameters.decoder == "autoregressive":
            self.autoregressive = AutoregressiveDecoder(width)
        else:
            self.priority = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))  # eq. 7, C.2

    def forward(self, graphs: Sequence[EncodedGraph], batch: GraphBatch | None = None) -> Policy:
        """Return the policy for some graphs."""
        batch = (batch_of(graphs) if batch is None else batch).to(self.device)
        embeddings = self.norm(self.encoder(batch))
        if self.parameters_.decoder == "autoregressive":
            return AutoregressivePolicy(graphs, batch, embeddings.float(), self.autoregressive)
        priorities = self.priority(embeddings).squeeze(-1)
        return PriorityPolicy(graphs, decoding.normalised_priorities(priorities, batch.is_op, self.parameters_.alpha))


load_network = Network.load
