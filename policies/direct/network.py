"""The network of `direct`: messages along the edges, and for each op a correction of the rule's key."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...core.search.parameters import Parameters, parameter
from ..networks.message_passing import MessageGraph
from ..networks.network import PolicyNetwork, joined
from .keys import FEATURES, GUMBEL, PATIENCE, Seen


@dataclasses.dataclass(frozen=True)
class DirectNetworkParameters(Parameters):
    """The shape of a network."""

    rounds: int = parameter(4, "of messages, in both directions", low=0, high=64)
    width: int = parameter(64, "of embeddings and all layers", low=1, high=1024)


class Batch(NamedTuple):
    """Several problems as one graph, the ops of each after those of the one before."""

    # nodes, rule: features, shape `(nodes, FEATURES)`, and keys of the rule, `(nodes,)`, float32
    nodes: Tensor
    rule: Tensor
    graph: MessageGraph  # the edges


def batch_of(problems: Sequence[Seen]) -> Batch:
    """Put problems into one batch."""
    return Batch(
        joined([problem.nodes for problem in problems]),
        joined([problem.rule[:-1] for problem in problems]),
        MessageGraph.batch(
            [(problem.sources, problem.targets) for problem in problems], [len(problem.nodes) for problem in problems]
        ),
    )


@dataclasses.dataclass(frozen=True)
class DirectPolicy:
    """Independent distributions of the ops' keys."""

    batch: Batch  # what the network saw
    mean: Tensor  # of the ops' keys, shape `(nodes,)`

    def means(self) -> list[Tensor]:
        """Return the means of each graph, shape `(ops,)` each."""
        return list(torch.split(self.mean, self.batch.graph.sizes.tolist()))  # type: ignore[no-untyped-call]

    def most_likely(self) -> list[Any]:
        """Return the means of each graph and the rule's patience, shape `(ops + 1,)` each."""
        return [np.append(mean.detach().cpu().numpy(), np.float32(PATIENCE)) for mean in self.means()]

    def log_probability(self, keys: Sequence[Any]) -> Tensor:
        """Return the log-probability of the ops' orders under Gumbel noise, over the ops, shape `(graphs, samples)`."""
        means = []
        for mean, of_graph in zip(self.means(), keys, strict=True):  # Plackett-Luce: a softmax of those to come
            rising = (mean / GUMBEL)[torch.from_numpy(of_graph[:, :-1]).to(mean.device).argsort(dim=1)]
            means.append((rising - rising.logcumsumexp(dim=1)).mean(dim=1))
        return torch.stack(means)


class DirectNetwork(PolicyNetwork):
    """Embeds each op by rounds of messages both ways, and corrects its key: by zero before training."""

    shape, command = DirectNetworkParameters, "direct"

    def __init__(self, parameters: DirectNetworkParameters) -> None:
        super().__init__(parameters)
        width = parameters.width
        self.embed = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width))
        self.rounds = nn.ModuleList(
            nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, width))
            for _ in range(parameters.rounds)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(parameters.rounds))
        self.of_op = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))
        for last in self.of_op[-1].parameters():
            nn.init.zeros_(last)

    def forward(self, batch: Batch) -> DirectPolicy:
        """Return the distribution of the keys of each problem."""
        graph = batch.graph.to(self.device)
        nodes = self.embed(batch.nodes.to(self.device))  # (nodes, width)
        for update, norm in zip(self.rounds, self.norms, strict=True):
            known = norm(nodes)
            heard = (graph.heard(known, reduce="mean"), graph.reversed.heard(known, reduce="mean"))
            nodes = nodes + update(torch.cat((known, *heard), dim=1))
        whole = graph.means(nodes)[graph.graph_of_node]
        return DirectPolicy(batch, batch.rule.to(self.device) + self.of_op(torch.cat((nodes, whole), dim=1))[:, 0])


load_network = DirectNetwork.load
