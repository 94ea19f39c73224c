"""Teachers: rules, which see more than the network, whose choices it can imitate before it learns from rewards."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ...core.base.arrays import FloatArray, IndexArray, places_in
from ...core.bounds.bounds import earliest_finish
from ...core.graph.graph import CostGraph
from ...core.problem.problem import Problem
from ...core.search.search import Search
from ...core.solve.solve import solve
from ...core.solvers.placements.brkga import Parameters, evolve
from ...core.solvers.placements.chromosomes import bottom_levels
from .actions import ActionParameters, beta_parameters, crossover_bias, dequantise, level_of
from .features import SearchedGraph

ROUNDS = (4, 16, 64)
WINDOW = 161
PLAN_EVALUATIONS, ONE_SIDED = 1000, 0.75
TRIED_EVALUATIONS = 2000
ORDER_SEARCH, ORDER_EVALUATIONS = "order-search:proofs=0", 600
BIAS = Parameters().bias

# From what the network sees, and what it chooses, to actions, shape `(ops, heads)`
Teacher = Callable[[SearchedGraph, ActionParameters], NDArray[np.int64]]


def uniform(searched: SearchedGraph, parameters: ActionParameters) -> NDArray[np.int64]:
    """Return, for every op, the choices nearest to those of plain BRKGA: Beta(1, 1) and a crossover bias of 0.7."""
    # The mean comes first, the smaller of two as near as each other, so that no device is preferred; then the variance.
    chosen: list[int] = []
    for head in parameters.heads(searched.problem.devices):
        k = head.choices
        levels = np.arange(k)
        if head.what == "bias":
            distance = np.abs(crossover_bias(levels, k) - BIAS)
        elif head.what == "mean":
            distance = np.abs((levels + 1) / (k + 1) - 1 / 2)
        elif head.what != "variance":
            distance = np.abs(levels - level_of(1.0, k))
        else:
            alpha, beta = beta_parameters(np.full(k, chosen[-1]), levels, k)
            total = alpha + beta
            distance = np.abs(alpha * beta / (total**2 * (total + 1)) - 1 / 12)
        chosen.append(int(np.argmin(np.round(distance, 12))))
    return np.tile(np.array(chosen, np.int64), (searched.problem.graph.num_ops, 1))


def cut_and_time(rounds: int, searched: SearchedGraph, parameters: ActionParameters) -> NDArray[np.int64]:
    """Return, for the makespan, choices that keep neighbours on one device and let ops run in the order of time."""
    # An op's priority falls with its rank by the middle of the earliest and latest time at which it may start on a
    # critical path's clock, a transfer's with the rank that its op's end would have: ops run, and tensors are sent, in
    # layers. Ranks use all levels alike, which the times themselves, crowded in the middle, do not.
    graph = searched.problem.graph
    level = bottom_levels(graph)
    middle = (level.max() - level + earliest_finish(graph) - graph.runtime) / 2
    order = np.argsort(middle, kind="stable")
    place = places_in(order)
    sent = np.interp(middle + graph.runtime, middle[order], place[order])
    targets = _Targets(_cut(searched, rounds, graph.runtime), 1 - place, 1 - sent)
    return _actions(searched, parameters, targets, (4.0, 16.0, 16.0))


def ordered(searched: SearchedGraph, parameters: ActionParameters) -> NDArray[np.int64]:
    """Return, for the peak, choices loosely around an order of little memory on one device, by `order-search`."""
    graph = searched.problem.graph
    anywhere = np.full((graph.num_ops, searched.problem.devices), 1 / 2)
    targets = _Targets(anywhere, *_priorities(graph, _low_order(graph)))
    return _actions(searched, parameters, targets, (2.0, 1.0, 2.0))


def cut_and_order(rounds: int, searched: SearchedGraph, parameters: ActionParameters) -> NDArray[np.int64]:
    """Return, for the peak, choices around the order of `ordered` that keep neighbours on one device."""
    # Placement is that of `_cut`, for each stretch of the order apart, since devices share the memory of one time.
    graph = searched.problem.graph
    order = _low_order(graph)
    written = np.bincount(graph.tensor_producer, graph.tensor_size, graph.num_ops)
    targets = _Targets(_cut(searched, rounds, written, order), *_priorities(graph, order))
    return _actions(searched, parameters, targets, (2.0, 2.0, 2.0))


def planned(searched: SearchedGraph, parameters: ActionParameters) -> NDArray[np.int64]:
    """Return choices closely around a plan of `auto`, for either task: its placement, its order, and who reads when."""
    # Where one device has most of the ops it is the first, which the network can learn whatever the features say; else
    # devices are called as the features' search has most of each one's ops placed.
    graph, devices = searched.problem.graph, searched.problem.devices
    plan = solve(searched.problem, "auto", evaluations=PLAN_EVALUATIONS).schedule
    placement = plan.placement(graph)
    counts = np.bincount(placement, minlength=devices)
    if counts.max() > ONE_SIDED * graph.num_ops:
        shared = np.outer(counts, np.arange(devices, 0, -1.0))
    else:
        found = searched.nodes[:, -devices - 1 : -1].astype(np.float64)
        shared = np.stack([found[placement == device].sum(0) for device in range(devices)])
    _, called = linear_sum_assignment(shared, maximize=True)
    targets = _Targets(_affinities(called[placement], devices), *_priorities(graph, plan.op_order()))
    return _actions(searched, parameters, targets, (4.0, 16.0, 16.0))


def apart(searched: SearchedGraph, parameters: ActionParameters) -> NDArray[np.int64]:
    """Return, for the peak, choices that keep large outputs on the first device, and their waiters on the second."""
    # Large is at least half of the largest. Where a short search does better with the choices of `uniform`, it is
    # those.
    graph, devices = searched.problem.graph, searched.problem.devices
    written = searched.nodes[:, 1]
    placement = np.where(written >= written.max() / 2, 0, 1)
    targets = _Targets(_affinities(placement, devices), *_priorities(graph, _low_order(graph)))
    kept = _actions(searched, parameters, targets, (4.0, 1.0, 2.0))
    plain = uniform(searched, parameters)
    return kept if _fitness(searched, parameters, kept) <= _fitness(searched, parameters, plain) else plain


def _fitness(searched: SearchedGraph, parameters: ActionParameters, actions: NDArray[np.int64]) -> tuple[float, float]:
    """Return the fitness of a short search's best with these choices."""
    problem = searched.problem
    search = Search(problem, max_evaluations=TRIED_EVALUATIONS)
    evolve(search, Parameters(), dequantise(actions, problem.graph, problem.devices, parameters))
    return search.best_fitness


def _low_order(graph: CostGraph) -> IndexArray:
    return solve(Problem(graph), ORDER_SEARCH, evaluations=ORDER_EVALUATIONS).schedule.op_order()


def _priorities(graph: CostGraph, order: IndexArray) -> tuple[FloatArray, FloatArray]:
    """Return mean priorities that fall along an order, of ops and of their transfers."""
    place = places_in(order)
    sources, consumers = graph.edges
    readers = np.bincount(sources, minlength=graph.num_ops)
    read = np.bincount(sources, place[consumers], graph.num_ops) / np.maximum(readers, 1)
    return 1 - place, 1 - np.where(readers > 0, read, place)


class _Targets(NamedTuple):
    """Means: of the affinities, shape `(ops, devices)`, and of the priorities of ops and their transfers, `(ops,)`."""

    placement: FloatArray
    scheduling: FloatArray
    transfers: FloatArray


def _cut(searched: SearchedGraph, rounds: int, weight: NDArray[Any], order: IndexArray | None = None) -> FloatArray:
    """Return mean affinities that put ops on devices: few edges between devices, about the same weight on each."""
    graph, devices = searched.problem.graph, searched.problem.devices
    ops = graph.num_ops
    weight = weight + max(weight.max(), 1e-300) * 1e-9
    affinity = searched.nodes[:, -devices - 1 : -1].astype(np.float64)
    ends = np.concatenate((searched.producers, searched.consumers))
    others = np.concatenate((searched.consumers, searched.producers))
    degree = np.maximum(np.bincount(ends, minlength=ops), 1)[:, None]
    for _ in range(rounds):
        heard = np.stack([np.bincount(ends, affinity[others, device], ops) for device in range(devices)], axis=1)
        affinity = (affinity + heard / degree) / 2
        affinity -= np.average(affinity, axis=0, weights=weight)
    if order is not None:
        window = np.ones(min(WINDOW, ops))
        counted = np.convolve(np.ones(ops), window, "same")
        around = np.stack([np.convolve(column, window, "same") / counted for column in affinity[order].T], axis=1)
        affinity[order] -= around
    return _affinities(_balanced(affinity / max(affinity.std(), 1e-300), weight), devices)


def _affinities(placement: NDArray[np.intp], devices: int) -> FloatArray:
    """Return mean affinities that put ops on these devices, shape `(ops, devices)`."""
    return np.where(placement[:, None] == np.arange(devices), 0.8, 0.2)


def _balanced(affinity: FloatArray, weight: FloatArray) -> NDArray[np.intp]:
    """Return the device of largest affinity less price, at prices for which the devices' weights are about even."""
    devices = affinity.shape[1]
    prices, step = np.zeros(devices), 1.0
    for _ in range(100):
        placement: NDArray[np.intp] = (affinity - prices).argmax(1)
        prices += step * (np.bincount(placement, weight, devices) / weight.sum() - 1 / devices)
        step *= 0.97
    return placement


def _actions(
    searched: SearchedGraph, parameters: ActionParameters, targets: _Targets, concentrations: tuple[float, float, float]
) -> NDArray[np.int64]:
    """Return the levels nearest to the betas wanted, by mean and alpha + beta, and to BRKGA's crossover bias."""
    of_kind = dict(zip(("placement", "scheduling", "transfers"), concentrations, strict=True))
    chosen = []
    for head in parameters.heads(searched.problem.devices):
        of_all = targets.scheduling if head.kind == "scheduling" else targets.transfers
        mean = targets.placement[:, head.entry] if head.kind == "placement" else of_all
        k, concentration = head.choices, of_kind.get(head.kind, 0.0)
        if head.what in ("alpha", "beta"):
            of_mean = mean if head.what == "alpha" else 1 - mean
            wanted = level_of(np.maximum(concentration * of_mean, 1e-9), k)
        elif head.what == "mean":
            wanted = mean * (k + 1) - 1
        elif head.what == "variance":
            wanted = np.full(len(mean), (k + 1) / (concentration + 1) - 1)
        else:
            wanted = np.full(len(mean), (2 * BIAS - 1) * k - 1)
        chosen.append(np.clip(np.round(wanted), 0, k - 1).astype(np.int64))
    return np.stack(chosen, axis=1)


# Cuts of few rounds are easier to learn, those of many are better: a curriculum goes from the former to the latter
TEACHERS: dict[str, Teacher] = {
    **{"uniform": uniform, "ordered": ordered, "planned": planned, "apart": apart},
    **{f"cut-and-time-{rounds}": partial(cut_and_time, rounds) for rounds in ROUNDS},
    **{f"cut-and-order-{rounds}": partial(cut_and_order, rounds) for rounds in ROUNDS},
}
