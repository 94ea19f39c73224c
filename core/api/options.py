"""Options of the functions that solve, fit and pack; those of comparisons and programs are in their rooms."""

from __future__ import annotations

from dataclasses import dataclass

from ..addresses.alignment import DEFAULT_ALIGNMENT, LARGEST_ALIGNMENT
from ..base.errors import UsageError
from ..base.options import fixed, option, spelled
from ..base.units import parse_bytes, parse_seconds
from ..search.options import MOST_DEVICES, SEARCH_TIME, Budget, ProblemOptions


@dataclass(frozen=True)
class SolveOptions(Budget, ProblemOptions):
    """The problem that a graph poses, the budget of its search, and whether tensors get addresses."""

    addresses: bool = option(
        False,
        "Give every tensor an offset in its device's arena, and choose an order whose arena is small",
        panel="Addresses",
    )
    align: int | None = option(
        None,
        "With --addresses: what offsets are multiples of, e.g. 16 or 4KiB",
        read=parse_bytes,
        low=1,
        high=LARGEST_ALIGNMENT,
        panel="Addresses",
        shown=str(DEFAULT_ALIGNMENT),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.align is not None and not self.addresses:
            raise UsageError(f"{spelled('align')} is for {spelled('addresses', True)}; give that, too")

    @property
    def alignment(self) -> int | None:
        """What offsets are multiples of, bytes; None if no addresses are asked for."""
        return (self.align or DEFAULT_ALIGNMENT) if self.addresses else None


@dataclass(frozen=True)
class FitOptions(Budget):
    """On how many devices a model may run, which size is varied, and the budget of each search."""

    evaluations: None = fixed(None)
    time_limit: float | None = SEARCH_TIME
    devices: int = option(1, "The most devices to try", low=1, high=MOST_DEVICES, short="d")
    batch: str | None = option(
        None, "Find the largest that fits: a symbolic dimension, or a keyword argument of the function", metavar="NAME"
    )
    confirm: bool = option(False, "Run what fits on one device in a new process, and measure its peak")


@dataclass(frozen=True)
class PackOptions(Budget):
    """What offsets are multiples of, and the budget of the search."""

    evaluations: None = fixed(None)
    jobs: int = fixed(1)
    align: int | None = option(
        None,
        "What every offset is a multiple of, e.g. 64",
        read=parse_bytes,
        low=1,
        high=LARGEST_ALIGNMENT,
        shown="the file's alignment, or 1",
    )
    time_limit: float = option("10s", "Wall time, e.g. 2s", read=parse_seconds, short="t")
