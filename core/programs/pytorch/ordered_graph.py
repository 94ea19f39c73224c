"""What became of a graph that PyTorch compiled."""

from __future__ import annotations

from dataclasses import dataclass

from ...base.units import format_bytes


@dataclass(frozen=True)
class OrderedGraph:
    """A graph that PyTorch compiled, before and after its ops were put in order; prints as one line.

    Parameters
    ----------
    name
        Of the graph, as PyTorch calls it.
    ops
        How many it has; with Inductor kernels, after fusion.
    stock_peak
        Bytes at the peak in the order that it would have had without schedopt, as counted.
    peak
        Bytes at the peak in the order that it has, as counted; never more.
    bound
        Bytes that no order needs less than, as counted.
    seconds
        What this added to compiling it.
    """

    name: str
    ops: int
    stock_peak: int
    peak: int
    bound: int
    seconds: float

    def __str__(self) -> str:
        stock, peak, bound = map(format_bytes, (self.stock_peak, self.peak, self.bound))
        found = f"peak {stock} as it was, {peak} now, no order needs less than {bound}"
        return f"{self.name}: {self.ops} ops, {found}, {self.seconds:.2f} s"
