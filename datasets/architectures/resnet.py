"""ResNet-50 (He et al., CVPR 2016, table 1)."""

from __future__ import annotations

from ...core.graph.graph import CostGraph
from .convnet import Activation, ConvNet, Variant

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))


def resnet50(name: str, variant: Variant) -> CostGraph:
    """Write out ResNet-50 for ImageNet; blocks that halve the image do it in their first convolution."""
    net = ConvNet(name, variant)
    x = net.conv("stem/conv", net.image(3, variant.size), 64, 7, 2, relu=True)
    x = net.pool("stem/pool", x, 3, 2, "max")
    for stage, (channels, blocks) in enumerate(STAGES, start=1):
        for block in range(1, blocks + 1):
            stride = 2 if stage > 1 and block == 1 else 1
            x = _bottleneck(net, f"stage{stage}/block{block}", x, channels, stride)
    x = net.global_pool("head/pool", x)
    return net.classify(x, 1000)


def _bottleneck(net: ConvNet, name: str, x: Activation, channels: int, stride: int) -> Activation:
    """Add 1x1, 3x3 and 1x1 convolutions beside a shortcut, which is a convolution where the shape changes."""
    inner = net.conv(f"{name}/conv1", x, channels, 1, stride, relu=True)
    inner = net.conv(f"{name}/conv2", inner, channels, 3, relu=True)
    inner = net.conv(f"{name}/conv3", inner, 4 * channels, 1)
    if x.channels != 4 * channels:
        x = net.conv(f"{name}/shortcut", x, 4 * channels, 1, stride)
    return net.add(f"{name}/add", inner, x, relu=True)
