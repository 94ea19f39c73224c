"""Maximum flow between sets of labelled nodes, which can be labelled further and the flow continued (Dinic 1970)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, IndexArray, IntArray, stable_order
from ...graph.graph import Buffers
from ..jit import kernel

FREE, SOURCE, SINK = 0, 1, 2


class Network(NamedTuple):
    """The hypergraph of buffers as a flow network; nodes are the ops, then the buffers."""

    # A buffer is an arc of its size from its producer into a node of its own, from there unlimited arcs to its users;
    # unlimited arcs to predecessors keep the source side closed. The node of a final buffer is a sink.

    pointers: IndexArray  # CSR node -> where its arcs lead, those against the flow included
    heads: IndexArray
    reverse: IndexArray  # per arc: the arc back
    capacity: IntArray  # per arc, bytes
    is_final: BoolArray  # per buffer


def network_of(b: Buffers) -> Network:
    """Return the network of a graph's buffers."""
    ops, count = len(b.own), len(b.size)
    buffers = np.arange(ops, ops + count, dtype=np.int32)
    buffer_of_user = np.repeat(buffers, np.diff(b.user_ptr))
    waiter = np.repeat(np.arange(ops, dtype=np.int32), np.diff(b.predecessor_ptr))
    tails = np.concatenate((b.producer, buffer_of_user, waiter))
    heads = np.concatenate((buffers, b.users, b.predecessors))
    # All bytes together: no cut of buffers alone is larger, and one byte more could overflow.
    unlimited = np.full(len(buffer_of_user) + len(waiter), b.size.sum(), np.int64)
    network, _ = network_with(tails, heads, np.concatenate((b.size, unlimited)), ops + count, b.is_final)
    return network


def network_with(tails: Any, heads: Any, capacity: Any, nodes: int, is_final: BoolArray) -> tuple[Network, IntArray]:
    """Return the network of arcs and their reverses, and the places of its arcs among those given and the reverses."""
    arcs = len(tails)
    both_tails, both_heads = np.concatenate((tails, heads)), np.concatenate((heads, tails))
    order = stable_order(both_tails)
    place = np.empty(2 * arcs, np.int64)
    place[order] = np.arange(2 * arcs)
    network = Network(
        np.searchsorted(both_tails[order], np.arange(nodes + 1)).astype(np.int32),
        both_heads[order].astype(np.int32),
        place[(order + arcs) % (2 * arcs)].astype(np.int32),
        np.concatenate((capacity, np.zeros(arcs, np.int64)))[order],
        is_final,
    )
    return network, order


class Flow(NamedTuple):
    """A flow, the labels of its nodes, and scratch space."""

    residual: IntArray  # per arc, bytes that it can still take
    label: Any  # per node: FREE, SOURCE or SINK
    # per node, after `max_flow`: negative on the source side of the minimum cut that has the largest one
    level: IndexArray
    queue: IndexArray
    cursor: IndexArray
    path: IndexArray


def new_flow(network: Network) -> Flow:
    """Return an empty flow without labels."""
    nodes = len(network.pointers) - 1
    label = np.full(nodes, FREE, np.int8)
    label[nodes - len(network.is_final) :][network.is_final] = SINK
    scratch = (np.empty(nodes, np.int32) for _ in range(4))
    return Flow(network.capacity.copy(), label, *scratch)


@kernel
def max_flow(network: Network, flow: Flow, limit: int) -> Any:
    """Send as much more as possible from the sources to the sinks; returns how much."""
    # Nodes that carry flow may have become sources or sinks since the last call: what was sent stays valid.
    sent = 0
    while True:
        filled = 0
        for node in range(flow.label.size):
            flow.level[node] = -1
            if flow.label[node] == SINK:
                flow.level[node] = 0
                flow.queue[filled] = node
                filled += 1
        # Distances to the sinks; sources end a search, so they are kept from the other end of the queue.
        sources = flow.queue.size
        at = 0
        while at < filled:
            node = flow.queue[at]
            at += 1
            for arc in range(network.pointers[node], network.pointers[node + 1]):
                other = network.heads[arc]
                if flow.level[other] < 0 and flow.residual[network.reverse[arc]] > 0:
                    flow.level[other] = flow.level[node] + 1
                    flow.cursor[other] = network.pointers[other]
                    if flow.label[other] == SOURCE:
                        sources -= 1
                        flow.queue[sources] = other
                    else:
                        flow.queue[filled] = other
                        filled += 1
        if sources == flow.queue.size:
            return sent
        for at in range(sources, flow.queue.size):
            sent += _send(network, flow, flow.queue[at], limit - sent)
            if sent > limit:
                return sent


@kernel
def _send(network: Network, flow: Flow, source: int, limit: int) -> Any:
    """Send along all shortest paths from one source, until more than the limit is sent; returns how much."""
    sent = 0
    node = source
    depth = 0
    while True:
        if flow.label[node] == SINK:
            least = flow.residual[flow.path[0]]
            for step in range(1, depth):
                least = min(least, flow.residual[flow.path[step]])
            for step in range(depth - 1, -1, -1):
                arc = flow.path[step]
                flow.residual[arc] -= least
                flow.residual[network.reverse[arc]] += least
                if flow.residual[arc] == 0:
                    depth = step
            sent += least
            if sent > limit:
                return sent
            node = network.heads[network.reverse[flow.path[depth]]]
        arc = flow.cursor[node]
        while arc < network.pointers[node + 1]:
            other = network.heads[arc]
            if flow.residual[arc] > 0 and flow.level[other] == flow.level[node] - 1 and flow.label[other] != SOURCE:
                break
            arc += 1
        flow.cursor[node] = arc
        if arc < network.pointers[node + 1]:
            flow.path[depth] = arc
            depth += 1
            node = network.heads[arc]
        elif depth == 0:
            return sent
        else:
            depth -= 1
            node = network.heads[network.reverse[flow.path[depth]]]
            flow.cursor[node] += 1


@kernel
def source_side(network: Network, flow: Flow, side: BoolArray) -> None:
    """Mark the nodes on the source side of the minimum cut that has the smallest one, after `max_flow`."""
    filled = 0
    for node in range(flow.label.size):
        side[node] = flow.label[node] == SOURCE
        if side[node]:
            flow.queue[filled] = node
            filled += 1
    at = 0
    while at < filled:
        node = flow.queue[at]
        at += 1
        for arc in range(network.pointers[node], network.pointers[node + 1]):
            other = network.heads[arc]
            if flow.residual[arc] > 0 and not side[other]:
                side[other] = True
                flow.queue[filled] = other
                filled += 1


def reachable(pointers: IndexArray, neighbours: IndexArray, start: int) -> BoolArray:
    """Return which nodes a path leads to from `start`, itself left out, shape `(nodes,)`."""
    seen = np.zeros(len(pointers) - 1, np.bool_)
    mark_reachable(pointers, neighbours, start, seen, np.empty(len(pointers), np.int32))
    return seen


@kernel
def mark_reachable(pointers: IndexArray, neighbours: IndexArray, start: int, seen: Any, stack: Any) -> None:
    """Depth-first search that marks visited nodes in `seen`."""
    stack[0] = start
    height = 1
    while height:
        height -= 1
        node = stack[height]
        for at in range(pointers[node], pointers[node + 1]):
            neighbour = neighbours[at]
            if not seen[neighbour]:
                seen[neighbour] = True
                stack[height] = neighbour
                height += 1
