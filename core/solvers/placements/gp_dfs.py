"""Graph partition and depth-first order (REGAL A.10): Kernighan-Lin, then XLA's DFS memory scheduler per device."""

import heapq
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import repeat

import numpy as np

from ...base.arrays import IndexArray
from ...bounds.bounds import Heed
from ...graph.graph import CostGraph
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from ...search.parameters import Parameters
from ...search.plans import Plans
from ...search.search import Cancelled, Search
from ..orders.baselines import postorder


def solve(search: Search, parameters: Parameters) -> None:
    """Offer one schedule: partition, order each device, merge; nothing if it has no time for all of it."""
    if search.exhausted():
        return
    problem = search.problem
    with suppress(Cancelled):
        placement = partition(problem.graph, problem.devices, search.rng, search.exhausted, search.cancellable)
        placement = problem.rules.kept(placement)
        orders = device_orders(problem.graph, placement, problem.devices, search.cancellable)
        order = merge(problem, placement, orders, search.cancellable).op_order()
        plans = Plans(problem)
        schedule = plans.schedule(plans.plan(order), placement)
        search.spend(1)
        if schedule is None:
            search.offer_order(problem.graph.input_order)
        else:
            search.offer(schedule)


Network = list[dict[int, int]]  # per op the bytes that it shares with each op that reads it or that it reads


def partition(
    graph: CostGraph, devices: int, rng: np.random.Generator, stop: Callable[[], bool], heed: Heed = iter
) -> IndexArray:
    """Return the device of each op, shape `(ops,)`, so that few bytes cross between devices."""
    # Kernighan-Lin bisection, ops in proportion, then of each half, swapping pairs until a pass brings nothing, as
    # networkx does; XLA's modified one, which the paper uses, is not published in detail.
    network: Network = [{} for _ in range(graph.num_ops)]
    pointers, tensors = (a.tolist() for a in graph.inputs)
    producers, sizes = graph.tensor_producer.tolist(), graph.tensor_size.tolist()
    for reader in heed(range(graph.num_ops)):
        for tensor in sorted(tensors[pointers[reader] : pointers[reader + 1]]):
            one, two = network[producers[tensor]], network[reader]
            one[reader] = two[producers[tensor]] = one.get(reader, 0) + sizes[tensor]
    placement = np.zeros(graph.num_ops, np.int32)

    def split(ops: Sequence[int], first: int, devices: int) -> None:
        """Place ops, which are in random order, on so many devices from the first on."""
        if devices == 1 or len(ops) < 2:
            placement[ops] = first
            return
        left = devices // 2
        cut = len(ops) * left // devices
        side = dict.fromkeys(ops[:cut], 0) | dict.fromkeys(ops[cut:], 1)
        while 0 < cut < len(ops) and not stop() and _improve(network, side, heed):
            pass
        for number, part in enumerate(((first, left), (first + left, devices - left))):
            split([op for op in heed(ops) if side[op] == number], *part)

    split(rng.permutation(graph.num_ops).tolist(), 0, devices)
    return placement


def _improve(network: Network, side: dict[int, int], heed: Heed) -> bool:
    """Swap ops between two parts, which keep their sizes, in one pass; returns whether fewer bytes cross."""
    from networkx.utils import BinaryHeap

    costs = (BinaryHeap(), BinaryHeap())
    for op in heed(sorted(side)):
        there, here = 0, 0
        for other, size in network[op].items():
            if other in side:
                if side[other] == side[op]:
                    here += size
                else:
                    there += size
        costs[side[op]].insert(op, here - there)

    total, least, kept = 0, 0, 0
    swapped: list[int] = []
    second = sum(side.values())
    for _ in heed(range(min(second, len(side) - second))):
        for heap in reversed(costs):
            op, cost = heap.pop()
            swapped.append(op)
            total += cost
            for other, size in network[op].items():
                if other in side and (known := costs[side[other]].get(other)) is not None:
                    change = -2 * size if side[other] == side[op] else 2 * size
                    costs[side[other]].insert(other, known + change, True)
        if total < least:
            least, kept = total, len(swapped)
    for op in swapped[:kept]:
        side[op] = 1 - side[op]
    return kept > 0


def device_orders(graph: CostGraph, placement: IndexArray, devices: int, heed: Heed = iter) -> list[list[int]]:
    """Return per device the postorder of a depth-first search from its last ops over their inputs."""
    # As in XLA's DFS memory scheduler: first the op with most extra users below it (an op with n users has n - 1), then
    # most bytes, then the least index. Sums count an op once per way to it, so they are kept from growing without end.
    pointers, predecessors = (a.tolist() for a in graph.predecessors)
    device = placement.tolist()
    before = [
        [p for p in predecessors[pointers[op] : pointers[op + 1]] if device[p] == device[op]]
        for op in heed(range(graph.num_ops))
    ]
    users = [0] * graph.num_ops
    for waits in before:
        for op in waits:
            users[op] += 1
    size = graph.buffers.own.tolist()
    bytes_below, extra_users, so_far = [0] * graph.num_ops, [0] * graph.num_ops, 0
    for op in heed(graph.input_order.tolist()):
        so_far += size[op]
        bytes_below[op] = min(so_far, size[op] + sum(bytes_below[p] for p in before[op]))
        extra_users[op] = min(graph.num_ops, max(0, users[op] - 1) + sum(extra_users[p] for p in before[op]))
        before[op].sort(key=lambda p: (-extra_users[p], -bytes_below[p], p))
    orders: list[list[int]] = [[] for _ in range(devices)]
    visited = bytearray(graph.num_ops)
    for last in heed(range(graph.num_ops)):
        if not users[last]:
            orders[device[last]] += postorder(last, before, visited, repeat(0))
    return orders


def merge(problem: Problem, placement: IndexArray, orders: list[list[int]], heed: Heed = iter) -> Schedule:
    """Return one schedule of all devices' orders, each tensor sent just before its first reader runs."""
    # The device whose clock lags, of equals the one that ran fewest ops, runs the first op of its order whose inputs
    # exist; two orders may wait for each other, so an op that has to wait is passed over.
    graph = problem.graph
    device, size = placement.tolist(), graph.tensor_size.tolist()
    producer = graph.tensor_producer.tolist()
    times, machine = problem.rules.times.tolist(), problem.machine
    latency, per_byte = (
        np.where(machine.has_link, a, 0).tolist() for a in (machine.latencies, machine.microseconds_per_byte)
    )
    input_ptr, inputs = (a.tolist() for a in graph.inputs)
    successor_ptr, successors = (a.tolist() for a in graph.successors)
    waiting = np.diff(graph.predecessors[0]).tolist()
    place = {op: at for order in orders for at, op in enumerate(order)}
    ready: list[list[int]] = [[at for at, op in enumerate(order) if not waiting[op]] for order in orders]
    clock, count = [0.0] * problem.devices, [0] * problem.devices
    sent: set[tuple[int, int]] = set()
    steps: list[tuple[int, int, int]] = []
    for _ in heed(range(graph.num_ops)):
        here = min((d for d in range(problem.devices) if ready[d]), key=lambda d: (clock[d], count[d], d))
        op = orders[here][heapq.heappop(ready[here])]
        for tensor in inputs[input_ptr[op] : input_ptr[op + 1]]:
            source = device[producer[tensor]]
            if source != here and (tensor, here) not in sent:
                sent.add((tensor, here))
                steps.append((~tensor, source, here))
                transfer = latency[source][here] + size[tensor] * per_byte[source][here]
                clock[source] = clock[here] = max(clock[source], clock[here]) + transfer
        steps.append((op, here, here))
        clock[here] += times[op][here]
        count[here] += 1
        for successor in successors[successor_ptr[op] : successor_ptr[op + 1]]:
            waiting[successor] -= 1
            if not waiting[successor]:
                heapq.heappush(ready[device[successor]], place[successor])
    return Schedule.from_steps(*zip(*steps, strict=True))
