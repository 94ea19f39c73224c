"""The tensors along an order: slots for as long as they are needed, whatever the placement of the ops."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, IndexArray
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel

NOBODY = -1


class Route(NamedTuple):
    """What the states of a step share.

    Per op its `place` in the order. Per tensor: the `slot` that it has in a state while it is needed, how many
    readers and views are `left`, and whether it `has_views`. Per slot the tensor that is `held` there now.
    `dead` lists the slots that a step empties.
    """

    order: IndexArray
    place: IndexArray
    slot: IndexArray
    left: IndexArray
    has_views: BoolArray
    held: IndexArray
    dead: IndexArray


def new_route(g: GraphArrays, order: Any) -> tuple[Route, int]:
    """Give every tensor a slot for as long as it is needed along an order; returns how many slots there are."""
    ops, tensors = len(g.runtime), len(g.tensor_size)
    has_views = np.zeros(tensors, np.bool_)
    has_views[g.alias_of[g.alias_of >= 0]] = True
    route = Route(
        order=np.array(order, np.int32),
        place=np.empty(ops, np.int32),
        slot=np.empty(tensors, np.int32),
        left=np.empty(tensors, np.int32),
        has_views=has_views,
        held=np.empty(max(1, tensors), np.int32),
        dead=np.empty(tensors, np.int32),
    )
    route.place[route.order] = np.arange(ops, dtype=np.int32)
    return route, max(1, int(assign_slots(g, route)))


@inlined
def start_route(g: GraphArrays, route: Route) -> None:
    """Before the first op: readers and views of each tensor are all left."""
    for tensor in range(g.tensor_size.size):
        route.left[tensor] = g.consumer_ptr[tensor + 1] - g.consumer_ptr[tensor] + g.is_final[tensor]
    for tensor in range(g.tensor_size.size):
        if g.alias_of[tensor] >= 0:
            route.left[g.alias_of[tensor]] += 1


@inlined
def _free(g: GraphArrays, route: Route, tensor: int, freed: Any, count: int) -> int:
    """Append to `freed` the slots of an unneeded tensor and those it was the last view of; returns their number."""
    while tensor >= 0:
        freed[count] = route.slot[tensor]
        count += 1
        tensor = g.alias_of[tensor]
        if tensor >= 0:
            route.left[tensor] -= 1
            if route.left[tensor] > 0:
                tensor = NOBODY
    return count


@inlined
def free_after(g: GraphArrays, route: Route, op: int, freed: Any, count: int) -> int:
    """Append to `freed` the slots that an op empties once it has run; return how many there are then."""
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        if route.left[tensor] == 0:
            count = _free(g, route, tensor, freed, count)
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[at]
        route.left[tensor] -= 1
        if route.left[tensor] == 0:
            count = _free(g, route, tensor, freed, count)
    return count


@kernel
def assign_slots(g: GraphArrays, route: Route) -> int:
    """Fill `route.slot`, the one freed last first; returns how many are needed at once."""
    start_route(g, route)
    # `held` lists the free slots here.
    free, slots = 0, 0
    for op in route.order:
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            if free > 0:
                free -= 1
                route.slot[tensor] = route.held[free]
            else:
                route.slot[tensor] = slots
                slots += 1
        free = free_after(g, route, op, route.held, free)
    return slots


@kernel
def begin_step(g: GraphArrays, route: Route, step: int) -> int:
    """Hold the outputs of a step's op, count down its inputs, and list in `dead` what it empties; returns how many."""
    op = route.order[step]
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        route.held[route.slot[tensor]] = tensor
    return free_after(g, route, op, route.dead, 0)


@kernel
def end_step(route: Route, dying: int) -> None:
    """Empty the slots that a step lists in `dead`."""
    for at in range(dying):
        route.held[route.dead[at]] = NOBODY
