"""The network of `direct`: messages along the edges, and for each op a correction of the rule's key."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...core.problem.problem import Task
from ...core.search.parameters import Parameters, parameter
from ..networks.message_passing import MessageGraph
from ..networks.network import PolicyNetwork, joined
from .keys import LINK_FEATURES, NODE_FEATURES, ONE_DEVICE, Seen

SPREAD, GUMBEL = math.exp(-3), 0.025  # of normal draws, half of an op on a path of ten, and scale of Gumbel noise
Noise = Literal["normal", "gumbel"]


@dataclasses.dataclass(frozen=True)
class DirectNetworkParameters(Parameters):
    """The shape of a network, and its purpose."""

    task: Task = parameter("runtime", "memory or runtime: what is minimised")
    rounds: int = parameter(4, "of messages, in both directions", low=0, high=64)
    width: int = parameter(64, "of embeddings and all layers", low=1, high=1024)
    waiting: float = parameter(-2.0, "logarithm of the spread of the patience", low=-8.0, high=1.0)
    links: bool = parameter(False, "whether it sees what links cost beside ops, or which devices run an op")
    noise: Noise = parameter("normal", "of drawn keys: normal, or gumbel, which REINFORCE needs")


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
    """Independent distributions of the keys."""

    batch: Batch  # what the network saw
    mean: Tensor  # of the ops' keys, shape `(nodes,)`
    patience: Tensor  # mean of the patience, shape `(graphs,)`
    parameters: DirectNetworkParameters  # of the network

    def most_likely(self) -> list[Any]:
        """Return the means of each graph, shape `(1, ops + 1)` each."""
        return self._split(self.mean[None], self.patience[None])

    def sample(self, count: int, rng: np.random.Generator) -> list[Any]:
        """Draw keys of each graph, shape `(count, ops + 1)` each."""

        def normal(of: Tensor) -> Any:
            return rng.standard_normal((count, len(of)), dtype=np.float32)

        gumbel, device = self.parameters.noise == "gumbel", self.mean.device
        drawn = GUMBEL * rng.gumbel(size=(count, len(self.mean))) if gumbel else SPREAD * normal(self.mean)
        keys = self.mean + torch.from_numpy(drawn.astype(np.float32)).to(device)
        waits = math.exp(self.parameters.waiting) * torch.from_numpy(normal(self.patience)).to(device)
        waits = self.patience + self.batch.transfers_take_time.to(device) * waits  # else nothing depends on it
        return self._split(keys, waits)

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
        """Return the log-probability of the ops' orders under Gumbel noise, over the ops, shape `(graphs, samples)`."""
        means = []
        for logits, of_graph in zip(self.logits(), keys, strict=True):  # Plackett-Luce: a softmax of those to come
            rising = logits[torch.from_numpy(of_graph[:, :-1]).to(logits.device).argsort(dim=1)]
            means.append((rising - rising.logcumsumexp(dim=1)).mean(dim=1))
        return torch.stack(means)

    def logits(self) -> list[Tensor]:
        """Return the logits of each graph's ops under Gumbel noise, shape `(ops,)` each."""
        return list(torch.split(self.mean / GUMBEL, self.batch.graph.sizes.tolist()))  # type: ignore[no-untyped-call]

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
        waiting = batch.transfers_take_time.to(self.device) * self.of_graph[-1](of_graphs)[:, 0]
        mean = batch.rule.to(self.device) + self.of_op[-1](of_ops)[:, 0]
        return DirectPolicy(batch, mean, batch.patience.to(self.device) + waiting, self.parameters_)


load_network = DirectNetwork.load
