"""Options of every importer and of every search for an order of a program, and the roofline that they set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from ..base.errors import UsageError
from ..base.options import fixed, option, spelled
from ..search.options import Budget, ProblemOptions, Share, read_allocator, read_limit

Size: TypeAlias = int | Sequence[int]
DEFAULT_FLOPS = 1e12
DEFAULT_MEMORY_BANDWIDTH = 100e9
AUTO = "auto"
"""The allocator of the device: PyTorch's own, with its options, on CUDA, and none elsewhere."""


@dataclass(frozen=True)
class ImportOptions:
    """How to import a model; an importer reads the fields that its format knows."""

    # `none` for the forward pass alone, or the optimizer of a training step: `sgd`, `adam:learning_rate=0.01`
    training: str = "none"
    # sizes of symbolic dimensions by name; of ONNX files also all sizes of an input, or its value if it is one whole
    # number; or, to `optimize`, a range of sizes
    shapes: Mapping[str, Size] = field(default_factory=dict)
    costs: str = "roofline"  # or `measured`: each op is run on this machine
    # FLOPs and bytes per second of the roofline, by default a desktop processor's
    flops: float = DEFAULT_FLOPS
    memory_bandwidth: float = DEFAULT_MEMORY_BANDWIDTH
    device: str = "cpu"  # where a PyTorch model is traced and its ops are measured: `cpu` or `cuda`
    default_size: int | None = None  # bytes of a node whose file gives none; None makes that an error
    reverse: bool = False  # whether edges of a file lead from a user to what it depends on
    graph: str | None = None  # of the graphs in a file or folder; None if it is the only one

    @property
    def changed(self) -> dict[str, Any]:
        """The options that are not the default, by name."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in given.items() if value != getattr(ImportOptions(), name)}

    @property
    def plain_shapes(self) -> dict[str, int]:
        """Those of `shapes` that are one number."""
        return {name: size for name, size in self.shapes.items() if isinstance(size, int)}


def _read_allocator(given: Any, called: str) -> Any:
    """Return an allocator, None, or that it is the one of the device."""
    return given if given == AUTO else None if given in (None, "none") else read_allocator(given, called)


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
    allocator: Any = option(
        AUTO,
        "Plan for the bytes that PyTorch's caching allocator reserves: cuda, or cuda:OPTION:VALUE,...; none: for live "
        "bytes; auto: as PyTorch has it, for a program on CUDA",
        read=_read_allocator,
        metavar="NAME",
    )


def size_text(given: Size) -> str:
    """Return a size, all sizes of an input, or a range of sizes, as `--shape` takes it."""
    if isinstance(given, range):
        return f"{given.start}..{given.stop - 1}"
    return str(given) if isinstance(given, int) else "x".join(map(str, given))


@dataclass(frozen=True)
class Roofline:
    """A machine as two rates (Williams, Waterman and Patterson, "Roofline", CACM 2009)."""

    flops: float = DEFAULT_FLOPS  # per second
    memory_bandwidth: float = DEFAULT_MEMORY_BANDWIDTH  # bytes per second

    def __post_init__(self) -> None:
        for what, rate in ((spelled("flops"), self.flops), (spelled("memory_bandwidth"), self.memory_bandwidth)):
            if not rate > 0:
                raise UsageError(f"{what} must be more than 0, not {rate:g}")

    def microseconds(self, flops: float, moved: float) -> float:
        """Return the time of an op that does `flops` FLOPs and reads and writes `moved` bytes."""
        return 1e6 * max(flops / self.flops, moved / self.memory_bandwidth)
