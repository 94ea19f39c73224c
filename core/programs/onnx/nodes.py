"""Nodes of an ONNX graph: their names, what they read, and which of them draw random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

RANDOM_OPS = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}


def node_names(graph: GraphProto) -> list[str]:
    """Return a unique name per node: its own, or `OP_INDEX`; a repeated one gets `#INDEX` from the second on."""
    taken = {node.name for node in graph.node}
    names: list[str] = []
    seen: set[str] = set()
    for index, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{index}"
        while name in seen or (name in taken and name != node.name):
            name += f"#{index}"
        seen.add(name)
        names.append(name)
    return names


def reads(node: NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, repeats included; an optional input left out is no value."""
    return (name for name in node.input if name)


def is_random(node: NodeProto) -> bool:
    """Whether a node draws random numbers; a Dropout may, if it has a `training_mode`."""
    return node.op_type in RANDOM_OPS or (node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2]))
