"""A method that puts the ops of one device in order for least memory, checked before there is a graph."""

from __future__ import annotations

from typing import Any

from ...base.errors import UsageError
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
