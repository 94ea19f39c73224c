"""The field's list schedulers for different devices, HEFT, CPOP, PEFT and Graham's; one for graphs too large to decode.

Topcuoglu, Hariri and Wu 2002 (HEFT with insertion, CPOP) and Arabnejad and Barbosa 2014 (PEFT). As in the papers an op
is put where transfers run beside work and are not contended; their plans are then priced by the machine's own rules.
Residents have their home where they are first read, and a device is left out that has no room for those of an op.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...base.arrays import FloatArray, IndexArray
from ...base.speed import seconds_for
from ...bounds.bounds import EdgeCosts, Heed, optimistic_costs, possible_times
from ...kernels.orders.priority_orders import greedy
from ...kernels.placements.list_starts import start_along
from ...problem.problem import Problem
from ...problem.residents import first_home, model_of
from ...problem.schedule import Schedule
from ...search import parameters as base
from ...search.parameters import parameter
from ...search.plans import Plans
from ...search.search import Cancelled, Search
from .chromosomes import bottom_levels


def mean_times(problem: Problem) -> FloatArray:
    """Return the mean time of each op over the devices that can run it, microseconds; shape `(ops,)`."""
    times = problem.rules.times
    mean: FloatArray = times[:, 0].copy()
    differ = np.unique(np.nonzero(times != times[:, :1])[0])
    can = np.isfinite(times[differ])
    mean[differ] = np.where(can, times[differ], 0.0).sum(axis=1) / can.sum(axis=1)
    return mean


def upward_ranks(problem: Problem, edges: EdgeCosts, heed: Heed = iter) -> FloatArray:
    """Return the mean length of each op's longest path to the end, itself included (HEFT eq. 8); shape `(ops,)`."""
    graph = problem.graph
    rank, leaving = mean_times(problem), edges.grouped(edges.sources)
    for op in heed(graph.input_order[::-1].tolist()):
        rank[op] += max((edges.mean[e] + rank[edges.targets[e]] for e in leaving(op)), default=0.0)
    return rank


class InsertionSchedule:
    """A schedule that grows op by op, each in the first gap of a device that is long enough."""

    def __init__(self, problem: Problem, edges: EdgeCosts) -> None:
        self.problem, self.edges = problem, edges
        graph = problem.graph
        self.times, self.rules = possible_times(problem), problem.rules
        self.entering = edges.grouped(edges.targets)
        self.busy: list[list[tuple[float, float]]] = [[] for _ in range(problem.devices)]
        self.stretches: list[list[tuple[float, float]]] = [[] for _ in range(problem.devices)]
        self.end, self.start = np.zeros(graph.num_ops), np.zeros(graph.num_ops)
        self.device = np.full(graph.num_ops, -1)
        self.group: dict[int, int] = {}

    def earliest(self, op: int) -> tuple[FloatArray, FloatArray]:
        """Return when an op can start and end on each device, infinite where it cannot; shape `(devices,)` each."""
        ready = np.zeros(self.problem.devices)
        for e in self.entering(op):
            source = int(self.edges.sources[e])
            np.maximum(ready, self.end[source] + self.edges.between(e, int(self.device[source])), out=ready)
        start = np.full(self.problem.devices, np.inf)
        settled = self.group.get(int(self.rules.group[op]))
        for device in np.flatnonzero(np.isfinite(self.times[op]) & np.isfinite(ready)).tolist():
            if settled in (None, device):
                start[device] = self.first_gap(device, float(ready[device]), float(self.times[op, device]))
        return start, start + self.times[op]

    def first_gap(self, device: int, ready: float, takes: float) -> float:
        """Return the first moment, not before `ready`, from which a device is free for so long."""
        busy = self.stretches[device] if takes else self.busy[device]
        start = ready
        for at in range(max(0, bisect_left(busy, (ready, ready)) - 1), len(busy)):
            begin, end = busy[at]
            if begin - start >= takes and begin >= ready:
                return start
            start = max(start, end)
        return start

    def put(self, op: int, device: int, start: float) -> None:
        """Run an op on a device from a moment on."""
        self.device[op], self.start[op], self.end[op] = device, start, start + self.times[op, device]
        self.group.setdefault(int(self.rules.group[op]), device)
        if self.times[op, device] > 0:
            end, stretches = float(self.end[op]), self.stretches[device]
            insort(self.busy[device], (start, end))
            # Stretches have no gap: only ops of no time fit between two ops of one.
            at = beyond = bisect_left(stretches, (start, end))
            if at and stretches[at - 1][1] == start:
                at -= 1
                start = stretches[at][0]
            if beyond < len(stretches) and stretches[beyond][0] == end:
                end = stretches[beyond][1]
                beyond += 1
            stretches[at:beyond] = [(start, end)]

    def place(self, order: Iterable[int], ahead: FloatArray) -> bool:
        """Put each op where its end and `ahead` are least together; False if one can be nowhere."""
        for op in order:
            start, end = self.earliest(op)
            wanted = end + ahead[op]
            device = int((wanted if np.isfinite(wanted).any() else end).argmin())
            if not np.isfinite(end[device]):
                return False
            self.put(op, device, float(start[device]))
        return True

    def order(self) -> IndexArray:
        """Return the model's own ops by when they start, those that wait for each other in turn."""
        own = first_home(self.problem.graph)
        place = np.argsort(self.problem.graph.input_order)
        return np.lexsort((place[:own], self.end[:own], self.start[:own])).astype(np.int32)


MOST_CELLS = 10_000_000  # ops times devices: nothing interrupts a table of more, and a list schedule will do

Rank = Literal["upward", "optimistic", "critical-path", "starts"]


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """Which of the three it is."""

    rank: Rank = parameter(
        "upward",
        "upward: longest path to the end (HEFT); optimistic: what is left at the best (PEFT); critical-path: that path "
        "on the device that is fastest for it (CPOP); starts: as upward, when an idle device would take it",
    )


def solve(search: Search, parameters: Parameters) -> None:
    """Offer the ops by their rank, each where its end and the costs that the rank adds are least together."""
    problem = search.problem
    if search.exhausted() or problem.graph.num_ops * problem.devices > MOST_CELLS:
        return
    edges = EdgeCosts(problem)
    with suppress(Cancelled):
        priority, ahead = _ranked(search, edges, parameters.rank)
        if parameters.rank == "starts":
            order = starting_orders(problem, priority[None])[0][0]
        else:
            model = model_of(problem.graph)
            order = greedy(model.buffers, np.minimum(priority[: model.num_ops], 1e300))[0]
        _offer(search, edges, order.tolist(), ahead)


def _ranked(search: Search, edges: EdgeCosts, rank: Rank) -> tuple[FloatArray, FloatArray]:
    """Return the priorities, shape `(ops,)`, and the costs ahead on each device, shape `(ops, devices)`."""
    problem, heed = search.problem, search.cancellable
    ahead = np.zeros((problem.graph.num_ops, problem.devices))
    if rank == "optimistic":
        ahead = optimistic_costs(problem, edges, mean=True, heed=heed)
        return ahead.mean(axis=1), ahead
    priority = upward_ranks(problem, edges, heed)
    if rank == "critical-path":  # all devices but its fastest cost infinitely much
        times, entering, before = mean_times(problem), edges.grouped(edges.targets), np.zeros_like(priority)
        for op in heed(problem.graph.input_order.tolist()):  # longest paths to ops (HEFT eq. 10)
            sources = ((edges.sources[e], edges.mean[e]) for e in entering(op))
            before[op] = max((before[source] + times[source] + sent for source, sent in sources), default=0.0)
        priority = priority + before
        path = _critical_path(problem, edges, priority)
        total = possible_times(problem)[path].sum(axis=0)
        if np.isfinite(total).any():
            ahead[path] = np.inf
            ahead[path, int(total.argmin())] = 0.0
    return priority, ahead


def _critical_path(problem: Problem, edges: EdgeCosts, priority: FloatArray) -> list[int]:
    """Return the ops of one longest path: from the most urgent first op on, the most urgent that waits for it."""
    own = first_home(problem.graph)
    leaving = edges.grouped(edges.sources)
    waits = np.zeros(own, bool)
    waits[edges.targets] = True
    at = int(np.where(waits, -np.inf, priority[:own]).argmax())
    path = [at]
    while later := leaving(at):
        at = max((int(edges.targets[e]) for e in later), key=lambda op: (priority[op], -op))
        path.append(at)
    return path


def _offer(search: Search, edges: EdgeCosts, order: list[int], ahead: FloatArray) -> None:
    """Offer two schedules: by the machine's own rules, which takes little time, then with insertion, as the papers."""
    plans = Plans(search.problem)
    _offer_plan(search, plans, order, plans.place_along(order, np.where(np.isfinite(ahead), ahead, 1e300)))
    made = InsertionSchedule(search.problem, edges)
    if made.place(search.cancellable(order), ahead):
        _offer_plan(search, plans, made.order(), plans.place_homes(made.device))
    if search.best is None:
        search.offer_order(search.problem.graph.input_order)


def _offer_plan(search: Search, plans: Plans, order: Any, placement: IndexArray | None) -> None:
    schedule = None if placement is None else plans.schedule(plans.plan(order), placement)
    search.spend(1)
    if schedule is not None:
        search.offer(schedule)


def starting_orders(problem: Problem, priorities: Any) -> tuple[IndexArray, FloatArray]:
    """Return the model's own ops as they start by each row of priorities if data costs nothing, and the makespans."""
    own = first_home(problem.graph)
    return start_along(model_of(problem.graph).buffers, possible_times(problem)[:own], priorities[:, :own])


READ = 5.0  # numbers sorted in the time of listing an op, or one of its inputs


def seconds_to_list(problem: Problem) -> float:
    """Return about how long a list schedule takes to be made and priced."""
    return seconds_for(READ * (problem.graph.num_ops + len(problem.graph.inputs[1])))


def list_schedule(problem: Problem, stop: Callable[[], bool] = lambda: False) -> Schedule | None:
    """Return the ops by bottom level, each on the better of the device with most of its inputs and the first free."""
    plans = Plans(problem)
    place = np.argsort(problem.graph.input_order)
    order = np.lexsort((place, -bottom_levels(problem.graph, mean_times(problem))))
    return None if plans.place_along(order, is_quick=True, stop=stop) is None else plans.listed_schedule()
