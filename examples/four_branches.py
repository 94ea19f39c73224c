"""A small PyTorch model whose program order is a poor one: four wide branches of one input, each soon narrow."""

import torch


class FourBranches(torch.nn.Module):
    """Widens all branches before it narrows the first."""

    def __init__(self):
        super().__init__()
        self.wide = torch.nn.ModuleList(torch.nn.Conv2d(3, 64, 3, padding=1) for _ in range(4))
        self.narrow = torch.nn.ModuleList(torch.nn.Conv2d(64, 4, 1) for _ in range(4))

    def forward(self, image):
        wide = [branch(image).relu() for branch in self.wide]
        return torch.cat([branch(x) for branch, x in zip(self.narrow, wide, strict=True)], dim=1)


def model(batch=1):
    torch.manual_seed(0)
    return FourBranches().eval(), (torch.randn(batch, 3, 128, 128),)
