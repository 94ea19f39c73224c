"""NASNet-A, a network of cells found by search (Zoph et al., CVPR 2018, figure 4 and appendix A)."""

from __future__ import annotations

from ...core.graph.graph import CostGraph
from .convnet import Activation, ConvNet, Variant


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
