"""What is asked of every importer, and of every search for an order of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..base.options import fixed, option
from ..search.options import Budget, ProblemOptions, Share, read_limit

Size: TypeAlias = int | Sequence[int]
DEFAULT_FLOPS = 1e12
DEFAULT_MEMORY_BANDWIDTH = 100e9


@dataclass(frozen=True)
class ImportOptions:
    """How to import a model; an importer reads the fields that its format knows.

    Parameters
    ----------
    training
        `none` for the forward pass alone, or the optimizer of a training step: `sgd`, `adam`, or
        `adam:learning_rate=0.01`.
    shapes
        A size for each symbolic dimension, by its name. Of ONNX files also all sizes of an input, or its value if it is
        one whole number, by its name; or, to `optimize`, a range of sizes.
    costs
        `roofline`: runtimes from FLOPs and bytes; `measured`: each op is run on this machine.
    flops
        FLOPs per second of the roofline; the default is a desktop processor's.
    memory_bandwidth
        Bytes per second of the roofline; the default is a desktop processor's.
    device
        Where a PyTorch model is traced and its ops are measured: `cpu` or `cuda`.
    default_size
        Bytes of a node whose file gives none; None makes that an error.
    graph
        Which of the graphs that the file or folder holds; None if it is the only one.
    """

    training: str = "none"
    shapes: Mapping[str, Size] = field(default_factory=dict)
    costs: str = "roofline"
    flops: float = DEFAULT_FLOPS
    memory_bandwidth: float = DEFAULT_MEMORY_BANDWIDTH
    device: str = "cpu"
    default_size: int | None = None
    graph: str | None = None

    @property
    def plain_shapes(self) -> dict[str, int]:
        """Those of `shapes` that are one number."""
        return {name: size for name, size in self.shapes.items() if isinstance(size, int)}


@dataclass(frozen=True)
class OptimizeOptions(Budget, ProblemOptions):
    """The memory limit that an order of a program keeps on one device, and how the order is searched."""

    task: Any = fixed("memory")
    devices: int = fixed(1)
    memory_limit: int | Share | None = option(
        None,
        "Bytes, e.g. 16GiB, or a share of program order's peak, e.g. 60%; exit code 1 if it is not kept",
        read=read_limit,
        shown="none",
    )
    bandwidth: float | None = fixed(None)
    latency: float = fixed(0.0)
    machine: Any = fixed(None)
    op_times: Any = fixed(None)
    pins: Any = fixed(None)
    replicate: bool = fixed(False)
    jobs: int = fixed(1)


def size_text(given: Size) -> str:
    """Return a size, all sizes of an input, or a range of sizes, as `--shape` takes it."""
    if isinstance(given, range):
        return f"{given.start}..{given.stop - 1}"
    return str(given) if isinstance(given, int) else "x".join(map(str, given))
