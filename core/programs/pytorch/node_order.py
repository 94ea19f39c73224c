"""Orders of a graph that PyTorch compiles: the method that searches, the graph in another order, and the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch import fx

from ...base.errors import UsageError
from ...base.units import format_bytes
from ...graph.builder import GraphBuilder
from ...problem.problem import Problem
from ...search.method_spec import MethodSpec, check_supported, parse_method
from ...search.registry import DEFAULT_METHOD
from .calls import run_again


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


def is_number(node: fx.Node) -> bool:
    """Whether a node computes a plain number, such as a size, and no tensor: it costs nothing and is no op."""
    value = node.meta.get("val")
    return node.op == "call_function" and isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float)


def in_order(module: fx.GraphModule, names: Iterable[str]) -> fx.GraphModule:
    """Return a module with its ops in another order, some perhaps several times; arguments and results stay.

    A `getitem` follows the op that it takes from, and a number the last op that it needs.
    """
    old = module.graph
    nodes = {node.name: node for node in old.nodes}
    new = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    runs: Counter[fx.Node] = Counter()

    def add(node: fx.Node) -> None:
        runs[node] += 1
        name = node.name if runs[node] == 1 else f"{node.name}_run_{runs[node]}"
        args, kwargs = fx.map_arg((node.args, node.kwargs), copies.__getitem__)
        if runs[node] > 1:
            args, kwargs = run_again(node.target, args, kwargs)
        copies[node] = new.create_node(node.op, node.target, args, kwargs, name, node.type)
        copies[node].meta = dict(node.meta)
        for user in node.users:
            takes = user.target is getitem and bool(user.users)
            follows = takes or (is_number(user) and user not in copies)
            if follows and all(needed in copies for needed in user.all_input_nodes):
                add(user)

    for node in old.nodes:
        if node.op in ("placeholder", "get_attr") or (is_number(node) and not node.all_input_nodes):
            add(node)
    for name in names:
        add(nodes[name])
    add(old.output_node())
    for node in reversed(new.nodes):
        if node.target is getitem and not node.users:  # of a run whose other results alone are taken
            new.erase_node(node)
    return fx.GraphModule(module, new)
