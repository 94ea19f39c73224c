"""Small PyTorch models, as `module:function` names them."""

import torch
from torch import nn


class Branches(nn.Module):
    """Wide convolutions that program order computes all before the narrow ones which read them.

    Has what makes an order matter to the results: batch statistics and a counter written in place, `relu_` into a view,
    dropout, and a linear layer whose weight two layers share.
    """

    def __init__(self):
        super().__init__()
        self.wide = nn.ModuleList(nn.Conv2d(4, 32, 3, padding=1) for _ in range(4))
        self.narrow = nn.ModuleList(nn.Conv2d(32, 4, 1) for _ in range(4))
        self.norm = nn.BatchNorm2d(4)
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, image):
        wide = [layer(image).relu() for layer in self.wide]
        features = self.norm(sum(layer(x) for layer, x in zip(self.narrow, wide, strict=True)))
        features[:, :2].relu_()
        self.calls.add_(1)
        left, right = features.chunk(2, 1)
        noisy = [nn.functional.dropout(half, 0.3, self.training) for half in (right, left)]
        swapped = torch.cat(noisy, 1)
        return {"scores": self.two(self.one(swapped.mean((2, 3)))) + self.calls, "maps": (swapped, left)}


def branches():
    torch.manual_seed(0)
    return Branches().eval(), (torch.randn(2, 4, 24, 24),)


def branches_in_training():
    model, inputs = branches()
    return model.train(), inputs


def branches_without_data():
    with torch.device("meta"):
        return branches()


def attention():
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), {"src": torch.randn(2, 24, 16)}


def recurrent():
    torch.manual_seed(0)
    return nn.LSTM(8, 16, bidirectional=True), torch.randn(6, 2, 8)


def convolutions():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 8, 3)), torch.randn(2, 3, 16, 16)


def linear():
    torch.manual_seed(0)
    return nn.Linear(4, 2).eval(), torch.randn(3, 4)


def batched(batch=2, *, width=8):
    """Return a model whose peak grows with its batch, and with a width."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 1, 3, padding=1))
    return model.eval(), torch.randn(batch, 1, 16, 16)


class Largest(nn.Module):
    """Returns a named tuple of PyTorch's own."""

    def forward(self, x):
        return (x + 1).topk(2)


def largest():
    return Largest().eval(), torch.randn(3, 4)
