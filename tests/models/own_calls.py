"""Calls as users write them, of which the peak is counted and measured: a model, and steps with their optimizers."""

import torch
from torch import nn
from torch.nn import functional as f
from torch.utils.checkpoint import checkpoint

NAMES = ("branches", "perceptron_step", "accumulating_step", "checkpointed_step", "recurrent_step")


class Branches(nn.Module):
    """Wide branches, whose results a list holds until they are joined."""

    def __init__(self):
        super().__init__()
        self.wide = nn.ModuleList(nn.Linear(64, 2048) for _ in range(4))
        self.narrow = nn.ModuleList(nn.Linear(2048, 16) for _ in range(4))

    def forward(self, x):
        wide = [layer(x).relu() for layer in self.wide]
        return torch.cat([layer(branch) for layer, branch in zip(self.narrow, wide, strict=True)], 1)


class Residual(nn.Module):
    """Blocks around which their input goes, so that gradients are summed up."""

    def __init__(self, is_checkpointed=False):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128)) for _ in range(4)
        )
        self.is_checkpointed = is_checkpointed

    def forward(self, x):
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x))
        return x


class Recurrent(nn.Module):
    """An LSTM cell over the steps of a sequence."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(64, 128)

    def forward(self, x):
        state = None
        for row in x.unbind(1):
            state = self.cell(row, state)
        return state[0]


def branches():
    """A model."""
    torch.manual_seed(0)
    return Branches().eval(), torch.randn(256, 64)


def _step(model, x, optimizer, accumulate=1):
    target = torch.randn_like(model(x))

    def step(x, target):
        optimizer.zero_grad()
        for _ in range(accumulate):
            loss = f.mse_loss(model(x), target)
            loss.backward()
        optimizer.step()
        return loss.item()

    return step, (x, target)


def perceptron_step():
    """A perceptron and Adam."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8))
    return _step(model, torch.randn(512, 64), torch.optim.Adam(model.parameters()))


def accumulating_step():
    """Residual blocks, two passes and one update."""
    torch.manual_seed(0)
    model = Residual()
    return _step(model, torch.randn(512, 128), torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), accumulate=2)


def checkpointed_step():
    """The same blocks, computed again in the backward pass."""
    torch.manual_seed(0)
    model = Residual(is_checkpointed=True)
    return _step(model, torch.randn(512, 128), torch.optim.SGD(model.parameters(), 0.01))


def recurrent_step():
    """A recurrent network and AdamW."""
    torch.manual_seed(0)
    model = Recurrent()
    return _step(model, torch.randn(32, 12, 64), torch.optim.AdamW(model.parameters()))
