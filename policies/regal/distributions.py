"""REGAL's policies: distributions over the actions of every op, independent or one after another (REGAL A.6 to A.8)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from .actions import Head, Kind, Taken
from .batch import MultigraphBatch, lines, nodes_of, sequences

NEAR_UNIFORM = 0.1  # what the last layer of the choices is scaled by at the start
SAMPLES_OF_ENTROPY = 16


class RegalPolicy(ABC):
    """A distribution over the actions of all ops, p(a | G) of 4.1: levels, int64, shape `(..., nodes, heads)`."""

    def __init__(self, heads: Sequence[Head], batch: MultigraphBatch) -> None:
        self.heads, self.batch = heads, batch

    @abstractmethod
    def _picked(self, pick: Callable[[Sequence[Tensor], Tensor], Tensor], draws: Tensor) -> Tensor:
        """Return actions picked by the logits of each choice, given those before it, and draws."""

    @abstractmethod
    def _logits(self, actions: Tensor) -> Sequence[Tensor]:
        """Return the logits of each head, given actions of shape `(count, nodes, heads)`."""

    @abstractmethod
    def entropy(self, kind: Kind | None = None) -> Tensor:
        """Return the entropy of an op's action, mean over the ops of each graph, in nats; shape `(graphs,)`."""

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw actions, shape `(count, nodes, heads)`."""
        # A choice rises with its number of the generator: what policies that differ little draw alike differs little.
        nodes = self.batch.nodes
        return self._picked(
            _choose, torch.rand(count, len(nodes), len(self.heads), generator=generator, device=nodes.device)
        )

    def most_likely(self) -> Tensor:
        """Return the most probable level of each choice, given those before it; shape `(nodes, heads)`."""
        return self._surely(_most_likely)

    def expected(self) -> Tensor:
        """Return the mean level of each choice, given those before it, rounded; shape `(nodes, heads)`."""
        # Where the policy is unsure this is between what it wavers between. Of two levels as near the even one is
        # taken.
        return self._surely(_expected)

    def _surely(self, pick: Callable[[Sequence[Tensor]], Tensor]) -> Tensor:
        """Return actions that need no draws."""
        nodes = self.batch.nodes
        actions = self._picked(lambda logits, _: pick(logits), nodes.new_empty(1, len(nodes), 0))
        return actions.view(len(nodes), len(self.heads))

    def log_probability(self, actions: Tensor) -> Tensor:
        """Return the log-probability of actions of shape `(count, nodes, heads)`; shape `(count, graphs)`."""
        of_nodes = _log_probability(self._logits(actions), actions)
        sums = of_nodes.new_zeros(len(of_nodes), len(self.batch.sizes))
        return sums.index_add(1, self.batch.graph_of_node, of_nodes)

    def _entropy_of(self, kind: Kind | None, logits: Sequence[Tensor]) -> Tensor:
        """Return the joint entropy of the independent heads of a kind, in nats; their shape without the choices."""
        chosen = [of_head for head, of_head in zip(self.heads, logits, strict=True) if kind in (None, head.kind)]
        return torch.stack([-(of_head.softmax(-1) * of_head.log_softmax(-1)).sum(-1) for of_head in chosen]).sum(0)


def taken_actions(policy: RegalPolicy, taken: Taken, seed: Callable[[], int]) -> Tensor:
    """Return the actions of a policy on the CPU, shape `(nodes, heads)`; the seed is asked for if they are drawn."""
    if taken == "sample":
        return policy.sample(1, torch.Generator().manual_seed(seed()))[0]
    return policy.most_likely() if taken == "most-likely" else policy.expected()


class IndependentPolicy(RegalPolicy):
    """All choices are independent, given the graph (eq. 2)."""

    def __init__(self, heads: Sequence[Head], batch: MultigraphBatch, logits: Sequence[Tensor]) -> None:
        super().__init__(heads, batch)
        self.logits = logits

    def _picked(self, pick: Callable[[Sequence[Tensor], Tensor], Tensor], draws: Tensor) -> Tensor:
        return pick(self.logits, draws)

    def _logits(self, actions: Tensor) -> Sequence[Tensor]:
        return self.logits

    def entropy(self, kind: Kind | None = None) -> Tensor:
        """See `RegalPolicy`."""
        return self.batch.means(self._entropy_of(kind, self.logits))


class AutoregressivePolicy(RegalPolicy):
    """Ops choose in topological order, each knowing what those before it chose (A.8)."""

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
        return self.batch.means(self._entropy_of(kind, self._logits(actions)).mean(0))


class AutoregressiveDecoder(nn.Module):
    """An LSTM in topological order, of ops' embeddings and a vector per level chosen for the op before (A.8)."""

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
        lined = sequences(embeddings, batch).expand(count, -1, -1, -1)
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
    """Build one of the paper's MLPs: two layers (A.14), rectified in between (A.7)."""
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


def _most_likely(logits: Sequence[Tensor]) -> Tensor:
    """Return the most probable level of each head, shape `(..., heads)`."""
    return torch.stack([of_head.argmax(-1) for of_head in logits], dim=-1)


def _expected(logits: Sequence[Tensor]) -> Tensor:
    """Return the mean level of each head, rounded, shape `(..., heads)`."""
    levels = []
    for of_head in logits:
        every = torch.arange(of_head.shape[-1], device=of_head.device, dtype=of_head.dtype)
        levels.append((of_head.softmax(-1) @ every).round().long())
    return torch.stack(levels, dim=-1)


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
