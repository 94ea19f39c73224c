"""The network of `direct`: messages along the edges, and for each op a correction of the rule's key."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...core.problem.problem import Task
from ...core.search.parameters import Parameters, parameter
from ..networks.message_passing import MessageGraph
from ..networks.network import PolicyNetwork, joined
from .keys import LINK_FEATURES, NODE_FEATURES, ONE_DEVICE, Seen

SPREAD = -3.0  # logarithm of the spread of keys before any training: 0.05, half of an op's on a path of ten


@dataclasses.dataclass(frozen=True)
class DirectNetworkParameters(Parameters):
    """The shape of a network, and its purpose."""

    task: Task = parameter("runtime", "memory or runtime: what is minimised")
    rounds: int = parameter(4, "of messages, in both directions", low=0, high=64)
    width: int = parameter(64, "of embeddings and all layers", low=1, high=1024)
    waiting: float = parameter(-2.0, "logarithm of the spread of the patience before training", low=-8.0, high=1.0)
    links: bool = parameter(False, "whether it sees what links cost beside ops, of each op and of the graph")


class Batch(NamedTuple):
    """Several problems as one graph, the ops of each after those of the one before."""

    # nodes, rule: features, shape `(nodes, NODE_FEATURES + LINK_FEATURES)`, and keys of the rule, `(nodes,)`, float32
    nodes: Tensor
    rule: Tensor
    graph: MessageGraph  # the edges
    # patience, transfers_take_time: the rule's, and whether the network may change it, shape `(graphs,)`, float32
    patience: Tensor
    transfers_take_time: Tensor


def batch_of(problems: Sequence[Seen]) -> Batch:
    """Put problems into one batch."""
    return Batch(
        joined([problem.nodes for problem in problems]),
        joined([problem.rule[:-1] for problem in problems]),
        MessageGraph.batch(
            [(problem.sources, problem.targets) for problem in problems], [len(problem.nodes) for problem in problems]
        ),
        torch.tensor([float(problem.rule[-1]) for problem in problems]),
        torch.tensor([float(problem.transfers_take_time) for problem in problems]),
    )


@dataclasses.dataclass(frozen=True)
class DirectPolicy:
    """Independent normal distributions of the keys."""

    batch: Batch  # what the network saw
    # mean, log_spread: of the ops' keys, shape `(nodes,)`
    mean: Tensor
    log_spread: Tensor
    # patience, log_spread_of_patience: of the patience, shape `(graphs,)`
    patience: Tensor
    log_spread_of_patience: Tensor

    def most_likely(self) -> list[Any]:
        """Return the means of each graph, shape `(1, ops + 1)` each."""
        return self._split(self.mean[None], self.patience[None])

    def sample(self, count: int, rng: np.random.Generator) -> list[Any]:
        """Draw keys of each graph, shape `(count, ops + 1)` each."""

        def drawn(mean: Tensor, log_spread: Tensor) -> Tensor:
            noise = torch.from_numpy(rng.standard_normal((count, len(mean)), dtype=np.float32)).to(mean.device)
            return mean + noise * log_spread.exp()

        is_fixed = 1 - self.batch.transfers_take_time.to(self.mean.device)  # nothing depends on it: it has no spread
        keys = drawn(self.mean, self.log_spread)
        return self._split(keys, drawn(self.patience, self.log_spread_of_patience - 1e3 * is_fixed))

    def to_decode(self, count: int, rng: np.random.Generator) -> list[Any]:
        """Return so many keys of each graph, of which the best is wanted, shape `(count, ops + 1)` each."""
        # The means come first, the rest are drawn; the first of them stays on one device if the means do not, and the
        # others lose their patience's sign, as a second on one device would be no other schedule.
        if count == 1:
            return self.most_likely()
        keys = []
        for means, drawn in zip(self.most_likely(), self.sample(count - 1, rng), strict=True):
            drawn[:, -1] = np.abs(drawn[:, -1])
            if means[0, -1] >= 0:
                drawn[0, -1] = ONE_DEVICE
            keys.append(np.vstack((means, drawn)))
        return keys

    def log_probability(self, keys: Sequence[Any]) -> Tensor:
        """Return the mean log-density of the ops' keys that were drawn plus that of the patience, up to a constant."""
        # Shape `(graphs, samples)`. That of the patience is not divided by the ops: a step moves one as far as the
        # others.
        device = self.mean.device
        drawn = torch.from_numpy(np.concatenate([of_graph[:, :-1] for of_graph in keys], axis=1)).to(device)
        patience = torch.from_numpy(np.stack([of_graph[:, -1] for of_graph in keys], axis=1)).to(device)
        of_ops = _log_density(drawn, self.mean, self.log_spread)  # (samples, nodes)
        of_graphs = self.batch.graph.to(device).means(of_ops.T).T
        of_waits = _log_density(patience, self.patience, self.log_spread_of_patience)
        return (of_graphs + self.batch.transfers_take_time.to(device) * of_waits).T

    def moved(self, hidden: tuple[Tensor, Tensor], directions: Tensor) -> list[Any]:
        """Return the means if the weights of the last layers' first outputs were others."""
        of_ops, of_graphs = hidden
        per_op, per_graph = directions[:, : of_ops.shape[1]], directions[:, of_ops.shape[1] :]
        waits = self.patience + self.batch.transfers_take_time.to(self.mean.device) * (per_graph @ of_graphs.T)
        return self._split(self.mean + per_op @ of_ops.T, waits)

    def _split(self, keys: Tensor, patience: Tensor) -> list[Any]:
        parts = torch.split(keys.detach().cpu(), self.batch.graph.sizes.tolist(), dim=1)  # type: ignore[no-untyped-call]
        waits = patience.detach().cpu().numpy()
        return [np.hstack((part.numpy(), waits[:, at : at + 1])).astype(np.float32) for at, part in enumerate(parts)]


def _log_density(values: Tensor, mean: Tensor, log_spread: Tensor) -> Tensor:
    return -0.5 * ((values - mean) / log_spread.exp()).square() - log_spread


class DirectNetwork(PolicyNetwork):
    """Embeds each op by rounds of messages both ways, and corrects its key: by zero before training."""

    shape, command = DirectNetworkParameters, "direct"

    def __init__(self, parameters: DirectNetworkParameters) -> None:
        super().__init__(parameters)
        width = parameters.width
        self.features = NODE_FEATURES + LINK_FEATURES * parameters.links
        self.embed = nn.Sequential(nn.Linear(self.features, width), nn.ReLU(), nn.Linear(width, width))
        self.rounds = nn.ModuleList(
            nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, width))
            for _ in range(parameters.rounds)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(parameters.rounds))
        self.of_op = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 2))
        self.of_graph = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
        for head in (self.of_op, self.of_graph):
            nn.init.zeros_(head[-1].weight)  # type: ignore[arg-type]
            nn.init.zeros_(head[-1].bias)  # type: ignore[arg-type]

    def forward(self, batch: Batch) -> DirectPolicy:
        """Return the distribution of the keys of each problem."""
        return self.policy(batch, *self.hidden(batch))

    def hidden(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the inputs of the last layers, of ops and of graphs, shapes `(nodes, width)` and `(graphs, width)`."""
        graph = batch.graph.to(self.device)
        nodes = self.embed(batch.nodes[:, : self.features].to(self.device))  # (nodes, width)
        for update, norm in zip(self.rounds, self.norms, strict=True):
            known = norm(nodes)
            heard = (graph.heard(known, reduce="mean"), graph.reversed.heard(known, reduce="mean"))
            nodes = nodes + update(torch.cat((known, *heard), dim=1))
        whole = graph.means(nodes)
        return self.of_op[:-1](torch.cat((nodes, whole[graph.graph_of_node]), dim=1)), self.of_graph[:-1](whole)

    def policy(self, batch: Batch, of_ops: Tensor, of_graphs: Tensor) -> DirectPolicy:
        """Return the distribution of the keys by the outputs of `hidden`."""
        correction, spread = self.of_op[-1](of_ops).unbind(1)
        waiting, spread_of_waiting = self.of_graph[-1](of_graphs).unbind(1)
        patience = batch.patience.to(self.device) + batch.transfers_take_time.to(self.device) * waiting
        log_spread, of_patience = (
            SPREAD + spread.clamp(-3, 2),
            self.parameters_.waiting + spread_of_waiting.clamp(-3, 2),
        )
        return DirectPolicy(batch, batch.rule.to(self.device) + correction, log_spread, patience, of_patience)


load_network = DirectNetwork.load
