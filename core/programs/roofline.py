"""The roofline: an op takes as long as its arithmetic or as its memory traffic, whichever is longer."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.errors import UsageError
from ..base.options import spelled
from .options import DEFAULT_FLOPS, DEFAULT_MEMORY_BANDWIDTH


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
