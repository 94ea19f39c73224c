"""Published networks whose graphs the project writes itself, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ...core.base.errors import UsageError
from ...core.base.names import unknown
from ...core.graph.graph import CostGraph
from .convnet import Variant
from .nasnet import nasnet_a
from .resnet import resnet50
from .unet import fits, unet


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
