"""REGAL's networks: from a multigraph to a distribution over the actions of every op (REGAL 4.2)."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from ...core.problem.problem import Task
from ...core.search.parameters import Parameters, parameter
from ..networks.message_passing import Receivers
from ..networks.network import PolicyNetwork
from .actions import ActionParameters, Head, Taken
from .batch import MultigraphBatch, nodes_of, sequences
from .distributions import (
    AutoregressiveDecoder,
    AutoregressivePolicy,
    Choices,
    IndependentPolicy,
    RegalPolicy,
    perceptron,
)
from .features import EDGE_FEATURES, node_features
from .ratios import number_of_ratios

Encoder = Literal["gnn", "lstm"]
Decoder = Literal["independent", "autoregressive"]
Update = Literal["gru", "residual", "mlp"]
Aggregation = Literal["mean", "sum"]
EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class RegalNetworkParameters(Parameters):
    """What decides a network's shape, by default A.16's for synthetic graphs, and which of its actions are taken."""

    task: Task = parameter("runtime", "memory or runtime: which features there are, and what is minimised")
    devices: int = parameter(2, "how many; paper 2", low=2, high=8)
    actions: ActionParameters = parameter(ActionParameters(), "what is chosen for each op, and in how many levels")
    encoder: Encoder = parameter("gnn", "gnn: message passing (4.2); lstm: along a topological order, for gas (5.2)")
    decoder: Decoder = parameter("independent", "independent (eq. 2) or autoregressive (A.8)")
    rounds: int = parameter(2, "of message passing, T; paper 2, and 16 for TensorFlow's graphs", low=0, high=64)
    update: Update = parameter("gru", "of a node by its messages: gru (A.16), residual (A.15) or mlp (eq. 1, A.14)")
    aggregation: Aggregation = parameter("mean", "of messages: mean (A.14, A.16) or sum (eq. 1, A.15)")
    normalise: bool = parameter(
        False,
        "whether gnn gives features and, after each round, embeddings mean 0 and spread 1 over a graph; paper: no",
    )
    ratios: bool = parameter(
        False, "whether gnn also sees ratios that are alike in all graphs, as of bytes to the peak found; paper: no"
    )
    width: int = parameter(32, "of nodes, edges and all layers; paper 32", low=1, high=1024)
    taken: Taken = parameter(
        "expected",
        "actions that solve takes: expected (mean levels, rounded), most-likely, or sample (drawn, the paper's)",
    )

    @property
    def heads(self) -> tuple[Head, ...]:
        """The choices of each op."""
        return self.actions.heads(self.devices)


class GnnEncoder(nn.Module):
    """Embeds each op by rounds of messages along the edges, in both directions (eq. 1).

    All rounds share their parameters. `mlp` is eq. 1, `residual` adds its outcome to the embedding, and `gru` is a
    gated recurrent unit with the messages as its input (Li et al., ICLR 2016), in place of MLP_node.
    """

    def __init__(self, parameters: RegalNetworkParameters) -> None:
        super().__init__()
        self.parameters_ = p = parameters
        self.embed_node = perceptron(node_features(p.task, p.devices), p.width, p.width)  # MLP_n
        self.embed_edge = perceptron(EDGE_FEATURES, p.width, p.width)  # MLP_e
        self.forwards = perceptron(3 * p.width, p.width, p.width)  # MLP_msg
        self.backwards = perceptron(3 * p.width, p.width, p.width)  # MLP'_msg
        self.update: nn.Module = (
            nn.GRUCell(p.width, p.width) if p.update == "gru" else perceptron(2 * p.width, p.width, p.width)
        )
        if p.ratios:
            self.embed_ratios = perceptron(number_of_ratios(p.task), p.width, p.width)
            for weights in self.embed_ratios[2].parameters():
                nn.init.zeros_(weights)

    def forward(self, batch: MultigraphBatch) -> Tensor:
        """Return embeddings, shape `(nodes, width)`."""
        p = self.parameters_
        nodes: Tensor = self.embed_node(self._normalised(batch.nodes, batch))
        edges = self.embed_edge(batch.edges)
        ratios = self.embed_ratios(batch.ratios) if p.ratios else None
        if ratios is not None:
            nodes = nodes + ratios
        along = _Messages(self.forwards, edges, batch.consumers, batch, p)
        against = _Messages(self.backwards, edges, batch.producers, batch, p)
        for _ in range(p.rounds):
            heard = along(nodes) + against(nodes)
            if p.update == "gru":
                nodes = self.update(heard, nodes)
            else:
                updated = self.update(torch.cat((nodes, heard), dim=1))
                nodes = nodes + updated if p.update == "residual" else updated
            nodes = self._normalised(nodes, batch)
            if ratios is not None:
                nodes = nodes + ratios
        return nodes

    def _normalised(self, nodes: Tensor, batch: MultigraphBatch) -> Tensor:
        if not self.parameters_.normalise:
            return nodes
        centred = nodes - batch.means(nodes)[batch.graph_of_node]
        spread = (batch.means(centred.square()) + EPSILON).sqrt()
        return centred / spread[batch.graph_of_node]


class _Messages:
    """One direction's part of eq. 1: what each node hears, from both ends of its edges and the edges."""

    # The MLP's first layer is applied to nodes and edges, not to triples, the last to what is heard: the same for less
    # work.

    def __init__(
        self,
        mlp: nn.Sequential,
        edges: Tensor,
        listeners: Tensor,
        batch: MultigraphBatch,
        parameters: RegalNetworkParameters,
    ) -> None:
        first: Any = mlp[0]
        self.batch, self.last = batch, cast("nn.Linear", mlp[2])
        receivers = Receivers(listeners, len(batch.nodes))
        self.reduce = receivers.mean if parameters.aggregation == "mean" else receivers.sum
        self.of_producer, self.of_consumer, of_edge = first.weight.split(parameters.width, dim=1)
        self.of_edges = edges @ of_edge.T + first.bias
        self.bias = self.reduce(torch.ones_like(edges[:, :1])) * self.last.bias

    def __call__(self, nodes: Tensor) -> Tensor:
        """Return what each node hears, shape `(nodes, width)`."""
        hidden = self.of_edges + (nodes @ self.of_producer.T)[self.batch.producers]
        hidden = torch.relu(hidden + (nodes @ self.of_consumer.T)[self.batch.consumers])
        heard: Tensor = self.reduce(hidden) @ self.last.weight.T + self.bias
        return heard


class LstmEncoder(nn.Module):
    """Embeds each op by an LSTM of one layer and direction over the topological order (GAS, 5.2; eq. 6 to 11)."""

    def __init__(self, parameters: RegalNetworkParameters) -> None:
        super().__init__()
        p = parameters
        self.embed_node = perceptron(node_features(p.task, p.devices), p.width, p.width)
        self.lstm = nn.LSTM(p.width, p.width, batch_first=True)

    def forward(self, batch: MultigraphBatch) -> Tensor:
        """Return embeddings, shape `(nodes, width)`."""
        embeddings, _ = self.lstm(sequences(self.embed_node(batch.nodes), batch))
        return nodes_of(embeddings, batch)


def make_encoder(parameters: RegalNetworkParameters) -> nn.Module:
    """Build the encoder: a module from a batch to embeddings of shape `(nodes, width)`."""
    return GnnEncoder(parameters) if parameters.encoder == "gnn" else LstmEncoder(parameters)


class RegalNetwork(PolicyNetwork):
    """From graphs to a distribution over the actions of their ops."""

    shape, command = RegalNetworkParameters, "regal"

    def __init__(self, parameters: RegalNetworkParameters) -> None:
        super().__init__(parameters)
        self.encoder = make_encoder(parameters)
        if parameters.decoder == "autoregressive":
            self.autoregressive = AutoregressiveDecoder(parameters.heads, parameters.width)
        else:
            self.choose = Choices(parameters.heads, parameters.width)

    def forward(self, batch: MultigraphBatch) -> RegalPolicy:
        """Return the policy for the graphs of a batch."""
        batch = batch.to(self.device)
        embeddings = self.encoder(batch)
        heads = self.parameters_.heads
        if self.parameters_.decoder == "autoregressive":
            return AutoregressivePolicy(heads, batch, embeddings, self.autoregressive)
        return IndependentPolicy(heads, batch, self.choose(embeddings))


class BaselineNetwork(nn.Module):
    """The scalar baseline b(G) = MLP_b(mean of MLP_g(h_v)), with an encoder of its own (end of 4.2)."""

    def __init__(self, parameters: RegalNetworkParameters) -> None:
        super().__init__()
        self.encoder = make_encoder(parameters)
        self.of_node = perceptron(parameters.width, parameters.width, parameters.width)
        self.of_graph = perceptron(parameters.width, parameters.width, 1)

    def forward(self, batch: MultigraphBatch) -> Tensor:
        """Return the expected reward of each graph, shape `(graphs,)`."""
        embeddings = self.of_node(self.encoder(batch))
        mean = batch.means(embeddings)
        expected: Tensor = self.of_graph(mean).squeeze(1)
        return expected


load_network = RegalNetwork.load
