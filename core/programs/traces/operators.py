"""What is known of PyTorch's ops by their schema: what they are made of, write, and cost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from ..roofline import Roofline
from .nodes import Tensor, TraceNode

_OP_NAME = re.compile(r"\w+::\w+(\.\w+)?", re.ASCII)
_COMPOSITE = "CompositeImplicitAutograd"


@cache
def is_composite(schema: str) -> bool:
    """Whether an op is made of others alone, which autograd sees, so that an exported program has those instead."""
    name = schema.partition("(")[0]
    if not _OP_NAME.fullmatch(name):  # of a damaged trace
        return False
    return torch._C._dispatch_has_kernel(name) and torch._C._dispatch_has_kernel_for_dispatch_key(name, _COMPOSITE)


@cache
def written_arguments(schema: str) -> frozenset[int]:
    """Return the places of the arguments that an op writes, by the marks `Tensor(a!)` of its schema."""
    inside = schema.partition("(")[2].rpartition(") ->")[0]
    arguments = re.split(r",\s*(?![^(\[]*[)\]])", inside)
    places = [argument for argument in arguments if argument.strip() != "*"]
    return frozenset(place for place, argument in enumerate(places) if re.search(r"\([^)]*!", argument))


def _packet(node: TraceNode) -> tuple[Any, Any]:
    """Return the op as this PyTorch knows it, all overloads and the one that ran; None if it does not."""
    name, _, overload = node.schema.partition("(")[0].partition(".")
    space, _, base = name.partition("::")
    packet = getattr(getattr(torch.ops, space), base, None) if base else None
    return packet, getattr(packet, overload or "default", None)


def is_random(node: TraceNode) -> bool:
    """Whether an op draws from the random number generator."""
    _, op = _packet(node)
    return op is not None and torch.Tag.nondeterministic_seeded in op.tags


def microseconds(node: TraceNode, roofline: Roofline, sizes: Mapping[int, Any]) -> float:
    """Return the time of an op by the roofline; where PyTorch counts no FLOPs, one per element it makes."""
    distinct = {(t.storage, t.offset, t.shape): t for t in (*node.tensors, *node.outputs)}
    moved = 0
    for tensor in distinct.values():
        held = sizes.get(tensor.storage)
        moved += min(tensor.elements * tensor.item, held.size if held is not None else tensor.extent)
    packet, _ = _packet(node)
    flops: float = sum(tensor.elements for tensor in node.outputs)
    if packet in flop_registry:
        # What another version of PyTorch wrote may not fit the arguments of this one.
        with suppress(TypeError, ValueError, IndexError, AssertionError, AttributeError, RuntimeError):
            flops = flop_registry[packet](*map(_on_meta, node.inputs), out_val=_on_meta(node.outputs[0]))
    return roofline.microseconds(flops, moved)


def _on_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.empty(value.shape, device="meta")
    return [_on_meta(part) for part in value] if isinstance(value, list) else value
