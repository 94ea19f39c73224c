"""Convolutional networks written out layer by layer: shapes, bytes, FLOPs, and the backward pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..core.graph.builder import GraphBuilder
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
class Variant:
    """Size of the images, how many at once, whether to train, and whether parameters are persistent bytes."""

    size: int
    batch: int = 1
    training: bool = False
    resident_weights: bool = True


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
    """What the backward pass must know of a forward op."""

    name: str
    inputs: tuple[Activation, ...]
    output: Activation
    flops: float = 0.0
    saved: tuple[tuple[int, int], ...] = ()  # read, beside the gradient of `output`, for the gradients of `inputs`
    weights: int = 0
    weight_reads: tuple[Activation, ...] = ()  # read for the gradient of the parameters
    joint: bool = False  # whether one op finds both
    passes: bool = False  # whether the gradient is unchanged


class ConvNet:
    """Builds the graph of a network, forward alone or one step of training.

    Forward, batch norm and a ReLU behind a convolution are part of it, as inference compilers do. In training all are
    ops, and stochastic gradient descent with momentum updates the parameters in place after the whole backward pass.
    Parameters are persistent bytes of their forward op, momentum those of the update, unless these lie elsewhere.
    Runtimes are a roofline, not a measurement: FLOPs at 2 TFLOP/s, or bytes at 50 GB/s, in whole microseconds.
    """

    def __init__(self, name: str, variant: Variant) -> None:
        self.batch = variant.batch
        self.training = variant.training
        self._resident = variant.resident_weights
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
        op = self._builder.add_op(
            name,
            inputs=reads,
            control=control,
            outputs=outputs,
            final=final,
            runtime=runtime,
            persistent=weights if self._resident else 0,
        )
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
            places = tuple(reads)
            saved = {"inputs": places + ports, "output": (output.place,), "extra": ports}.get(backward, ())
            weight_reads = inputs if backward == "weights apart" else ()
            joint, passes = backward == "inputs", backward == "passed on"
            self._tape.append(_Step(name, inputs, output, flops, saved, weights, weight_reads, joint, passes))
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
        """Add a convolution, and what belongs to it."""
        shape = (channels, *self._shape_after(x, kernel, stride, valid))
        x = self._convolution(name, x, shape, kernel, has_bias=norm == "none" or not self.training)
        if norm == "here":
            x = self.norm(f"{name}/norm", x)
        return self.relu(f"{name}/relu", x) if relu and self.training else x

    def _convolution(
        self, name: str, x: Activation, shape: tuple[int, int, int], kernel: int, *, has_bias: bool, final: bool = False
    ) -> Activation:
        channels, height, width = shape
        weights = FLOAT_BYTES * (kernel * kernel * x.channels * channels + channels * has_bias)
        flops = 2.0 * self.batch * kernel * kernel * x.channels * channels * height * width
        return self._layer(name, (x,), shape, flops, weights=weights, backward="weights apart", final=final)

    def depthwise(self, name: str, x: Activation, kernel: int, stride: int = 1) -> Activation:
        """Add a depthwise convolution without bias."""
        height, width = self._shape_after(x, kernel, stride, False)
        weights = FLOAT_BYTES * kernel * kernel * x.channels
        flops = 2.0 * self.batch * kernel * kernel * x.channels * height * width
        shape = (x.channels, height, width)
        return self._layer(name, (x,), shape, flops, weights=weights, backward="weights apart")

    def up_conv(self, name: str, x: Activation, channels: int) -> Activation:
        """Add a transposed 2x2 convolution of stride 2 with bias."""
        weights = FLOAT_BYTES * (4 * x.channels * channels + channels)
        flops = 2.0 * self.batch * 4 * x.channels * channels * x.height * x.width
        shape = (channels, 2 * x.height, 2 * x.width)
        return self._layer(name, (x,), shape, flops, weights=weights, backward="weights apart")

    def norm(self, name: str, x: Activation) -> Activation:
        """Add batch norm in training, where its second output is the batch's statistics; else nothing."""
        if not self.training:
            return x
        pair = FLOAT_BYTES * 2 * x.channels
        flops = 8.0 * self._size(x) / FLOAT_BYTES
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
        logits = self._convolution("head/logits", x, shape, 1, has_bias=True, final=not self.training)
        if self.training:
            flops = 5.0 * self._size(logits) / FLOAT_BYTES
            softmax = self._add("softmax", [logits.place], [self._size(logits)], flops)
            self._add("loss", [(softmax, 0)], [FLOAT_BYTES], flops, final=True)
            grad = self._add("softmax/grad", [(softmax, 0)], [self._size(logits)], flops)
            self._gradients[logits.place] = (grad, 0)
            self._backward()
        return self._builder.build()

    def _receive(self, name: str, x: Activation, gradient: tuple[int, int]) -> None:
        """Note a gradient of `x`, added to what has come before from its other readers."""
        before = self._gradients.get(x.place)
        if before is not None:
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
            if step.passes:
                for x in wanted:
                    self._receive(f"{step.name}/grad", x, gradient)
            elif wanted:
                outputs = [self._size(x) for x in wanted] + [step.weights] * step.joint
                reads = [gradient, *step.saved]
                touched = 0 if step.joint else step.weights
                op = self._add(f"{step.name}/grad", reads, outputs, step.flops, touched=touched)
                readers.append(op)
                for port, x in enumerate(wanted):
                    self._receive(f"{step.name}/grad", x, (op, port))
                if step.joint:
                    updates.append((step, (op, len(wanted)), []))
            if step.weight_reads:
                reads = [gradient, *(x.place for x in step.weight_reads)]
                op = self._add(f"{step.name}/grad_weights", reads, [step.weights], step.flops)
                updates.append((step, (op, 0), readers))
        for step, gradient, readers in reversed(updates):
            name, flops = f"{step.name}/update", 4 * step.weights / FLOAT_BYTES
            self._add(name, [gradient], [], flops, step.weights, control=readers, touched=2 * step.weights)
