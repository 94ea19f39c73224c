"""Clusters of ops that share a device: a hierarchy, largest bytes exchanged per work first."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...base.arrays import FloatArray, IndexArray, IntArray
from ...kernels.placements.sequences import NO_GROUPS, Groups
from ...problem.problem import Problem
from ...search.search import Search

LARGEST_GROUP = 0.6  # of all ops: larger groups are no use elsewhere
SHARE_OF_GROUPS = 0.2  # of the time: more than that is not spent on which ops move together
MOST_READS = 500_000  # of more, a single round of merging takes half a second
MOST_ROUNDS = 1_000  # of the readers of a tensor that exchange alike a round merges one: there may be thousands
MOST_STEPS = 300  # of a power iteration: wide graphs have their order across after about so many


class Clusters(NamedTuple):
    """Groups of ops, single ones first, each a stretch of `ops`; of two one holds the other, or none."""

    ops: IndexArray
    first: IndexArray
    last: IndexArray
    exchange: FloatArray  # what a group's transfers from and to all other ops would cost


def clusters_of(problem: Problem, stop: Callable[[], bool] = lambda: False) -> Clusters:
    """Merge ops, then groups, two at a time, in rounds: wherever each is that with which the other exchanges most."""
    # That is for the ops of the smaller one; an exchange is the cost of the transfers between two groups, over the mean
    # of the links: microseconds or, where they are free, bytes, shared out among a tensor's readers.
    # Of each group its parent, -1 for none, its place in that, its size, and all its exchanges; single ops come first.
    ops, count = problem.graph.num_ops, problem.graph.num_ops + len(problem.rules.groups)
    parent, place, size = np.full(2 * ops, -1), np.zeros(2 * ops, int), np.ones(2 * ops, int)
    exchange = np.zeros(2 * ops)
    for group, members in enumerate(problem.rules.groups.values(), ops):
        parent[list(members)], place[list(members)], size[group] = group, np.arange(len(members))[::-1], len(members)
    top = np.where(parent[:ops] < 0, np.arange(ops), parent[:ops])
    if len(problem.graph.inputs[1]) <= MOST_READS:
        makers, readers, shares = _exchanges(problem)
        one, other, price = _together(top[makers], top[readers], shares)
        exchange[:count] = np.bincount(one, price, count) + np.bincount(other, price, count)
        for _ in range(MOST_ROUNDS):
            if not len(one) or stop():
                break
            first, second = _best_of_both(one, other, price / np.minimum(size[one], size[other]), count)
            new = count + np.arange(len(first))
            parent[first], parent[second], place[first] = new, new, size[second]
            size[new] = size[first] + size[second]
            count += len(new)
            now = np.where(parent[:count] < 0, np.arange(count), parent[:count])
            one, other, price = _together(now[one], now[other], price)
            exchange[new] = (np.bincount(one, price, count) + np.bincount(other, price, count))[new]
    parent, first, size, exchange = parent[:count], place[:count], size[:count], exchange[:count]
    is_root, is_whole = parent < 0, np.ones(count, bool)
    first[is_root] = size[is_root].cumsum() - size[is_root]
    for group in range(len(parent) - 1, -1, -1):  # a group comes after those in it
        if parent[group] >= 0:
            first[group] += first[parent[group]]
    for members in problem.rules.groups.values():
        is_whole[list(members)] = False
    bounds = first[is_whole].astype(np.int32), (first + size)[is_whole].astype(np.int32)
    return Clusters(np.argsort(first[:ops]).astype(np.int32), *bounds, exchange[is_whole])


def clusters_in_time(search: Search) -> Clusters | None:
    """Return the hierarchy found in a fifth of the time; None on one device."""
    if search.problem.devices == 1:
        return None
    enough = search.share_of_time(SHARE_OF_GROUPS)
    return clusters_of(search.problem, lambda: search.exhausted() or search.is_past(enough))


def groups_in_time(search: Search) -> Groups:
    """Return the groups of the hierarchy found in time; none where transfers cost neither time nor room."""
    found = clusters_in_time(search) if search.problem.transfers_cost else None
    return NO_GROUPS if found is None else moving_groups(found)


def moving_groups(groups: Clusters) -> Groups:
    """Return those of two ops up to `LARGEST_GROUP` of all."""
    sizes = groups.last - groups.first
    wide = (sizes > 1) & (sizes <= LARGEST_GROUP * len(groups.ops))
    return Groups(groups.ops, groups.first[wide], groups.last[wide])


def places_across(search: Search, level: IntArray) -> FloatArray:
    """Return a place per op across its level, near the ops that it exchanges most with (Fiedler 1973)."""
    from scipy.sparse import csr_array

    makers, readers, shares = _exchanges(search.problem)
    exchange = csr_array((shares, (makers, readers)), shape=(len(level),) * 2)
    whole, count = exchange.sum(axis=0) + exchange.sum(axis=1), np.bincount(level)
    place: FloatArray = search.rng.standard_normal(len(level))
    for _ in range(MOST_STEPS):
        if search.exhausted():
            break
        place += (exchange @ place + exchange.T @ place) / np.where(whole > 0.0, whole, 1.0)
        place -= (np.bincount(level, place) / count)[level]
    return place


def even_parts(order: IndexArray, level: IndexArray | IntArray, work: FloatArray, parts: int) -> IndexArray:
    """Return the part of each op: those of a level, which are together in the order, in parts of equal work."""
    part, size = np.empty(len(level), np.int32), np.maximum(np.bincount(level, work), 1e-300)
    middle = np.cumsum(work[order]) - work[order] / 2 - (np.cumsum(size) - size)[level[order]]
    part[order] = np.clip(parts * middle / size[level[order]], 0, parts - 1)  # without work, anywhere
    return part


def _exchanges(problem: Problem) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the exchange of each maker and reader of a tensor."""
    graph = problem.graph
    latency, per_byte = problem.machine.mean_link
    cost = latency + graph.tensor_size * per_byte
    if not cost.any():
        cost = graph.tensor_size.astype(np.float64)
    pointers, readers = graph.consumers
    count = np.diff(pointers)
    makers = np.repeat(graph.tensor_producer, count).astype(np.int64)
    shares: FloatArray = np.repeat(cost / np.maximum(count, 1), count)
    return makers, readers.astype(np.int64), shares


def _together(one: IntArray, other: IntArray, price: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return pairs of two groups, each once, and their whole exchange."""
    low, high = np.minimum(one, other), np.maximum(one, other)
    apart = low != high
    width = int(high.max(initial=0)) + 1
    pairs, which = np.unique(low[apart] * width + high[apart], return_inverse=True)
    return pairs // width, pairs % width, np.bincount(which, price[apart], len(pairs)).astype(np.float64)


def _best_of_both(one: IntArray, other: IntArray, value: FloatArray, count: int) -> tuple[IntArray, IntArray]:
    """Return the pairs of groups each of which is the most valuable pair of both, the most valuable first."""
    order = np.lexsort((other, one, -value))
    one, other = one[order], other[order]
    rank = np.arange(len(order))
    best = np.full(count, len(order))
    np.minimum.at(best, one, rank)
    np.minimum.at(best, other, rank)
    chosen = (best[one] == rank) & (best[other] == rank)
    return one[chosen], other[chosen]
