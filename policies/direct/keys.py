"""Keys of ops: the network's view of a problem, the rule whose keys it corrects, and the schedules of keys."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from ...core.base.arrays import BoolArray, FloatArray, IndexArray, places_in
from ...core.bounds.bounds import earliest_finish, possible_times
from ...core.graph.graph import CostGraph
from ...core.kernels.orders.priority_orders import greedy
from ...core.problem.problem import Problem
from ...core.report.differences import levels
from ...core.search.search import Cancelled, Search
from ...core.solvers.orders.baselines import greedy_order, reverse_postorder
from ...core.solvers.placements.chromosomes import bottom_levels, keys_along
from ...core.solvers.placements.list_schedulers import mean_times, starting_orders
from ...core.solvers.placements.peak_annealing import FIRST_BEAM, decode_keys, place

PATIENCE = 0.5  # of the rule: in the middle of what the lazy decoder's searches start from
GUMBEL, WAITING = 0.025, 0.6  # spreads of draws: of ops' keys, and of the patience
FEATURES = 22  # of an op


class Seen(NamedTuple):
    """A problem as the network sees it: some ops cannot run on some devices, and transfers are free."""

    nodes: Any  # features of the ops, shape `(ops, FEATURES)`, float32; see `seen`
    # sources, targets: ops that the edges lead from and to, shape `(edges,)`
    sources: IndexArray
    targets: IndexArray
    rule: Any  # keys of the rule, shape `(ops + 1,)`, float32; see `rule_keys`


def seen(problem: Problem, stop: Callable[[], bool] = lambda: False) -> Seen:
    """Return the network's view of a problem; of an op's times it sees the mean."""
    graph, ops = problem.graph, problem.graph.num_ops
    sources, targets = graph.edges
    runtime = mean_times(problem)
    end, ahead = earliest_finish(graph, runtime), bottom_levels(graph, runtime)
    longest, mean = max(float(ahead.max()), 1e-300), max(float(runtime.mean()), 1e-300)
    tensors = np.repeat(np.arange(graph.num_tensors), np.diff(graph.consumers[0]))
    read = np.bincount(graph.consumers[1], graph.tensor_size[tensors], ops)
    made = np.bincount(graph.tensor_producer, graph.tensor_size, ops)
    own = (graph.workspace + graph.persistent).astype(np.float64)
    least_first, depth = places_in(_least_peak_first(problem, stop)), np.array(levels(graph), np.float64)
    if stop():
        raise Cancelled
    columns = [  # times against the critical path; bytes read, made and own against the most of each
        runtime / max(float(runtime.max()), 1e-300),
        np.log1p(runtime / mean),
        end / longest,
        ahead / longest,
        1 - (end - runtime + ahead) / longest,
        places_in(np.argsort(end, kind="stable")),
        places_in(np.argsort(ahead, kind="stable")),
        *(part / max(float(part.max()), 1.0) for part in (read, made, own)),
        (made - read) / max(float((made + read).max()), 1.0),
        np.log1p(np.bincount(targets, minlength=ops)) / 3,
        np.log1p(np.bincount(sources, minlength=ops)) / 3,
        depth / max(float(depth.max()), 1.0),
        least_first,
        places_in(reverse_postorder(graph)),
    ]
    work = float(runtime.sum()) / problem.devices
    share = np.log(max(work, 1e-300) / longest) if runtime.any() else 0.0
    everywhere = (np.log(problem.devices), share, np.log(max(ops, 1)) / 5)
    columns += [*(np.full(ops, value) for value in everywhere), *_devices(problem, longest)]
    return Seen(np.column_stack(columns).astype(np.float32), sources, targets, rule_keys(problem, ahead))


def rule_keys(problem: Problem, ahead: FloatArray | None = None) -> Any:
    """Return the keys of the rule, shape `(ops + 1,)`, float32; larger runs earlier."""
    # Makespan: bottom levels against the longest, and the patience. Peak: the place in the order of least peak first.
    if problem.task == "runtime":
        level = bottom_levels(problem.graph, mean_times(problem)) if ahead is None else ahead
        keys = level / max(float(level.max()), 1e-300)
    else:
        keys = 1 - places_in(_least_peak_first(problem))
    return np.append(keys, PATIENCE).astype(np.float32)


def _devices(problem: Problem, longest: float) -> FloatArray:
    """Return which devices run an op, and their ops' work for each, shape `(3, ops)`."""
    kinds, kind = np.unique(np.isfinite(possible_times(problem)), axis=0, return_inverse=True)
    each = np.bincount(kind.ravel(), mean_times(problem)) / kinds.sum(axis=1)
    shares = np.stack([kinds.mean(axis=1), each / max(float(each.max()), 1e-300), np.log1p(each / longest)])
    return shares[:, kind.ravel()]


def has_types(problem: Problem) -> bool:
    """Whether the makespan counts, transfers are free, and some op cannot run on some device."""
    is_free = problem.task == "runtime" and not problem.transfers_take_time
    return is_free and not np.isfinite(possible_times(problem)).all()


def drawn(keys: Any, count: int, rng: np.random.Generator) -> Any:
    """Draw rows around keys, whose orders are as likely as Plackett-Luce says, shape `(count, ops + 1)`, float32."""
    ops = keys[:-1] + (GUMBEL * rng.gumbel(size=(count, len(keys) - 1))).astype(np.float32)
    waits = np.abs(keys[-1] + WAITING * rng.standard_normal((count, 1), dtype=np.float32))
    return np.hstack((ops, waits))


def to_decode(keys: Any, count: int, rng: np.random.Generator) -> Any:
    """Return keys and draws around them, the first of which stays on one device, shape `(count, ops + 1)`, float32."""
    rows = drawn(keys, count - 1, rng)
    rows[:1, -1] = ONE_DEVICE
    return np.vstack((keys, rows))


def _least_peak_first(problem: Problem, stop: Callable[[], bool] = lambda: False) -> IndexArray:
    order = greedy_order(problem.graph.buffers, stop)
    if order is None or stop():
        raise Cancelled
    return order


PER_ORDER = 24  # evaluations that placing an order for the peak may take: three beams of eight states at the most
MOST_PATIENCE = 4.0
MOST_PLACED = 16  # of the orders that list scheduling makes, which takes a hundredth of the time of placing one
OPS_AT_ONCE = 100_000  # of list scheduling between looks at the clock: a third of a second
ONE_DEVICE = -1.0  # A patience below 0, as this one, keeps all ops on one device, if transfers take time


def decode(search: Search, keys: Any) -> None:
    """Offer the schedules of some rows of keys, the first row first, as far as the budget goes."""
    # Makespan: the lazy decoder; of the rows that stay on one device only the first is tried. If none keeps the memory
    # limit, and for the peak, each row's order is placed by beams. Where devices differ or residents have a home, ops
    # follow the row's order, if data costs nothing as list scheduling starts them, and the first row's also on each
    # sort of device alone.
    rows = keys[: int(max(1.0, min(len(keys), search.evaluations_left)))]
    graph = search.problem.graph
    if search.problem.task == "runtime":
        alone, is_symmetric = stays(search.problem, rows), search.problem.is_symmetric
        for row in rows[alone][:1] if is_symmetric else rows[:1]:
            search.offer_order(order_of(graph, row))
        moving = rows[~alone][: int(min(len(rows), max(0.0, search.evaluations_left)))]
        if len(moving):
            is_free = not is_symmetric and not search.problem.transfers_take_time
            decode_keys(search, _as_started(search, moving) if is_free else _within(moving))
        is_over_limit = search.best is not None and search.best_fitness[0] > 0
        if is_symmetric and is_over_limit and search.evaluations_left >= 1:
            place(search, np.stack([order_of(graph, row) for row in rows]))
        return
    for row in rows:
        if search.best is not None and search.exhausted():
            return
        _place_order(search, order_of(graph, row))


def stays(problem: Problem, keys: Any) -> BoolArray:
    """Return which rows of keys keep all ops on one device, shape `(rows,)`."""
    kept: BoolArray = (keys[:, -1] < 0) & problem.transfers_take_time
    return kept


def order_of(graph: CostGraph, keys: Any) -> IndexArray:
    """Return the order that always takes the ready op of the largest key, of equals the first; shape `(ops,)`."""
    (order,) = greedy(graph.buffers, keys[: graph.num_ops])
    return cast(IndexArray, order)


def _as_started(search: Search, keys: Any) -> Any:
    """Return keys that fall as list scheduling by these starts the ops; without a limit, of the least makespans."""
    parts = np.array_split(keys, min(len(keys), -(-keys.size // OPS_AT_ONCE)))
    found = [starting_orders(search.problem, part) for at, part in enumerate(parts) if not (at and search.exhausted())]
    orders, ends = (np.concatenate(columns) for columns in zip(*found, strict=True))
    orders = orders[np.argsort(ends, kind="stable")[: None if search.problem.is_limited else MOST_PLACED]]
    search.spend(len(ends) - len(orders))
    residents = np.arange(orders.shape[1], search.problem.graph.num_ops)
    return np.stack([keys_along(np.append(order, residents)) for order in orders])


def _within(keys: Any) -> Any:
    """Return keys whose patience is one that the decoder knows."""
    kept = np.ascontiguousarray(keys, np.float32).copy()
    kept[:, -1] = kept[:, -1].clip(0.0, MOST_PATIENCE)
    return kept


def _place_order(search: Search, order: IndexArray) -> None:
    evaluations = max(1.0, min(PER_ORDER, search.evaluations_left - FIRST_BEAM))  # the last beam may exceed it
    with search.part(evaluations=evaluations):
        search.offer_order(order)
        place(search, order[None])
