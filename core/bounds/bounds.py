"""Lower bounds on peak memory and makespan: no schedule can be better (`docs/concepts/bounds.md`)."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import INT64_MAX, BoolArray, FloatArray, IntArray, csr, distinct_pairs, frozen, gathered, pairs_rise
from ..base.speed import seconds_for
from ..graph.graph import Buffers, CostGraph
from ..kernels.orders.max_flow import FREE, SINK, SOURCE, max_flow, network_of, new_flow, reachable, source_side
from ..kernels.orders.order_memory import memory_of_steps
from ..kernels.placements.heads import Sending, between_heads_and_tails, find_heads, new_heads, path_ends
from ..problem.problem import Problem
from ..problem.residents import first_home, model_of
from .stretches import stretch_of

# Arcs of all flows together: on one device; on several, where the bound is worth less
MIN_CUT_WORK, MIN_CUT_WORK_SHARED = 100_000_000, 10_000_000
LARGEST_NETWORK = 1_000_000  # arcs of a network of the whole graph; beyond, each flow has its own
LEAST_FLOWS = 10  # for fewer the network is not built, which takes as long as some of them, and no notice of Ctrl-C
# Ops, and ops times pairs that read each other, for heads that know transfers: half a second for so much
LARGEST_WITH_HEADS, MOST_WORK = 2_000, 200_000_000
MOST_PAIRS = 20_000_000  # of heads and tails: about a tenth of a second
ENERGY_ROUNDS, ASKED_EVERY = 200, 64
ROUNDING_PER_TERM = 2.5e-16  # what the rounding of a sum may have added per term, relative
FLOW, BUILDING = 12.0, 24.0  # numbers sorted in the time of a flow, and of building the network, per arc
ROUNDING = 1e-12
# Microseconds of which 1e-12 is less than one, so that a bound rounded up is not rounded up once more
LARGEST_WHOLE = 2.0**39
Heed = Callable[[Iterable[int]], Iterator[int]]  # goes through ops, and may raise: a search's `cancellable`
MOST_VIEWS = 32  # views of a buffer that are pieces of their own; the others have no room, which is valid, too


def earliest_finish(graph: CostGraph, times: FloatArray | None = None) -> FloatArray:
    """Return when each op ends at the earliest, on as many devices as it takes, microseconds; shape `(ops,)`."""
    return path_ends(graph.input_order, *graph.predecessors, graph.runtime if times is None else times)


def critical_path(graph: CostGraph) -> float:
    """Return the longest path of the graph in microseconds; no number of devices is faster."""
    return float(earliest_finish(graph).max())


def least_times(problem: Problem) -> tuple[int, FloatArray, FloatArray]:
    """Return how many devices run ops, and the least time of each op and each transfer, microseconds."""
    graph, machine = model_of(problem.graph), problem.machine
    runs_ops: BoolArray = np.ones(problem.devices, bool)
    runtime: FloatArray = graph.runtime
    if machine.is_equal:
        runtime = graph.runtime / machine.devices[0].speed
    else:
        times = possible_times(problem)[: graph.num_ops]
        runs_ops, runtime = np.any(np.isfinite(times), axis=0), times.min(axis=1)
    between = np.outer(runs_ops, runs_ops) & ~np.eye(problem.devices, dtype=bool) & machine.has_link
    links = set(zip(machine.latencies[between].tolist(), machine.microseconds_per_byte[between].tolist(), strict=True))
    sending: FloatArray = np.zeros(graph.num_tensors)
    if links:
        sending = np.min([latency + graph.tensor_size * byte for latency, byte in links], axis=0)
    return int(runs_ops.sum()), runtime, sending


def runtime_bound(problem: Problem, stop: Callable[[], bool] = lambda: False) -> float:
    """Return the lower bound of every makespan, microseconds."""
    # The largest of the longest path, of the work shared as best it can be, and of the work between a head and a tail.
    # Where devices differ, these also know each op's best device and its transfers, unless `stop` says so.
    if problem.devices == 1 and problem.machine.is_equal:
        return math.fsum((problem.op_times / problem.machine.devices[0].speed).tolist())
    if problem.machine.is_equal:
        _, runtime, _ = least_times(problem)
        between = energy_bound(*heads_and_tails(problem), runtime, runtime / problem.devices)
        return whole_units(problem, max(*path_and_work(problem), between))

    def heed(numbers: Iterable[int]) -> Iterator[int]:
        for place, number in enumerate(numbers):
            if place % ASKED_EVERY == 0 and stop():
                raise TimeoutError
            yield number

    times = possible_times(problem)[: first_home(problem.graph)]
    energy, (head, tail) = _energies(times), heads_and_tails(problem)
    path = 0.0
    try:
        edges = EdgeCosts(problem)
        ends, after = earliest_ends(problem, edges, heed), optimistic_costs(problem, edges, mean=False, heed=heed)
        path = float((ends + after).min(axis=1).max())
        ends, after, can = ends[: len(head)], after[: len(head)], np.isfinite(times)
        head = np.maximum(head, np.where(can, ends - np.where(can, times, 0.0), np.inf).min(axis=1))
        tail = np.maximum(tail, np.where(can, after, np.inf).min(axis=1))
    except TimeoutError:
        pass
    return max(path, math.fsum(energy.tolist()) * (1 - 1e-12), energy_bound(head, tail, times.min(axis=1), energy))


def path_and_work(problem: Problem) -> tuple[float, float]:
    """Return the longest path, each op on its best device, and all work, shared among the devices; microseconds."""
    graph, (_, runtime, _) = model_of(problem.graph), least_times(problem)
    path = float(path_ends(graph.input_order, *graph.predecessors, runtime).max())
    if problem.machine.is_equal:
        return path, math.fsum(runtime.tolist()) / problem.devices
    return path, math.fsum(_energies(possible_times(problem)[: graph.num_ops]).tolist())


def heads_and_tails(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Return the earliest start of each op, and the least time after it, microseconds; shape `(ops,)` each."""
    # Ops run in turn where a transfer takes longer (Papadimitriou and Yannakakis 1990); on large graphs it takes none.
    graph, (_, runtime, sending) = model_of(problem.graph), least_times(problem)
    if graph.num_ops > LARGEST_WITH_HEADS or graph.num_ops * len(graph.edges[0]) > MOST_WORK:
        head = path_ends(graph.input_order, *graph.predecessors, runtime) - runtime
        return head, path_ends(graph.input_order[::-1], *graph.successors, runtime) - runtime
    pointers, readers = graph.consumers
    tensors = np.repeat(np.arange(graph.num_tensors), np.diff(pointers))
    edges = graph.tensor_producer[tensors].astype(np.int64) * graph.num_ops + readers
    distinct, place = np.unique(edges, return_inverse=True)
    cost = np.zeros(len(distinct))
    is_apart = problem.machine.is_beside and not problem.machine.contention  # what an edge sends is sent at once
    (np.maximum if is_apart else np.add).at(cost, place, sending[tensors])
    sources, targets = np.divmod(distinct, graph.num_ops)
    heads = _heads(graph.input_order, runtime, sources, targets, cost)
    return heads, _heads(graph.input_order[::-1], runtime, targets, sources, cost)


def _heads(order: Any, runtime: FloatArray, sources: Any, targets: Any, cost: FloatArray) -> FloatArray:
    """Return the earliest start of each op, given the time of an edge from a source to a target; shape `(ops,)`."""
    by_target, ops = np.lexsort((sources, targets)), len(runtime)
    pointers, before = csr(targets[by_target], sources[by_target], ops)
    heads = new_heads(ops)
    sending = Sending(frozen(order, np.int32), pointers, before, cost[by_target], frozen(runtime, np.float64))
    find_heads(sending, heads, 0, ops)
    return heads.head


def energy_bound(head: FloatArray, tail: FloatArray, runtime: FloatArray, energy: FloatArray) -> float:
    """Return the lower bound of every makespan, microseconds, by when ops may start and must have ended."""
    # The longest head, runtime and tail; or a head and a tail, and the energy of all ops that have no less, which run
    # between (as Fernandez and Bussell 1973). An energy is what an op adds at least to the mean time, weighted in any
    # way, that devices are busy. Of many ops only some heads are tried.
    by_head, by_tail = (np.argsort(times, kind="stable").astype(np.int32) for times in (head, tail))
    some = np.ascontiguousarray(by_head[:: 1 + len(head) ** 2 // MOST_PAIRS])
    work = float(between_heads_and_tails(head, tail, some, by_tail, energy))
    return max(float((head + tail + runtime).max()), work) * (1 - ROUNDING_PER_TERM * max(2_000, len(head)))


def _energies(times: FloatArray) -> FloatArray:
    """Return each op's part of the weighted time that devices are busy, microseconds; shape `(ops,)`."""
    can = np.isfinite(times)
    finite = np.where(can, times, 0.0)
    weight = np.full(times.shape[1], 1.0 / times.shape[1])
    weight *= (can & (finite > 0)).any(axis=0) + 1e-12
    best, energies = -1.0, np.zeros(len(times))
    for round_ in range(ENERGY_ROUNDS):
        weight /= weight.sum()
        weighted = np.where(can, weight * finite, np.inf)
        choice = weighted.argmin(axis=1)
        energy = weighted.min(axis=1)
        if (total := math.fsum(energy.tolist())) > best:
            best, energies = total, energy
        load = np.bincount(choice, finite[np.arange(len(choice)), choice], minlength=len(weight))
        if load.max() <= 0:
            break
        weight = weight * np.exp((load / load.max() - 1.0) / (1.0 + 0.1 * round_))
    return energies


def whole_units(problem: Problem, bound: float) -> float:
    """Return a bound on a makespan, microseconds, rounded up to the next one that a schedule can have."""
    # On equal devices what takes time takes whole multiples of a unit where times are whole microseconds.
    graph, machine = problem.graph, problem.machine
    if not machine.is_equal:
        return bound
    sending = machine.latencies[0, -1] + graph.tensor_size * machine.microseconds_per_byte[0, -1]
    times = np.concatenate((graph.runtime / machine.devices[0].speed, sending))
    if times.sum() > LARGEST_WHOLE or (times != np.rint(times)).any():
        return bound
    unit = float(np.gcd.reduce(times.astype(np.int64)))
    return math.ceil(bound / unit * (1 - ROUNDING)) * unit if unit else bound


def op_needs(graph: CostGraph, devices: int) -> IntArray:
    """Bytes that each op needs on its device while it runs, shape `(ops,)`, persistent bytes left out."""
    # Its own outputs, its workspace, and its inputs, each buffer once. Several devices may hold a view alone: of inputs
    # that share a buffer the largest counts, over its members, of the least size along its alias chain.
    least, alias = graph.tensor_size[graph.root], graph.alias_of
    if devices > 1:
        least = graph.tensor_size.copy()
        while (aliased := alias >= 0).any():
            least[aliased] = np.minimum(least[aliased], graph.tensor_size[alias[aliased]])
            alias = np.where(aliased, graph.alias_of[alias], -1)
    pointers, tensors = graph.inputs
    size, made = least[tensors], graph.alias_of < 0
    if not made.all():  # an op may read several tensors that share a buffer
        roots, ops = graph.root[tensors], np.repeat(np.arange(graph.num_ops), np.diff(pointers))
        order = np.lexsort((-size, roots, ops))
        ops, roots = ops[order], roots[order]
        size[order[1:][(ops[1:] == ops[:-1]) & (roots[1:] == roots[:-1])]] = 0
    need = graph.workspace + np.diff(np.append(0, np.cumsum(size))[pointers])
    np.add.at(need, graph.tensor_producer[made], graph.tensor_size[made])
    return need


def last_step_need(graph: CostGraph, b: Buffers, *, recompute: bool = False) -> int:
    """Return the least bytes of any order's last step on one device, persistent bytes left out."""
    # Every final buffer is there, and the last op frees whatever else it reads or makes. Where ops may run again, one
    # that makes something final can be last, too; a last run that makes nothing final could be left out.
    need = b.workspace + np.diff(np.append(0, np.cumsum(np.where(b.is_final, 0, b.size)[b.used]))[b.used_ptr])
    np.add.at(need, b.producer[~b.is_final], b.size[~b.is_final])
    can_be_last = np.diff(b.successor_ptr) == 0
    if recompute:
        can_be_last[graph.tensor_producer[graph.is_final]] = True
        can_be_last &= ~graph.runs_once | (np.diff(b.successor_ptr) == 0)
    return int(b.size[b.is_final].sum()) + int(need[can_be_last].min())


def even_share(problem: Problem, total: int) -> float:
    """Return the least value of the memory task if the devices together hold so many bytes at some time."""
    if problem.counts_alike:
        return -(-total // problem.devices)
    return total * problem.whole / sum(problem.memories)


def room_below(problem: Problem, value: float) -> int:
    """Return about how many bytes devices hold together if none is above a value of the memory task, up to 2^62."""
    return int(min(value * float((1.0 / problem.byte_weights).sum()), 2.0**62))


def memory_bound(problem: Problem) -> int:
    """Return the bound on the peak, bytes, that needs no flow; where shares count, on the value, which is a float."""
    # One device: the largest op or the last step. Several: the largest op with its persistent bytes and the residents
    # that it reads, or the last step, views sent alone where that is less, or all that stays, shared evenly.
    graph, model = problem.graph, model_of(problem.graph)
    need, persistent = op_needs(model, problem.devices), int(model.persistent.sum())
    if problem.devices == 1:
        return persistent + max(int(need.max()), last_step_need(graph, graph.buffers, recompute=problem.recompute))
    need += graph.persistent[: model.num_ops]
    pointers, tensors = graph.inputs
    reader, read = np.repeat(np.arange(graph.num_ops), np.diff(pointers)), np.maximum(tensors, graph.alias_of[tensors])
    resident = read >= model.num_tensors  # itself, or what a writer left of it
    reader, read = distinct_pairs(reader[resident], read[resident])
    np.add.at(need, reader, graph.tensor_size[read])
    final = int(model.tensor_size[model.is_final & (model.alias_of < 0)].sum())
    shared = even_share(problem, persistent + max(final, last_step_need(model, split_buffers(model))))
    if problem.counts_alike:
        return int(max(shared, need.max()))
    values = need[:, None] * float(problem.whole) / np.array(problem.memories)
    least = np.where(problem.rules.allowed[: model.num_ops], values, np.inf).min(axis=1)  # where an op may run
    return cast(int, max(shared, float(least.max())))


def recomputation_bound(graph: CostGraph) -> tuple[int, int]:
    """Return the lower bound of a peak on one device even if ops may run again, bytes, and the op that needs it."""
    # An op's inputs, outputs and workspace are there, and in the end all that is final. The op is -1 if that is more.
    need, buffers = op_needs(graph, 1), graph.buffers
    final, op = int(buffers.size[buffers.is_final].sum()), int(need.argmax())
    persistent = int(graph.persistent.sum())
    return (persistent + final, -1) if final > need[op] else (persistent + int(need[op]), op)


def min_cuts(
    b: Buffers,
    order: NDArray[Any],
    memory: NDArray[Any],
    known: int,
    *,
    work: int = MIN_CUT_WORK,
    stop: Callable[[], bool] = lambda: False,
    has_time_for: Callable[[float], bool] = lambda seconds: True,
) -> Iterator[tuple[int, BoolArray]]:
    """Yield for op after op the lower bound of its step in every order, and the smallest set with which it is met."""
    # What the op allocates, its workspace, and the least memory in which any order can arrive at it: a minimum cut
    # between its ancestors and descendants. That is at most the memory of its step in a known order, so ops are tried
    # by that, the largest first. In large graphs each op has a network of its own, without its ancestors.
    arcs = _arcs(b)
    if is_large := arcs > LARGEST_NETWORK:
        arcs = 0
    elif work < LEAST_FLOWS * arcs or stop() or not has_time_for(seconds_for(BUILDING * arcs)):
        return
    else:
        flow = new_flow(network := network_of(b))
        side = np.empty(len(flow.label), bool)
    for step in np.argsort(-memory, kind="stable"):
        if memory[step] <= known or work < arcs or stop() or not has_time_for(seconds_for(FLOW * arcs)):
            return
        op = int(order[step])
        first = reachable(b.predecessor_ptr, b.predecessors, op)
        after = reachable(b.successor_ptr, b.successors, op)
        if is_large:
            around, throughout, ops = _stretch_around(b, order, op, first, after)
            arcs = _arcs(around)
            if work < arcs or not has_time_for(seconds_for((BUILDING + FLOW) * arcs)):
                return
            flow = new_flow(network := network_of(around))
            side = np.empty(len(flow.label), bool)
            flow.label[0], flow.label[len(ops)] = SOURCE, SINK
        else:
            throughout, label = 0, flow.label[: len(order)]
            label[:] = FREE
            label[first] = SOURCE
            label[after] = SINK
            label[op] = SINK
            flow.residual[:] = network.capacity
        work -= arcs
        term = int(b.own[op] + b.workspace[op]) + throughout + int(max_flow(network, flow, INT64_MAX))
        known = max(known, term)
        source_side(network, flow, side)
        if is_large:
            first[ops[side[1 : len(ops) + 1]]] = True
        yield term, first if is_large else side[: len(order)].copy()


def _arcs(b: Buffers) -> int:
    """Return how many arcs the network of some buffers has."""
    return 2 * (len(b.size) + len(b.users) + len(b.predecessors))


def _stretch_around(
    b: Buffers, order: NDArray[Any], op: int, before: BoolArray, after: BoolArray
) -> tuple[Buffers, int, NDArray[Any]]:
    """Return an op, as the last, and those that may come before or after it as a stretch; bytes throughout; its ops."""
    where = np.select((before, after), (0, 3), 1)
    where[op] = 2
    order = order[np.argsort(where[order], kind="stable")]
    first, last = int(before.sum()), len(order) - int(after.sum())
    buffers, throughout = stretch_of(b, order, np.argsort(order), memory_of_steps(b, order), first, last)
    return buffers, throughout, order[first:last]


def min_cut_bound(problem: Problem, order: NDArray[Any], known: float = 0, **limits: Any) -> float:
    """Return the min-cut bound on a peak, or the known bound if that is more; given any order of the ops."""
    # Several devices share it evenly, views sent alone where that is less.
    graph, devices = model_of(problem.graph), problem.devices
    persistent, order = int(graph.persistent.sum()), order[order < graph.num_ops]
    b = graph.buffers if devices == 1 else split_buffers(graph)
    limits = {"work": MIN_CUT_WORK if devices == 1 else MIN_CUT_WORK_SHARED} | limits
    cuts = min_cuts(b, order, memory_of_steps(b, order), room_below(problem, known) - persistent, **limits)
    return max([known, *(even_share(problem, persistent + term) for term, _ in cuts)])


def lower_bound(problem: Problem, stop: Callable[[], bool] = lambda: False) -> float:
    """Return the bound on a value of the task that needs no search."""
    return memory_bound(problem) if problem.task == "memory" else runtime_bound(problem, stop)


def is_met(value: float, bound: float) -> bool:
    """Whether a value equals its bound: bytes exactly, microseconds but for the rounding of their sums."""
    if isinstance(value, int) and isinstance(bound, int):
        return value <= bound
    return value <= bound * (1 + 1e-12)


def possible_times(problem: Problem) -> FloatArray:
    """Return the time of each op on each device, microseconds, infinite where it may not be; shape `(ops, devices)`."""
    times: FloatArray = np.where(problem.rules.allowed, problem.rules.times, np.inf)
    return times


class EdgeCosts:
    """Costs of edges between ops in transfers."""

    def __init__(self, problem: Problem) -> None:
        graph, machine = problem.graph, problem.machine
        pointers, readers = graph.consumers
        makers = np.repeat(graph.tensor_producer, np.diff(pointers))
        size = np.repeat(graph.tensor_size, np.diff(pointers)).astype(np.float64)
        if first_home(graph) < graph.num_ops:
            own = makers < first_home(graph)
            readers, makers, size = readers[own], makers[own], size[own]
        self.ops, self.sources, self.targets = graph.num_ops, makers, readers
        self.count: NDArray[Any] = np.ones(len(readers))
        self.bytes: NDArray[Any] = size
        if not pairs_rise(makers, readers):  # an op may read several tensors of another one
            pairs, edge = np.unique(makers.astype(np.int64) * graph.num_ops + readers, return_inverse=True)
            self.sources, self.targets = np.divmod(pairs, graph.num_ops)
            edge, many = edge.ravel(), len(pairs)
            if machine.is_beside and not machine.contention:  # what an edge sends is sent at once
                self.count, self.bytes = np.ones(many), np.zeros(many)
                np.maximum.at(self.bytes, edge, size)
            else:
                self.count = np.bincount(edge, minlength=many).astype(np.float64)
                self.bytes = np.bincount(edge, size, minlength=many)
        self.latency, self.per_byte = machine.latencies, machine.microseconds_per_byte
        latency, per_byte = machine.mean_link
        self.mean = self.count * latency + self.bytes * per_byte

    def between(self, edge: int, source: Any = ...) -> FloatArray:
        """Return the time of an edge from each device, or from one, to each, microseconds; `(devices, devices)`."""
        cost: FloatArray = self.count[edge] * self.latency[source]
        return cost + self.bytes[edge] * self.per_byte[source] if self.bytes[edge] else cost

    def grouped(self, by: NDArray[Any]) -> Callable[[int], list[int]]:
        """Return the edges of an op, by `sources` or by `targets`; made when asked for, as there may be millions."""
        pointers, edges = csr(by, np.arange(len(by)), self.ops)
        return lambda op: edges[pointers[op] : pointers[op + 1]].tolist()


def optimistic_costs(problem: Problem, edges: EdgeCosts, *, mean: bool, heed: Heed) -> FloatArray:
    """Return the least time from the end of each op on each device to the end of all (PEFT eq. 5); `(ops, devices)`."""
    # Every later op is on its best device. A transfer takes what the mean link does, as in the paper, or its own with
    # `mean` false: no schedule is faster then. `heed` goes through ops and edges, and may raise.
    graph, times = problem.graph, possible_times(problem)
    apart = ~np.eye(problem.devices, dtype=bool)
    cost, leaving = np.zeros((graph.num_ops, problem.devices)), edges.grouped(edges.sources)
    for op in heed(graph.input_order[::-1].tolist()):
        for e in heed(leaving(op)):  # one op may be read by all others
            target = edges.targets[e]
            sent = edges.mean[e] * apart if mean else edges.between(e)
            np.maximum(cost[op], (sent + (times[target] + cost[target])[None, :]).min(axis=1), out=cost[op])
    return cost


def earliest_ends(problem: Problem, edges: EdgeCosts, heed: Heed) -> FloatArray:
    """Return the earliest that each op can end on each device, every earlier op on its best; shape `(ops, devices)`."""
    graph = problem.graph
    ends, entering = possible_times(problem).copy(), edges.grouped(edges.targets)
    for op in heed(graph.input_order.tolist()):
        ready = np.zeros(problem.devices)
        for e in heed(entering(op)):
            np.maximum(ready, (ends[edges.sources[e]][:, None] + edges.between(e)).min(axis=0), out=ready)
        ends[op] += ready
    return ends


def split_buffers(graph: CostGraph) -> Buffers:
    """Return the buffers, split where views, which may be sent alone, are smaller than their bases."""
    # Each view is put within what it is a view of, next to its other views as far as they fit, and over them beyond.
    # What is held of a buffer, on any devices, has at least the bytes of the union of what is needed: any layout is
    # valid. A piece is alive as long as any tensor that has room in it is needed.
    start, room = _layout(graph)
    root, data = graph.root, ~graph.is_control
    if (room == graph.tensor_size[root])[data].all():
        return graph.buffers
    tensors = np.flatnonzero(data & (room > 0))
    both_ends = np.concatenate((start[tensors], start[tensors] + room[tensors]))
    ends, row = np.unique(np.stack((np.tile(root[tensors], 2), both_ends)), axis=1, return_inverse=True)
    first, last = row.reshape(2, -1)
    is_piece = ends[0, 1:] == ends[0, :-1]  # between two ends of the same buffer
    number = np.cumsum(np.append(0, is_piece))
    roots, size = ends[0, :-1][is_piece], np.diff(ends[1])[is_piece]
    by_maker = np.argsort(graph.tensor_producer[roots], kind="stable")
    roots, size = roots[by_maker], size[by_maker]
    piece, holder = gathered(np.argsort(by_maker), number[first], number[last])
    tensors = tensors[holder]  # of each piece, what it is held for
    count = len(roots)
    producer = graph.tensor_producer[roots]
    is_final = np.zeros(count, bool)
    is_final[piece[graph.is_final[tensors]]] = True
    pointers, consumers = graph.consumers
    users, pair = gathered(consumers, pointers[tensors], pointers[tensors + 1])
    pieces, users = distinct_pairs(piece[pair], users)
    made_ptr, kept = np.searchsorted(producer, np.arange(graph.num_ops + 1)), cast(Any, graph.buffers[8:])
    return Buffers(
        frozen(size, np.int64),
        frozen(producer, np.int32),
        frozen(is_final, np.bool_),
        *csr(pieces, users, count),
        *csr(users, pieces, graph.num_ops),
        frozen(made_ptr, np.int32),
        *kept,
    )


def _layout(graph: CostGraph) -> tuple[IntArray, IntArray]:
    """Return where each tensor begins within its buffer, and its room there: at most its bytes; `(tensors,)` each."""
    start, room = np.zeros(graph.num_tensors, np.int64), graph.tensor_size.copy()
    taken, smaller = np.zeros((2, graph.num_tensors), np.int64)
    place = np.argsort(graph.input_order)
    views = np.flatnonzero(graph.alias_of >= 0)
    for view in views[np.argsort(place[graph.tensor_producer[views]], kind="stable")].tolist():
        base = graph.alias_of[view]
        room[view] = min(room[view], room[base])
        if room[view] < room[base]:
            smaller[graph.root[view]] += 1
            room[view] = room[view] if smaller[graph.root[view]] <= MOST_VIEWS else 0
        begin = taken[base] if taken[base] + room[view] <= room[base] else 0
        start[view], taken[base] = start[base] + begin, begin + room[view]
    return start, room
