"""Published networks whose graphs the project writes itself, by name: NASNet-A, ResNet-50, U-Net."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..core.base.errors import UsageError
from ..core.base.names import unknown
from ..core.graph.graph import CostGraph
from .convnet import Activation, ConvNet, Variant

# NASNet-A, a network of cells found by search (Zoph et al., CVPR 2018, figure 4 and appendix A) ------------------


def nasnet_a(
    name: str, variant: Variant, *, penultimate: int, repeats: int, stem: int, skip_reduction: bool
) -> CostGraph:
    """Write out NASNet-A (`repeats` @ `penultimate`) for ImageNet, without its auxiliary head."""
    net = ConvNet(name, variant)
    filters = penultimate // 24
    current = net.conv("stem/conv", net.image(3, variant.size), stem, 3, 2, valid=True)
    current, previous = _reduction_cell(net, "stem/cell1", current, current, filters // 4)
    current, previous = _reduction_cell(net, "stem/cell2", current, previous, filters // 2)
    for stage in range(3):
        width = filters * 2**stage
        if stage:
            current, older = _reduction_cell(net, f"reduction{stage}", current, previous, width)
            previous = previous if skip_reduction else older
        for cell in range(1, repeats + 1):
            current, previous = _normal_cell(net, f"stage{stage + 1}/cell{cell}", current, previous, width)
    current = net.relu("head/relu", current)
    current = net.global_pool("head/pool", current)
    return net.classify(current, 1000)


def _separable(net: ConvNet, name: str, x: Activation, filters: int, kernel: int, stride: int = 1) -> Activation:
    """ReLU, depthwise and pointwise convolution, batch norm, all twice; the stride is in the first."""
    for turn in (1, 2):
        x = net.relu(f"{name}/relu{turn}", x)
        x = net.depthwise(f"{name}/depthwise{turn}", x, kernel, stride if turn == 1 else 1)
        x = net.conv(f"{name}/pointwise{turn}", x, filters, 1)
    return x


def _adjust(net: ConvNet, name: str, previous: Activation, current: Activation, filters: int) -> Activation:
    """Bring the older input to the size of the newer, by a factorized reduction, or to its channels."""
    if previous is current:
        return previous
    if previous.height != current.height:
        x = net.relu(f"{name}/relu", previous)
        paths = []
        for path in (1, 2):
            half = net.pool(f"{name}/subsample{path}", x, 1, 2, "average")
            paths.append(net.conv(f"{name}/conv{path}", half, filters // 2, 1, norm="later"))
        return net.norm(f"{name}/norm", net.concat(f"{name}/concat", paths))
    if previous.channels != filters:
        return net.conv(f"{name}/conv", net.relu(f"{name}/relu", previous), filters, 1)
    return previous


def _squeeze(net: ConvNet, name: str, current: Activation, filters: int) -> Activation:
    return net.conv(f"{name}/conv", net.relu(f"{name}/relu", current), filters, 1)


def _normal_cell(
    net: ConvNet, name: str, current: Activation, previous: Activation, filters: int
) -> tuple[Activation, Activation]:
    """Add a normal cell; return its output, and its newer input as the next cell's older one."""
    p = _adjust(net, f"{name}/older", previous, current, filters)
    h = _squeeze(net, f"{name}/newer", current, filters)
    left = _separable(net, f"{name}/block1/left", h, filters, 5)
    x1 = net.add(f"{name}/block1/add", left, _separable(net, f"{name}/block1/right", p, filters, 3))
    left = _separable(net, f"{name}/block2/left", p, filters, 5)
    x2 = net.add(f"{name}/block2/add", left, _separable(net, f"{name}/block2/right", p, filters, 3))
    x3 = net.add(f"{name}/block3/add", net.pool(f"{name}/block3/left", h, 3, 1, "average"), p)
    left = net.pool(f"{name}/block4/left", p, 3, 1, "average")
    x4 = net.add(f"{name}/block4/add", left, net.pool(f"{name}/block4/right", p, 3, 1, "average"))
    x5 = net.add(f"{name}/block5/add", _separable(net, f"{name}/block5/left", h, filters, 3), h)
    return net.concat(f"{name}/concat", [p, x1, x2, x3, x4, x5]), current


def _reduction_cell(
    net: ConvNet, name: str, current: Activation, previous: Activation, filters: int
) -> tuple[Activation, Activation]:
    """Add a reduction cell, which halves height and width; returns as `_normal_cell` does."""
    p = _adjust(net, f"{name}/older", previous, current, filters)
    h = _squeeze(net, f"{name}/newer", current, filters)
    left = _separable(net, f"{name}/block1/left", h, filters, 5, 2)
    x1 = net.add(f"{name}/block1/add", left, _separable(net, f"{name}/block1/right", p, filters, 7, 2))
    left = net.pool(f"{name}/block2/left", h, 3, 2, "max")
    x2 = net.add(f"{name}/block2/add", left, _separable(net, f"{name}/block2/right", p, filters, 7, 2))
    left = net.pool(f"{name}/block3/left", h, 3, 2, "average")
    x3 = net.add(f"{name}/block3/add", left, _separable(net, f"{name}/block3/right", p, filters, 5, 2))
    x4 = net.add(f"{name}/block4/add", x2, net.pool(f"{name}/block4/right", x1, 3, 1, "average"))
    left = _separable(net, f"{name}/block5/left", x1, filters, 3)
    x5 = net.add(f"{name}/block5/add", left, net.pool(f"{name}/block5/right", h, 3, 2, "max"))
    return net.concat(f"{name}/concat", [x2, x3, x4, x5]), current


# ResNet-50 (He et al., CVPR 2016, table 1) ---------------------------------------------------------------------


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


# U-Net (Ronneberger et al., MICCAI 2015, figure 1) -------------------------------------------------------------


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


@dataclass(frozen=True)
class Architecture:
    """A network: what makes its graph, its published image size, and the smallest possible one, in pixels."""

    build: Callable[[str, Variant], CostGraph]
    size: int
    smallest: int


ARCHITECTURES: dict[str, Architecture] = {
    "nasnet-a-mobile": Architecture(
        partial(nasnet_a, penultimate=1056, repeats=4, stem=32, skip_reduction=False), 224, 32
    ),
    "nasnet-a-large": Architecture(
        partial(nasnet_a, penultimate=4032, repeats=6, stem=96, skip_reduction=True), 331, 32
    ),
    "resnet50": Architecture(resnet50, 224, 32),
    "unet": Architecture(unet, 572, 188),
}


def architecture_graph(
    name: str, batch: int = 1, size: int | None = None, training: bool = False, resident_weights: bool = True
) -> CostGraph:
    """Write out a network's forward pass, or one step of its training."""
    if name not in ARCHITECTURES:
        raise unknown("network", name, ARCHITECTURES)
    chosen = ARCHITECTURES[name]
    size = chosen.size if size is None else size
    for what, value, low, high in (("batch", batch, 1, 2**16), ("image size", size, chosen.smallest, 2**14)):
        if not low <= value <= high:
            raise UsageError(f"the {what} of {name} must be from {low} to {high}, not {value}")
    if name == "unet" and not fits(size):
        raise UsageError(f"unet cannot halve images of size {size} four times; use 188 plus a multiple of 16")
    title = f"{name}-{'training' if training else 'inference'}-b{batch}"
    return chosen.build(title, Variant(size, batch, training, resident_weights))
