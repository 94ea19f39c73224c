"""Published networks whose graphs the project writes itself, by name, with the writer of convolutional ones."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ..core.base.errors import UsageError
from ..core.base.names import unknown
from ..core.graph.builder import GraphBuilder, OpCosts
from ..core.graph.graph import CostGraph

FLOAT_BYTES = 4
INDEX_BYTES = 8
FLOPS_PER_MICROSECOND = 2e6
BYTES_PER_MICROSECOND = 5e4

Norm = Literal["here", "later", "none"]
# How the gradients of an op's inputs are found, from that of its output. `gradient`: from that alone; `passed on`: it
# is theirs; `inputs`: from inputs and further outputs, and with them the gradient of the parameters; `output`, `extra`:
# from the output, or further ones; `weights apart`: another op finds the gradient of the parameters, from the inputs.
Backward = Literal["gradient", "passed on", "inputs", "output", "extra", "weights apart"]


@dataclass(frozen=True)
class Activation:
    """A float32 tensor of shape `(batch, channels, height, width)`, as an output port of an op."""

    op: int
    port: int
    channels: int
    height: int
    width: int

    @property
    def place(self) -> tuple[int, int]:
        """`(op, port)`."""
        return self.op, self.port

    @property
    def shape(self) -> tuple[int, int, int]:
        """`(channels, height, width)`."""
        return self.channels, self.height, self.width


@dataclass(frozen=True)
class _Step:
    """A forward op's facts for the backward pass."""

    name: str
    inputs: tuple[Activation, ...]
    output: Activation
    flops: float = 0.0
    saved: tuple[tuple[int, int], ...] = ()  # read, beside the gradient of `output`, for the gradients of `inputs`
    weights: int = 0
    backward: Backward = "gradient"


class ConvNet:
    """Builds the graph of a network, forward alone or one step of training."""

    # Forward, batch norm and a ReLU behind a convolution are part of it, as inference compilers do. In training all are
    # ops, and SGD with momentum updates the parameters in place after the backward pass. Parameters are persistent
    # bytes of their forward op, momentum those of the update, unless these lie elsewhere.

    def __init__(self, name: str, batch: int = 1, training: bool = False, resident_weights: bool = True) -> None:
        self.batch, self.training, self._resident = batch, training, resident_weights
        self._builder = GraphBuilder(name)
        self._sizes: dict[tuple[int, int], int] = {}
        self._tape: list[_Step] = []
        self._gradients: dict[tuple[int, int], tuple[int, int]] = {}

    def _bytes(self, channels: int, height: int, width: int) -> int:
        return FLOAT_BYTES * self.batch * channels * height * width

    def _size(self, x: Activation) -> int:
        return self._bytes(*x.shape)

    def _add(
        self,
        name: str,
        reads: Sequence[tuple[int, int]],
        outputs: Sequence[int],
        flops: float,
        weights: int = 0,
        control: Sequence[int] = (),
        final: bool = False,
        touched: int = 0,
    ) -> int:
        """Add an op; `weights` are its parameters' bytes, `touched` others it works on beside its tensors."""
        moved = sum(self._sizes[place] for place in reads) + sum(outputs) + weights + touched
        runtime = max(1, round(max(flops / FLOPS_PER_MICROSECOND, moved / BYTES_PER_MICROSECOND)))
        costs: OpCosts = {"runtime": runtime, "persistent": weights if self._resident else 0}
        op = self._builder.add_op(name, inputs=reads, control=control, outputs=outputs, final=final, **costs)
        for port, size in enumerate(outputs):
            self._sizes[op, port] = size
        return op

    def image(self, channels: int, size: int) -> Activation:
        """Add the input image."""
        op = self._builder.add_op("image", outputs=[self._bytes(channels, size, size)])
        self._sizes[op, 0] = self._bytes(channels, size, size)
        return Activation(op, 0, channels, size, size)

    def _layer(
        self,
        name: str,
        inputs: tuple[Activation, ...],
        shape: tuple[int, int, int],
        flops: float,
        *,
        weights: int = 0,
        extra: Sequence[int] = (),
        backward: Backward = "gradient",
        final: bool = False,
    ) -> Activation:
        """Add a forward op of output `shape` and further outputs of `extra` bytes, and note it for the way back."""
        reads = list(dict.fromkeys(x.place for x in inputs))
        outputs = [self._bytes(*shape), *extra]
        op = self._add(name, reads, outputs, flops, weights, final=final)
        output = Activation(op, 0, *shape)
        if self.training:
            ports = tuple((op, port) for port in range(1, len(outputs)))
            saved = {"inputs": (*reads, *ports), "output": (output.place,), "extra": ports}.get(backward, ())
            self._tape.append(_Step(name, inputs, output, flops, saved, weights, backward))
        return output

    def _shape_after(self, x: Activation, kernel: int, stride: int, valid: bool) -> tuple[int, int]:
        if valid:
            return (x.height - kernel) // stride + 1, (x.width - kernel) // stride + 1
        return math.ceil(x.height / stride), math.ceil(x.width / stride)

    def conv(
        self,
        name: str,
        x: Activation,
        channels: int,
        kernel: int,
        stride: int = 1,
        *,
        norm: Norm = "here",
        relu: bool = False,
        valid: bool = False,
    ) -> Activation:
        """Add a convolution, and its companions."""
        shape = (channels, *self._shape_after(x, kernel, stride, valid))
        bias = channels if norm == "none" or not self.training else 0
        x = self._convolution(name, x, shape, kernel * kernel * x.channels * channels, bias)
        if norm == "here":
            x = self.norm(f"{name}/norm", x)
        return self.relu(f"{name}/relu", x) if relu and self.training else x

    def _convolution(
        self, name: str, x: Activation, shape: tuple[int, int, int], products: int, bias: int = 0, final: bool = False
    ) -> Activation:
        """Add a convolution of so many weights, each taken once for each place of the smaller image."""
        places = min(x.height * x.width, shape[1] * shape[2])
        flops, weights = 2.0 * self.batch * products * places, FLOAT_BYTES * (products + bias)
        return self._layer(name, (x,), shape, flops, weights=weights, backward="weights apart", final=final)

    def depthwise(self, name: str, x: Activation, kernel: int, stride: int = 1) -> Activation:
        """Add a depthwise convolution without bias."""
        shape = (x.channels, *self._shape_after(x, kernel, stride, False))
        return self._convolution(name, x, shape, kernel * kernel * x.channels)

    def up_conv(self, name: str, x: Activation, channels: int) -> Activation:
        """Add a transposed 2x2 convolution of stride 2 with bias."""
        return self._convolution(name, x, (channels, 2 * x.height, 2 * x.width), 4 * x.channels * channels, channels)

    def norm(self, name: str, x: Activation) -> Activation:
        """Add batch norm in training, where its second output is the batch's statistics; else nothing."""
        if not self.training:
            return x
        pair, flops = FLOAT_BYTES * 2 * x.channels, 8.0 * self._size(x) / FLOAT_BYTES
        return self._layer(name, (x,), x.shape, flops, weights=pair, extra=[pair], backward="inputs")

    def relu(self, name: str, x: Activation) -> Activation:
        """Add a ReLU as an op of its own."""
        return self._layer(name, (x,), x.shape, self._size(x) / FLOAT_BYTES, backward="output")

    def add(self, name: str, x: Activation, y: Activation, relu: bool = False) -> Activation:
        """Add two tensors; a ReLU behind is part of the op, except in training."""
        x = self._layer(name, (x, y), x.shape, self._size(x) / FLOAT_BYTES, backward="passed on")
        return self.relu(f"{name}/relu", x) if relu and self.training else x

    def concat(self, name: str, tensors: Sequence[Activation]) -> Activation:
        """Concatenate along the channels."""
        channels = sum(x.channels for x in tensors)
        return self._layer(name, tuple(tensors), (channels, tensors[0].height, tensors[0].width), 0.0)

    def crop(self, name: str, x: Activation, height: int, width: int) -> Activation:
        """Cut out the middle."""
        return self._layer(name, (x,), (x.channels, height, width), 0.0)

    def pool(self, name: str, x: Activation, kernel: int, stride: int, kind: Literal["max", "average"]) -> Activation:
        """Add pooling with padding; in training, max pooling's second output is where the maxima are."""
        height, width = self._shape_after(x, kernel, stride, False)
        elements = self.batch * x.channels * height * width
        flops = float(kernel * kernel * elements)
        extra = [INDEX_BYTES * elements] if kind == "max" and self.training else []
        return self._layer(name, (x,), (x.channels, height, width), flops, extra=extra, backward="extra")

    def global_pool(self, name: str, x: Activation) -> Activation:
        """Average over height and width."""
        return self._layer(name, (x,), (x.channels, 1, 1), self._size(x) / FLOAT_BYTES)

    def classify(self, x: Activation, classes: int) -> CostGraph:
        """Add a classifier of each pixel and, in training, loss, backward pass and updates; return the graph."""
        shape = (classes, x.height, x.width)
        logits = self._convolution("head/logits", x, shape, x.channels * classes, classes, final=not self.training)
        if self.training:
            flops = 5.0 * self._size(logits) / FLOAT_BYTES
            softmax = self._add("softmax", [logits.place], [self._size(logits)], flops)
            self._add("loss", [(softmax, 0)], [FLOAT_BYTES], flops, final=True)
            grad = self._add("softmax/grad", [(softmax, 0)], [self._size(logits)], flops)
            self._gradients[logits.place] = (grad, 0)
            self._backward()
        return self._builder.build()

    def _receive(self, name: str, x: Activation, gradient: tuple[int, int]) -> None:
        """Note a gradient of `x`, added to the earlier ones from its other readers."""
        if (before := self._gradients.get(x.place)) is not None:
            size = self._size(x)
            gradient = (self._add(f"{name}/sum", [before, gradient], [size], size / FLOAT_BYTES), 0)
        self._gradients[x.place] = gradient

    def _backward(self) -> None:
        """Walk the tape backwards; then update every parameter in forward order."""
        has_gradient = {step.output.place for step in self._tape}
        updates: list[tuple[_Step, tuple[int, int], list[int]]] = []
        for step in reversed(self._tape):
            gradient = self._gradients.pop(step.output.place)
            wanted = [x for x in step.inputs if x.place in has_gradient]
            readers: list[int] = []
            is_joint = step.backward == "inputs"
            if step.backward == "passed on":
                for x in wanted:
                    self._receive(f"{step.name}/grad", x, gradient)
            elif wanted:
                outputs = [self._size(x) for x in wanted] + [step.weights] * is_joint
                reads, touched = [gradient, *step.saved], 0 if is_joint else step.weights
                op = self._add(f"{step.name}/grad", reads, outputs, step.flops, touched=touched)
                readers.append(op)
                for port, x in enumerate(wanted):
                    self._receive(f"{step.name}/grad", x, (op, port))
                if is_joint:
                    updates.append((step, (op, len(wanted)), []))
            if step.backward == "weights apart":
                reads = [gradient, *(x.place for x in step.inputs)]
                op = self._add(f"{step.name}/grad_weights", reads, [step.weights], step.flops)
                updates.append((step, (op, 0), readers))
        for step, gradient, readers in reversed(updates):
            name, flops = f"{step.name}/update", 4 * step.weights / FLOAT_BYTES
            self._add(name, [gradient], [], flops, step.weights, control=readers, touched=2 * step.weights)


def nasnet_a(net: ConvNet, size: int, *, penultimate: int, repeats: int, stem: int, skip_reduction: bool) -> CostGraph:
    """Write out NASNet-A (`repeats` @ `penultimate`) for ImageNet, without its auxiliary head (Zoph et al. 2018, A)."""
    filters = penultimate // 24
    current = net.conv("stem/conv", net.image(3, size), stem, 3, 2, valid=True)
    current, previous = _reduction_cell(net, "stem/cell1", current, current, filters // 4)
    current, previous = _reduction_cell(net, "stem/cell2", current, previous, filters // 2)
    for stage in range(3):
        width = filters * 2**stage
        if stage:
            current, older = _reduction_cell(net, f"reduction{stage}", current, previous, width)
            previous = previous if skip_reduction else older
        for cell in range(1, repeats + 1):
            current, previous = _normal_cell(net, f"stage{stage + 1}/cell{cell}", current, previous, width)
    return net.classify(net.global_pool("head/pool", net.relu("head/relu", current)), 1000)


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


def _normal_cell(
    net: ConvNet, name: str, current: Activation, previous: Activation, filters: int
) -> tuple[Activation, Activation]:
    """Add a normal cell; return its output, and its newer input as the next cell's older one."""
    p = _adjust(net, f"{name}/older", previous, current, filters)
    h = net.conv(f"{name}/newer/conv", net.relu(f"{name}/newer/relu", current), filters, 1)
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
    h = net.conv(f"{name}/newer/conv", net.relu(f"{name}/newer/relu", current), filters, 1)
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


STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))


def resnet50(net: ConvNet, size: int) -> CostGraph:
    """Write out ResNet-50 (He et al. 2016, table 1); blocks that halve the image do it in their first convolution."""
    x = net.conv("stem/conv", net.image(3, size), 64, 7, 2, relu=True)
    x = net.pool("stem/pool", x, 3, 2, "max")
    for stage, (channels, blocks) in enumerate(STAGES, start=1):
        for block in range(1, blocks + 1):
            stride = 2 if stage > 1 and block == 1 else 1
            x = _bottleneck(net, f"stage{stage}/block{block}", x, channels, stride)
    return net.classify(net.global_pool("head/pool", x), 1000)


def _bottleneck(net: ConvNet, name: str, x: Activation, channels: int, stride: int) -> Activation:
    """Add 1x1, 3x3 and 1x1 convolutions beside a shortcut, which is a convolution where the shape changes."""
    inner = net.conv(f"{name}/conv1", x, channels, 1, stride, relu=True)
    inner = net.conv(f"{name}/conv2", inner, channels, 3, relu=True)
    inner = net.conv(f"{name}/conv3", inner, 4 * channels, 1)
    if x.channels != 4 * channels:
        x = net.conv(f"{name}/shortcut", x, 4 * channels, 1, stride)
    return net.add(f"{name}/add", inner, x, relu=True)


LEVELS = (64, 128, 256, 512)
BOTTOM = 1024


def unet(net: ConvNet, size: int) -> CostGraph:
    """Write out U-Net (Ronneberger et al. 2015): unpadded, two classes; heights are even before pooling."""
    x = net.image(1, size)
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
    """A network: the maker of its graph, its published image size, and the smallest possible one, in pixels."""

    build: Callable[[ConvNet, int], CostGraph]
    size: int
    smallest: int


_MOBILE = partial(nasnet_a, penultimate=1056, repeats=4, stem=32, skip_reduction=False)
_LARGE = partial(nasnet_a, penultimate=4032, repeats=6, stem=96, skip_reduction=True)
ARCHITECTURES: dict[str, Architecture] = {
    "nasnet-a-mobile": Architecture(_MOBILE, 224, 32),
    "nasnet-a-large": Architecture(_LARGE, 331, 32),
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
    return chosen.build(ConvNet(title, batch, training, resident_weights), size)
