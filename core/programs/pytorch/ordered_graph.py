"""What became of a graph that PyTorch compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...base.errors import UsageError
from ...base.units import format_bytes
from ...graph.builder import GraphBuilder
from ...problem.problem import Problem
from ...search.method_spec import MethodSpec, check_supported, parse_method
from ...search.registry import DEFAULT_METHOD


def order_method(method: Any, evaluations: int | None = None) -> MethodSpec:
    """Return a method by its name, once it is clear that it can order ops, within so many evaluations if given."""
    if not isinstance(method, str):
        raise UsageError(f"a method is a name such as '{DEFAULT_METHOD}', not {method!r}")
    spec = parse_method(method)
    builder = GraphBuilder("one op")
    builder.add_op("op")
    check_supported(spec, Problem(builder.build()), evaluations)
    return spec


@dataclass(frozen=True)
class OrderedGraph:
    """A graph that PyTorch compiled, before and after its ops were put in order; prints as one line."""

    name: str  # PyTorch's
    ops: int  # with Inductor kernels, after fusion
    stock_peak: int  # peak bytes without schedopt, as counted
    peak: int  # peak bytes, as counted
    bound: int  # peak bytes that no order is below, as counted
    seconds: float  # added to its compilation

    def __str__(self) -> str:
        stock, peak, bound = map(format_bytes, (self.stock_peak, self.peak, self.bound))
        found = f"peak {stock} as it was, {peak} now, no order needs less than {bound}"
        return f"{self.name}: {self.ops} ops, {found}, {self.seconds:.2f} s"
