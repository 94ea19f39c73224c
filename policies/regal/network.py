"""REGAL's networks: from a multigraph (A.2) to a policy over the actions of every op (REGAL 4.2, A.6 to A.8)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ...core.problem.problem import Task
from ...core.search.parameters import Parameters, parameter
from ..networks.message_passing import MessageGraph, Reduce
from ..networks.network import PolicyNetwork, joined, joined_nodes
from .actions import ActionParameters, Head, Kind, Taken
from .features import EDGE_FEATURES, SearchedGraph, node_features, number_of_ratios


class MultigraphBatch(NamedTuple):
    """Several graphs as one, the nodes and edges of each after those of the one before; nothing is padded."""

    # features, shapes `(nodes, inputs)` and `(edges, EDGE_FEATURES)`, float32
    nodes: Tensor
    edges: Tensor
    graph: MessageGraph  # the edges, from ops to those that read their tensors
    order: Tensor  # nodes of each graph in topological order, one graph after the other, shape `(nodes,)`, int64
    # features that are alike in all graphs, shape `(nodes, ratios)`, float32; none where the network sees none
    ratios: Tensor

    def to(self, device: torch.device) -> MultigraphBatch:
        """Return the batch on a device."""
        return MultigraphBatch(*(part.to(device) for part in self))  # type: ignore[arg-type]


def multigraph_batch(graphs: Sequence[SearchedGraph], *, ratios: bool = False) -> MultigraphBatch:
    """Put graphs of one task and number of devices into one batch, with their ratios for a network that sees them."""
    sizes = [len(graph.nodes) for graph in graphs]
    return MultigraphBatch(
        joined([graph.nodes for graph in graphs]),
        joined([graph.edges for graph in graphs]),
        MessageGraph.batch([(graph.producers, graph.consumers) for graph in graphs], sizes),
        joined_nodes([graph.problem.graph.input_order for graph in graphs], sizes),
        joined([graph.ratios if ratios else graph.nodes[:, :0] for graph in graphs]),
    )


def lines(batch: MultigraphBatch) -> Tensor:
    """Return the nodes of each graph in topological order, shape `(graphs, longest)`; -1 where there are no more."""
    of_graphs: tuple[Tensor, ...] = torch.split(batch.order, batch.graph.sizes.tolist())  # type: ignore[no-untyped-call]
    return pad_sequence(list(of_graphs), batch_first=True, padding_value=-1)


def sequences(nodes: Tensor, batch: MultigraphBatch) -> Tensor:
    """Line up `(..., nodes, width)` by graphs and their topological order, shape `(..., graphs, longest, width)`."""
    return nodes[..., lines(batch).clamp(min=0), :]


def nodes_of(sequences: Tensor, batch: MultigraphBatch) -> Tensor:
    """Undo `sequences`: back from `(..., graphs, longest, width)` to `(..., nodes, width)`."""
    rows = sequences[..., lines(batch) >= 0, :]
    return torch.zeros_like(rows).index_copy(-2, batch.order, rows)


NEAR_UNIFORM = 0.1  # what the last layer of the choices is scaled by at the start
SAMPLES_OF_ENTROPY = 16


class RegalPolicy:
    """p(a | G) of 4.1, all choices independent (eq. 2): levels of all ops, int64, shape `(..., nodes, heads)`."""

    def __init__(self, heads: Sequence[Head], batch: MultigraphBatch, logits: Sequence[Tensor] = ()) -> None:
        self.heads, self.batch, self.logits = heads, batch, logits

    def _picked(self, pick: Callable[[Sequence[Tensor], Tensor], Tensor], draws: Tensor) -> Tensor:
        """Return actions picked by the logits of each choice, given those before it, and draws."""
        return pick(self.logits, draws)

    def _logits(self, actions: Tensor) -> Sequence[Tensor]:
        """Return the logits of each head, given actions of shape `(count, nodes, heads)`."""
        return self.logits

    def entropy(self, kind: Kind | None = None) -> Tensor:
        """Return the entropy of an op's action, mean over the ops of each graph, in nats; shape `(graphs,)`."""
        return self.batch.graph.means(self._entropy_of(kind, self.logits))

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw actions, shape `(count, nodes, heads)`."""
        # A choice rises with its number of the generator: what policies that differ little draw alike differs little.
        nodes = self.batch.nodes
        shape = count, len(nodes), len(self.heads)
        return self._picked(_choose, torch.rand(shape, generator=generator, device=nodes.device))

    def most_likely(self) -> Tensor:
        """Return the most probable level of each choice, given those before it; shape `(nodes, heads)`."""
        return self._surely(lambda logits: torch.stack([of_head.argmax(-1) for of_head in logits], dim=-1))

    def expected(self) -> Tensor:
        """Return the mean level of each choice, given those before it, rounded; shape `(nodes, heads)`."""
        # Where the policy is unsure this is in the middle. Of two levels as near the even one is taken.
        return self._surely(_expected)

    def _surely(self, pick: Callable[[Sequence[Tensor]], Tensor]) -> Tensor:
        """Return actions that need no draws."""
        nodes = self.batch.nodes
        actions = self._picked(lambda logits, _: pick(logits), nodes.new_empty(1, len(nodes), 0))
        return actions.view(len(nodes), len(self.heads))

    def log_probability(self, actions: Tensor) -> Tensor:
        """Return the log-probability of actions of shape `(count, nodes, heads)`; shape `(count, graphs)`."""
        levels = (of_head.log_softmax(-1).expand(*actions.shape[:2], -1) for of_head in self._logits(actions))
        of_heads = [one.gather(2, actions[..., at, None]).squeeze(2) for at, one in enumerate(levels)]
        of_nodes = torch.stack(of_heads).sum(0)  # logits may be the same for each count
        sums = of_nodes.new_zeros(len(of_nodes), len(self.batch.graph.sizes))
        return sums.index_add(1, self.batch.graph.graph_of_node, of_nodes)

    def _entropy_of(self, kind: Kind | None, logits: Sequence[Tensor]) -> Tensor:
        """Return the joint entropy of the independent heads of a kind, in nats; their shape without the choices."""
        chosen = [of_head for head, of_head in zip(self.heads, logits, strict=True) if kind in (None, head.kind)]
        return torch.stack([-(of_head.softmax(-1) * of_head.log_softmax(-1)).sum(-1) for of_head in chosen]).sum(0)


def taken_actions(policy: RegalPolicy, taken: Taken, seed: Callable[[], int]) -> Tensor:
    """Return the actions of a policy on the CPU, shape `(nodes, heads)`; the seed is asked for if they are drawn."""
    if taken == "sample":
        return policy.sample(1, torch.Generator().manual_seed(seed()))[0]
    return policy.most_likely() if taken == "most-likely" else policy.expected()


class AutoregressivePolicy(RegalPolicy):
    """Ops choose in topological order, each knowing the choices of those before it (A.8)."""

    def __init__(
        self, heads: Sequence[Head], batch: MultigraphBatch, embeddings: Tensor, decoder: AutoregressiveDecoder
    ) -> None:
        super().__init__(heads, batch)
        self.embeddings, self.decoder = embeddings, decoder

    def _picked(self, pick: Callable[[Sequence[Tensor], Tensor], Tensor], draws: Tensor) -> Tensor:
        return self.decoder.roll_out(self.embeddings, self.batch, pick, draws)

    def _logits(self, actions: Tensor) -> Sequence[Tensor]:
        logits: Sequence[Tensor] = self.decoder(self.embeddings, self.batch, actions)
        return logits

    def entropy(self, kind: Kind | None = None) -> Tensor:
        """See `RegalPolicy`."""
        actions = self.sample(SAMPLES_OF_ENTROPY, torch.Generator(self.embeddings.device).manual_seed(0))
        return self.batch.graph.means(self._entropy_of(kind, self._logits(actions)).mean(0))


class AutoregressiveDecoder(nn.Module):
    """An LSTM in topological order, of ops' embeddings and a vector per level chosen for the op before (A.8)."""

    def __init__(self, heads: Sequence[Head], width: int) -> None:
        super().__init__()
        self.chosen = nn.ModuleList(nn.Embedding(head.choices, width) for head in heads)
        self.lstm = nn.LSTM(2 * width, width, batch_first=True)
        self.choose = Choices(heads, width)

    def _heard(self, actions: Tensor) -> Tensor:
        """Return the next op's input of actions of shape `(..., heads)`."""
        return torch.stack([vectors(actions[..., at]) for at, vectors in enumerate(self.chosen)]).sum(0)

    def forward(self, embeddings: Tensor, batch: MultigraphBatch, actions: Tensor) -> list[Tensor]:
        """Return the logits of each head, `(count, nodes, choices)`, given actions `(count, nodes, heads)`."""
        lined = sequences(embeddings, batch).expand(len(actions), -1, -1, -1)
        heard = sequences(self._heard(actions), batch)
        before = torch.cat((torch.zeros_like(heard[:, :, :1]), heard[:, :, :-1]), dim=2)
        outputs, _ = self.lstm(torch.cat((lined, before), dim=3).flatten(0, 1))
        logits: list[Tensor] = self.choose(nodes_of(outputs.view(*lined.shape[:3], -1), batch))
        return logits

    @torch.no_grad()
    def roll_out(
        self,
        embeddings: Tensor,
        batch: MultigraphBatch,
        pick: Callable[[Sequence[Tensor], Tensor], Tensor],
        draws: Tensor,
    ) -> Tensor:
        """Choose op by op; return actions, shape `(count, nodes, heads)`."""
        count = len(draws)
        lined = sequences(embeddings, batch).repeat(count, 1, 1)  # (count * graphs, longest, width)
        drawn = sequences(draws, batch).flatten(0, 1)
        heard, state = torch.zeros_like(lined[:, :1]), None
        steps = []
        for step in range(lined.shape[1]):
            outputs, state = self.lstm(torch.cat((lined[:, step : step + 1], heard), dim=2), state)
            actions = pick(self.choose(outputs[:, 0]), drawn[:, step])
            steps.append(actions)
            heard = self._heard(actions)[:, None]
        return nodes_of(torch.stack(steps, dim=1).view(count, *lines(batch).shape, -1), batch)


def perceptron(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """Build one of the paper's MLPs: two layers (A.14), with ReLU, one of A.7's choices."""
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


class Choices(nn.Module):
    """MLP_a: from an embedding to the logits of each head, nearly uniform at the start."""

    def __init__(self, heads: Sequence[Head], width: int) -> None:
        super().__init__()
        self.sizes = [head.choices for head in heads]
        self.layers = perceptron(width, width, sum(self.sizes))
        with torch.no_grad():
            for weights in self.layers[2].parameters():
                weights.mul_(NEAR_UNIFORM)

    def forward(self, embeddings: Tensor) -> list[Tensor]:
        """Return logits per head, shape `(..., choices)`."""
        logits: Tensor = self.layers(embeddings)
        return list(torch.split(logits, self.sizes, dim=-1))  # type: ignore[no-untyped-call]


def _expected(logits: Sequence[Tensor]) -> Tensor:
    """Return the mean level of each head, rounded, shape `(..., heads)`."""
    levels = []
    for of_head in logits:
        every = torch.arange(of_head.shape[-1], device=of_head.device, dtype=of_head.dtype)
        levels.append((of_head.softmax(-1) @ every).round().long())
    return torch.stack(levels, dim=-1)


def _choose(logits: Sequence[Tensor], draws: Tensor) -> Tensor:
    """Return the levels at which each head's probabilities, added up, pass its draw; shape of `draws`."""
    below = (of_head.softmax(-1).cumsum(-1)[..., :-1] for of_head in logits)  # the last is taken where no other is
    return torch.stack([(draws[..., at, None] >= each).sum(-1) for at, each in enumerate(below)], dim=-1)


Encoder = Literal["gnn", "lstm"]
Decoder = Literal["independent", "autoregressive"]
Update = Literal["gru", "residual", "mlp"]
EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class RegalNetworkParameters(Parameters):
    """The shape of a network, by default A.16's for synthetic graphs, and the choice of its actions."""

    task: Task = parameter("runtime", "memory or runtime: which features there are, and what is minimised")
    devices: int = parameter(2, "how many; paper 2", low=2, high=8)
    actions: ActionParameters = parameter(ActionParameters(), "what is chosen for each op, and in how many levels")
    encoder: Encoder = parameter("gnn", "gnn: message passing (4.2); lstm: along a topological order, for gas (5.2)")
    decoder: Decoder = parameter("independent", "independent (eq. 2) or autoregressive (A.8)")
    rounds: int = parameter(2, "of message passing, T; paper 2, and 16 for TensorFlow's graphs", low=0, high=64)
    update: Update = parameter("gru", "of a node by its messages: gru (A.16), residual (A.15) or mlp (eq. 1, A.14)")
    aggregation: Reduce = parameter("mean", "of messages: mean (A.14, A.16) or sum (eq. 1, A.15)")
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
    """Embeds each op by rounds of messages along the edges, both ways (eq. 1); all rounds share their parameters."""

    # `mlp` is eq. 1, `residual` adds its outcome, and `gru` is a gated unit (Li et al., ICLR 2016) for MLP_node.

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
        along = _Messages(self.forwards, edges, batch.graph, batch.graph, p.aggregation)
        against = _Messages(self.backwards, edges, batch.graph, batch.graph.reversed, p.aggregation)
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
        centred = nodes - batch.graph.means(nodes)[batch.graph.graph_of_node]
        return centred / (batch.graph.means(centred.square()) + EPSILON).sqrt()[batch.graph.graph_of_node]


class _Messages:
    """One direction's part of eq. 1: the messages to each node, from both ends of its edges and the edges."""

    # The MLP's first layer is applied to nodes and edges, not to triples, the last to what is heard: the same for less
    # work.

    def __init__(
        self, mlp: nn.Sequential, edges: Tensor, graph: MessageGraph, listeners: MessageGraph, reduce: Reduce
    ) -> None:
        first: Any = mlp[0]
        self.graph, self.listeners, self.reduce, self.last = graph, listeners, reduce, cast("nn.Linear", mlp[2])
        self.of_producer, self.of_consumer, of_edge = first.weight.split(edges.shape[1], dim=1)
        self.of_edges = edges @ of_edge.T + first.bias
        self.bias = listeners.heard(edges=torch.ones_like(edges[:, :1]), reduce=reduce) * self.last.bias

    def __call__(self, nodes: Tensor) -> Tensor:
        """Return the messages to each node, shape `(nodes, width)`."""
        of_ends = self.graph.of_ends("add", nodes @ self.of_producer.T, nodes @ self.of_consumer.T)
        hidden = torch.relu(self.of_edges + of_ends)
        heard: Tensor = self.listeners.heard(edges=hidden, reduce=self.reduce) @ self.last.weight.T + self.bias
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
        return RegalPolicy(heads, batch, self.choose(embeddings))


class BaselineNetwork(nn.Module):
    """The scalar baseline b(G) = MLP_b(mean of MLP_g(h_v)), with an encoder of its own (end of 4.2)."""

    def __init__(self, parameters: RegalNetworkParameters) -> None:
        super().__init__()
        self.encoder = make_encoder(parameters)
        self.of_node = perceptron(parameters.width, parameters.width, parameters.width)
        self.of_graph = perceptron(parameters.width, parameters.width, 1)

    def forward(self, batch: MultigraphBatch) -> Tensor:
        """Return the expected reward of each graph, shape `(graphs,)`."""
        expected: Tensor = self.of_graph(batch.graph.means(self.of_node(self.encoder(batch)))).squeeze(1)
        return expected


load_network = RegalNetwork.load
