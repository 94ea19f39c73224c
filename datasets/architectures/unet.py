"""U-Net (Ronneberger et al., MICCAI 2015, figure 1)."""

from __future__ import annotations

from ...core.graph.graph import CostGraph
from .convnet import Activation, ConvNet, Variant

LEVELS = (64, 128, 256, 512)
BOTTOM = 1024


def unet(name: str, variant: Variant) -> CostGraph:
    """Write out U-Net, unpadded, with two classes and one input channel; heights are even before each pooling."""
    net = ConvNet(name, variant)
    x = net.image(1, variant.size)
    skipped: list[Activation] = []
    for level, channels in enumerate(LEVELS, start=1):
        x = _two_convs(net, f"down{level}", x, channels)
        skipped.append(x)
        x = net.pool(f"down{level}/pool", x, 2, 2, "max")
    x = _two_convs(net, "bottom", x, BOTTOM)
    for level, channels in reversed(list(enumerate(LEVELS, start=1))):
        x = net.up_conv(f"up{level}/up_conv", x, channels)
        skip = net.crop(f"up{level}/crop", skipped[level - 1], x.height, x.width)
        x = _two_convs(net, f"up{level}", net.concat(f"up{level}/concat", [skip, x]), channels)
    return net.classify(x, 2)


def _two_convs(net: ConvNet, name: str, x: Activation, channels: int) -> Activation:
    for turn in (1, 2):
        x = net.conv(f"{name}/conv{turn}", x, channels, 3, norm="none", relu=True, valid=True)
    return x


def fits(size: int) -> bool:
    """Whether images of this height and width can be halved and doubled without a remainder."""
    for _ in LEVELS:
        size -= 4
        if size <= 0 or size % 2:
            return False
        size //= 2
    return size > 4
