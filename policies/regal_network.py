"""REGAL's networks: from a multigraph to a distribution over the actions of every op (REGAL 4.2, A.6 to A.8)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ..core.errors import UsageError
from ..core.parameters import Parameters, parameter
from ..core.problem import Task
from .message_passing import Receivers
from .multigraph import EDGE_FEATURES, MultigraphBatch, node_features
from .network_files import read_network, write_network
from .regal_actions import ActionParameters, Head, Kind

Encoder = Literal["gnn", "lstm"]
Decoder = Literal["independent", "autoregressive"]
Update = Literal["gru", "residual", "mlp"]
Aggregation = Literal["mean", "sum"]
NEAR_UNIFORM = 0.1
"""What the last layer of the choices is scaled by at the start."""
SAMPLES_OF_ENTROPY = 16
EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class RegalNetworkParameters(Parameters):
    """What decides a network's shape; the defaults are those of the paper's agent for synthetic graphs (A.16).

    Raises
    ------
    UsageError
        If a value is out of range.
    """

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
    width: int = parameter(32, "of nodes, edges and all layers; paper 32", low=1, high=1024)

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = {"task": Task, "encoder": Encoder, "decoder": Decoder, "update": Update, "aggregation": Aggregation}
        for name, kind in kinds.items():
            if getattr(self, name) not in get_args(kind):
                raise UsageError(f"{name} must be one of {', '.join(get_args(kind))}, not {getattr(self, name)}")

    @property
    def heads(self) -> tuple[Head, ...]:
        """The choices of each op."""
        return self.actions.heads(self.devices)


def perceptron(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """Build one of the paper's MLPs: two layers (A.14), rectified in between (A.7)."""
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


class GnnEncoder(nn.Module):
    """Embeds each op by rounds of messages along the edges, in both directions (eq. 1).

    All rounds share their parameters. `sum` adds the two sums of eq. 1; `mean` adds two means. `mlp` is eq. 1,
    `residual` adds its outcome to the embedding, and `gru` is a gated recurrent unit with the messages as its input (Li
    et al., ICLR 2016), in place of MLP_node.

    Parameters
    ----------
    parameters
        Of the network.
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

    def forward(self, batch: MultigraphBatch) -> Tensor:
        """Return embeddings, shape `(nodes, width)`."""
        p = self.parameters_
        nodes: Tensor = self.embed_node(self._normalised(batch.nodes, batch))
        edges = self.embed_edge(batch.edges)
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
        return nodes

    def _normalised(self, nodes: Tensor, batch: MultigraphBatch) -> Tensor:
        if not self.parameters_.normalise:
            return nodes
        centred = nodes - batch.means(nodes)[batch.graph_of_node]
        spread = (batch.means(centred.square()) + EPSILON).sqrt()
        return centred / spread[batch.graph_of_node]


class _Messages:
    """One direction's part of eq. 1: what each node hears, from the nodes at both ends of its edges and the edges.

    The first layer of the MLP is applied to each node and edge, not to each triple, and the last one to what is heard:
    the same, up to rounding, for less work.

    Parameters
    ----------
    mlp
        MLP_msg or MLP'_msg.
    edges
        Embeddings.
    listeners
        The node that hears each edge.
    batch
        What the edges belong to.
    parameters
        Of the network.
    """

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
    """Embeds each op by an LSTM over the ops in topological order: the graph as a sequence (GAS, 5.2).

    Edges are not seen. The paper does not say more; here the LSTM has one layer and one direction (eq. 6 to 11).

    Parameters
    ----------
    parameters
        Of the network.
    """

    def __init__(self, parameters: RegalNetworkParameters) -> None:
        super().__init__()
        p = parameters
        self.embed_node = perceptron(node_features(p.task, p.devices), p.width, p.width)
        self.lstm = nn.LSTM(p.width, p.width, batch_first=True)

    def forward(self, batch: MultigraphBatch) -> Tensor:
        """Return embeddings, shape `(nodes, width)`."""
        embeddings, _ = self.lstm(_sequences(self.embed_node(batch.nodes), batch))
        return _nodes(embeddings, batch)


def _lines(batch: MultigraphBatch) -> Tensor:
    """Return the nodes of each graph in topological order, shape `(graphs, longest)`; -1 where there are no more."""
    of_graphs: tuple[Tensor, ...] = torch.split(batch.order, batch.sizes.tolist())  # type: ignore[no-untyped-call]
    return pad_sequence(list(of_graphs), batch_first=True, padding_value=-1)


def _sequences(nodes: Tensor, batch: MultigraphBatch) -> Tensor:
    """Line up `(..., nodes, width)` by graphs and their topological order, shape `(..., graphs, longest, width)`.

    After a graph's last node comes what must not matter.
    """
    return nodes[..., _lines(batch).clamp(min=0), :]


def _nodes(sequences: Tensor, batch: MultigraphBatch) -> Tensor:
    """Undo `_sequences`."""
    rows = sequences[..., _lines(batch) >= 0, :]
    return torch.zeros_like(rows).index_copy(-2, batch.order, rows)


def make_encoder(parameters: RegalNetworkParameters) -> nn.Module:
    """Build the encoder: a module from a batch to embeddings of shape `(nodes, width)`."""
    return GnnEncoder(parameters) if parameters.encoder == "gnn" else LstmEncoder(parameters)


class RegalPolicy(Protocol):
    """A distribution over the actions of every op of a batch: p(a | G) of 4.1.

    Actions are levels, int64, whose last axes are the nodes of the batch and the heads of its network's parameters.
    """

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw actions, shape `(count, nodes, heads)`.

        The generator gives one number per choice, and a choice rises with it: what policies that differ little draw
        from generators in the same state differs little.
        """
        ...

    def most_likely(self) -> Tensor:
        """Return the most probable level of each choice, given those before it; shape `(nodes, heads)`."""
        ...

    def log_probability(self, actions: Tensor) -> Tensor:
        """Return the log-probability of actions of shape `(count, nodes, heads)`; shape `(count, graphs)`."""
        ...

    def entropy(self, kind: Kind | None = None) -> Tensor:
        """Return the entropy of what is chosen for an op, mean over the ops of each graph, in nats; shape `(graphs,)`.

        Parameters
        ----------
        kind
            Of these choices alone; for `placement` it is that of the joint action for all devices (figure 4a).
        """
        ...


class IndependentPolicy:
    """All choices are independent, given the graph (eq. 2).

    Parameters
    ----------
    heads
        The choices.
    batch
        The graphs.
    logits
        Per head, shape `(nodes, choices)`.
    """

    def __init__(self, heads: Sequence[Head], batch: MultigraphBatch, logits: Sequence[Tensor]) -> None:
        self.heads, self.batch, self.logits = heads, batch, logits

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """See `RegalPolicy`."""
        nodes = len(self.batch.nodes)
        draws = torch.rand(count, nodes, len(self.heads), generator=generator, device=self.batch.nodes.device)
        return _choose(self.logits, draws)

    def most_likely(self) -> Tensor:
        """See `RegalPolicy`."""
        return torch.stack([logits.argmax(-1) for logits in self.logits], dim=-1)

    def log_probability(self, actions: Tensor) -> Tensor:
        """See `RegalPolicy`."""
        return _per_graph(_log_probability(self.logits, actions), self.batch)

    def entropy(self, kind: Kind | None = None) -> Tensor:
        """See `RegalPolicy`."""
        of_nodes = _entropy(_of_kind(self.heads, self.logits, kind))
        return self.batch.means(of_nodes)


class AutoregressivePolicy:
    """Ops choose in topological order, each knowing what those before it chose (A.8).

    Its entropy is estimated, without bias: what each choice adds to it given the choices before it, over samples of a
    fixed seed.

    Parameters
    ----------
    heads
        The choices.
    batch
        The graphs.
    embeddings
        Of the encoder, shape `(nodes, width)`.
    decoder
        What the choices are made by.
    """

    def __init__(
        self, heads: Sequence[Head], batch: MultigraphBatch, embeddings: Tensor, decoder: AutoregressiveDecoder
    ) -> None:
        self.heads, self.batch, self.embeddings, self.decoder = heads, batch, embeddings, decoder

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """See `RegalPolicy`."""
        nodes = len(self.batch.nodes)
        draws = torch.rand(count, nodes, len(self.heads), generator=generator, device=self.batch.nodes.device)
        return self.decoder.roll_out(self.embeddings, self.batch, draws)

    def most_likely(self) -> Tensor:
        """See `RegalPolicy`."""
        return self.decoder.roll_out(self.embeddings, self.batch, None)[0]

    def log_probability(self, actions: Tensor) -> Tensor:
        """See `RegalPolicy`."""
        logits = self.decoder(self.embeddings, self.batch, actions)
        return _per_graph(_log_probability(logits, actions), self.batch)

    def entropy(self, kind: Kind | None = None) -> Tensor:
        """See `RegalPolicy`."""
        actions = self.sample(SAMPLES_OF_ENTROPY, torch.Generator(self.embeddings.device).manual_seed(0))
        of_nodes = _entropy(_of_kind(self.heads, self.decoder(self.embeddings, self.batch, actions), kind)).mean(0)
        return self.batch.means(of_nodes)


class AutoregressiveDecoder(nn.Module):
    """An LSTM over the embeddings in topological order, which hears what was chosen for the op before (A.8).

    Its input is the op's embedding and, for each head, a learned vector of the level chosen for the op before, added
    up; its output goes through MLP_a. An op's own choices are independent, given the ops before.

    Parameters
    ----------
    heads
        The choices.
    width
        Of the embeddings.
    """

    def __init__(self, heads: Sequence[Head], width: int) -> None:
        super().__init__()
        self.chosen = nn.ModuleList(nn.Embedding(head.choices, width) for head in heads)
        self.lstm = nn.LSTM(2 * width, width, batch_first=True)
        self.choose = Choices(heads, width)

    def _heard(self, actions: Tensor) -> Tensor:
        """Return what the next op hears of actions of shape `(..., heads)`."""
        return torch.stack([vectors(actions[..., at]) for at, vectors in enumerate(self.chosen)]).sum(0)

    def forward(self, embeddings: Tensor, batch: MultigraphBatch, actions: Tensor) -> list[Tensor]:
        """Return the logits of each head, `(count, nodes, choices)`, given actions `(count, nodes, heads)`."""
        count = len(actions)
        lined = _sequences(embeddings, batch).expand(count, -1, -1, -1)
        heard = _sequences(self._heard(actions), batch)
        before = torch.cat((torch.zeros_like(heard[:, :, :1]), heard[:, :, :-1]), dim=2)
        outputs, _ = self.lstm(torch.cat((lined, before), dim=3).flatten(0, 1))
        logits: list[Tensor] = self.choose(_nodes(outputs.view(*lined.shape[:3], -1), batch))
        return logits

    @torch.no_grad()
    def roll_out(self, embeddings: Tensor, batch: MultigraphBatch, draws: Tensor | None) -> Tensor:
        """Choose op by op; return actions, shape `(count, nodes, heads)`.

        Parameters
        ----------
        embeddings, batch
            What is decoded.
        draws
            Uniform, shape `(count, nodes, heads)`; without them the most likely levels are taken, once.
        """
        count = 1 if draws is None else len(draws)
        lined = _sequences(embeddings, batch).repeat(count, 1, 1)  # (count * graphs, longest, width)
        uniform = None if draws is None else _sequences(draws, batch).flatten(0, 1)
        heard, state = torch.zeros_like(lined[:, :1]), None
        steps = []
        for step in range(lined.shape[1]):
            outputs, state = self.lstm(torch.cat((lined[:, step : step + 1], heard), dim=2), state)
            logits = self.choose(outputs[:, 0])
            if uniform is None:
                actions = torch.stack([of_head.argmax(-1) for of_head in logits], dim=-1)
            else:
                actions = _choose(logits, uniform[:, step])
            steps.append(actions)
            heard = self._heard(actions)[:, None]
        return _nodes(torch.stack(steps, dim=1).view(count, *_lines(batch).shape, -1), batch)


class Choices(nn.Module):
    """MLP_a: from an embedding to the logits of each head, nearly uniform at the start.

    Parameters
    ----------
    heads
        The choices.
    width
        Of the embeddings.
    """

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


def _choose(logits: Sequence[Tensor], draws: Tensor) -> Tensor:
    """Return the levels at which each head's probabilities, added up, pass its draw; shape of `draws`."""
    levels = []
    for at, of_head in enumerate(logits):
        below = of_head.softmax(-1).cumsum(-1)[..., :-1]  # the last level is taken wherever no other is
        levels.append((draws[..., at, None] >= below).sum(-1))
    return torch.stack(levels, dim=-1)


def _log_probability(logits: Sequence[Tensor], actions: Tensor) -> Tensor:
    """Return the log-probability of each node's actions, `(count, nodes)`; logits may be the same for each count."""
    of_heads = []
    for at, of_head in enumerate(logits):
        all_levels = of_head.log_softmax(-1).expand(*actions.shape[:2], -1)
        of_heads.append(all_levels.gather(2, actions[..., at, None]).squeeze(2))
    return torch.stack(of_heads).sum(0)


def _entropy(logits: Sequence[Tensor]) -> Tensor:
    """Return the joint entropy of independent heads, in nats; the shape is theirs without the choices."""
    of_heads = [-(of_head.softmax(-1) * of_head.log_softmax(-1)).sum(-1) for of_head in logits]
    return torch.stack(of_heads).sum(0)


def _of_kind(heads: Sequence[Head], logits: Sequence[Tensor], kind: Kind | None) -> list[Tensor]:
    return [of_head for head, of_head in zip(heads, logits, strict=True) if kind in (None, head.kind)]


def _per_graph(of_nodes: Tensor, batch: MultigraphBatch) -> Tensor:
    """Add up over the nodes of each graph: from `(count, nodes)` to `(count, graphs)`."""
    sums = of_nodes.new_zeros(len(of_nodes), len(batch.sizes))
    return sums.index_add(1, batch.graph_of_node, of_nodes)


class RegalNetwork(nn.Module):
    """From graphs to a distribution over the actions of their ops.

    Parameters
    ----------
    parameters
        Its shape.
    """

    def __init__(self, parameters: RegalNetworkParameters) -> None:
        super().__init__()
        self.parameters_ = parameters
        self.encoder = make_encoder(parameters)
        if parameters.decoder == "autoregressive":
            self.autoregressive = AutoregressiveDecoder(parameters.heads, parameters.width)
        else:
            self.choose = Choices(parameters.heads, parameters.width)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def forward(self, batch: MultigraphBatch) -> RegalPolicy:
        """Return the policy for the graphs of a batch."""
        batch = batch.to(self.device)
        embeddings = self.encoder(batch)
        heads = self.parameters_.heads
        if self.parameters_.decoder == "autoregressive":
            return AutoregressivePolicy(heads, batch, embeddings, self.autoregressive)
        return IndependentPolicy(heads, batch, self.choose(embeddings))


class BaselineNetwork(nn.Module):
    """The scalar baseline b(G) = MLP_b(mean of MLP_g(h_v)), with an encoder of its own (end of 4.2).

    Parameters
    ----------
    parameters
        Of the network that it is the baseline of.
    """

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


def save_network(path: str | Path, network: RegalNetwork) -> None:
    """Write weights and shape to a safetensors file; see `write_network`."""
    write_network(path, network, network.parameters_)


def load_network(path: str | Path, device: str = "cpu") -> RegalNetwork:
    """Read what `save_network` wrote; see `read_network`."""
    return read_network(path, RegalNetworkParameters, RegalNetwork, "schedopt train regal", device)
