"""The lazy decoder: one key per op, the placement chosen while decoding (FINDINGS, Two devices)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...graph import BoolArray, FloatArray, IndexArray, IntArray
from ..cost_model import State
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from .memory_greedy import spread
from .sequences import Aim, Due, run_sequence


class Lazy(NamedTuple):
    """Scratch of the decoder.

    Per op: `pending` inputs, `where` all inputs are (a bit per device), how many ops were taken with it
    (`taken`), and `order`. `ready` holds the ready ops, the most urgent first. `met` holds, per pair of
    devices, how many ops had been taken when they last synchronised. Per device: its `clock`, the `work` of
    the ready ops whose inputs are all there, in microseconds, whether it is `parked`, and its `resident`
    bytes. Per tensor: how many readers are `left`.
    """

    pending: IndexArray
    where: Any
    taken: IndexArray
    order: IndexArray
    ready: IndexArray
    met: IndexArray
    clock: FloatArray
    work: FloatArray
    parked: BoolArray
    resident: IntArray
    left: IndexArray


def new_lazy(g: GraphArrays, devices: int) -> Lazy:
    """Allocate the scratch."""
    ops = len(g.runtime)
    return Lazy(
        pending=np.empty(ops, np.int32),
        where=np.empty(ops, np.uint64),
        taken=np.empty(ops, np.int32),
        order=np.empty(ops, np.int32),
        ready=np.empty(ops, np.int32),
        met=np.empty(devices * devices, np.int32),
        clock=np.empty(devices),
        work=np.empty(devices),
        parked=np.empty(devices, np.bool_),
        resident=np.empty(devices, np.int64),
        left=np.empty(len(g.tensor_size), np.int32),
    )


@inlined
def _is_far(g: GraphArrays, s: State, due: Due, tensor: int, device: int) -> Any:
    """Whether a tensor would have to be sent to a device."""
    sent = (due.sent[tensor] >> np.uint64(device)) & np.uint64(1)
    return s.placement[g.producer[tensor]] != device and sent == 0


@inlined
def _find(g: GraphArrays, s: State, z: Lazy, due: Due, op: int, devices: int) -> None:
    """Note where all inputs of a ready op are, or could have been sent when devices last synchronised."""
    for device in range(devices):
        bit = np.uint64(1) << np.uint64(device)
        if z.where[op] & bit:
            continue
        here = True
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            maker = g.producer[tensor]
            if _is_far(g, s, due, tensor, device) and z.taken[maker] > z.met[s.placement[maker] * devices + device]:
                here = False
                break
        if here:
            z.where[op] |= bit
            z.work[device] += g.runtime[op]


@inlined
def _insert(z: Lazy, keys: Any, size: int, op: int) -> int:
    """Add to the ready ops: larger key first, then the smaller op."""
    at = size
    while at > 0:
        other = z.ready[at - 1]
        if keys[other] > keys[op] or (keys[other] == keys[op] and other < op):
            break
        z.ready[at] = other
        at -= 1
    z.ready[at] = op
    return size + 1


@inlined
def _next_device(z: Lazy, devices: int, any_device: bool) -> int:
    """Return the device whose clock lags most, the first of equals, among those not parked; -1 for none."""
    found = -1
    for device in range(devices):
        if (any_device or not z.parked[device]) and (found < 0 or z.clock[device] < z.clock[found]):
            found = device
    return found


@inlined
def _choose_far(
    g: GraphArrays,
    s: State,
    z: Lazy,
    due: Due,
    size: int,
    device: int,
    patience: float,
    forced: bool,
    devices: int,
    latency: float,
    microseconds_per_byte: float,
) -> int:
    """Return the place among the ready ops of the one that could start first on `device`, or -1.

    An op whose inputs are all on another device is left to that one if it should get to it sooner, that is
    after `patience` times its other local work; transfers that cost nothing are always worth it.
    """
    chosen = -1
    least = np.inf
    for at in range(size):
        op = z.ready[at]
        start, cost = z.clock[device], 0.0
        for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[i]
            if _is_far(g, s, due, tensor, device):
                maker = g.producer[tensor]
                source = s.placement[maker]
                cost += latency + g.tensor_size[tensor] * microseconds_per_byte
                if z.taken[maker] > z.met[source * devices + device]:
                    start = max(start, z.clock[source])
        start += cost
        if start >= least:
            continue
        elsewhere = np.inf
        if not forced and cost > 0.0:
            for other in range(devices):
                if (z.where[op] >> np.uint64(other)) & np.uint64(1):
                    elsewhere = min(elsewhere, z.clock[other] + patience * (z.work[other] - g.runtime[op]))
        if start <= elsewhere:
            chosen, least = at, start
    return chosen


@kernel
def arrange(
    g: GraphArrays,
    s: State,
    z: Lazy,
    due: Due,
    keys: Any,
    devices: int,
    latency: float,
    microseconds_per_byte: float,
) -> None:
    """Fill `z.order` and `s.placement` from `ops + 1` keys: one per op, and the patience.

    The device whose clock lags takes the most urgent ready op whose inputs are all on it. If there is none it
    synchronises with the devices that hold the inputs of the op that could start first; from then on all that
    these had made counts as sent. If every such op had better stay where it is, the device is parked until
    the next op is taken; when all are parked, the one that lags takes the op that could start first.
    """
    ops = g.runtime.size
    patience = np.float64(keys[ops])
    z.clock[:] = 0.0
    z.work[:] = 0.0
    z.met[:] = 0
    z.parked[:] = False
    z.where[:] = 0
    due.sent[:] = 0
    size = 0
    for op in range(ops):
        z.pending[op] = g.input_ptr[op + 1] - g.input_ptr[op]
        if z.pending[op] == 0:
            _find(g, s, z, due, op, devices)
            size = _insert(z, keys, size, op)
    taken = 0
    while taken < ops:
        device = _next_device(z, devices, False)
        forced = device < 0
        if forced:
            device = _next_device(z, devices, True)
        bit = np.uint64(1) << np.uint64(device)
        chosen = -1
        for at in range(size):
            if z.where[z.ready[at]] & bit:
                chosen = at
                break
        if chosen < 0:
            chosen = _choose_far(g, s, z, due, size, device, patience, forced, devices, latency, microseconds_per_byte)
            if chosen < 0:
                z.parked[device] = True
                continue
            op = z.ready[chosen]
            for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
                maker = g.producer[g.inputs[i]]
                source = s.placement[maker]
                if _is_far(g, s, due, g.inputs[i], device) and z.taken[maker] > z.met[source * devices + device]:
                    now = max(z.clock[source], z.clock[device])
                    z.clock[source] = now
                    z.clock[device] = now
                    z.met[source * devices + device] = taken
                    z.met[device * devices + source] = taken
            for at in range(size):
                _find(g, s, z, due, z.ready[at], devices)
        op = z.ready[chosen]
        size -= 1
        for at in range(chosen, size):
            z.ready[at] = z.ready[at + 1]
        for other in range(devices):
            z.parked[other] = False
            if (z.where[op] >> np.uint64(other)) & np.uint64(1):
                z.work[other] -= g.runtime[op]
        for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[i]
            if _is_far(g, s, due, tensor, device):
                due.sent[tensor] |= bit
                cost = latency + g.tensor_size[tensor] * microseconds_per_byte
                z.clock[s.placement[g.producer[tensor]]] += cost
                z.clock[device] += cost
        z.clock[device] += g.runtime[op]
        s.placement[op] = device
        z.order[taken] = op
        taken += 1
        z.taken[op] = taken
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
                consumer = g.consumers[at]
                z.pending[consumer] -= 1
                if z.pending[consumer] == 0:
                    _find(g, s, z, due, consumer, devices)
                    size = _insert(z, keys, size, consumer)


@inlined
def _decode(
    g: GraphArrays,
    s: State,
    z: Lazy,
    due: Due,
    keys: Any,
    aim: Aim,
    devices: int,
    latency: float,
    microseconds_per_byte: float,
) -> None:
    """Turn keys into a sequence, in `z.order` and `s.placement`: by memory if the peak counts, else by time."""
    if aim.is_peak:
        noise = keys[g.runtime.size]
        spread(g, keys, noise, devices, z.pending, z.left, due.sent, z.resident, z.ready, z.order, s.placement)
    else:
        arrange(g, s, z, due, keys, devices, latency, microseconds_per_byte)


@kernel
def price_keys(
    g: GraphArrays,
    s: State,
    z: Lazy,
    due: Due,
    keys: Any,
    aim: Aim,
    devices: int,
    latency: float,
    microseconds_per_byte: float,
    nothing: Any,
    peaks: Any,
    runtimes: Any,
) -> None:
    """Decode and run each row of `keys`; write its peak (0 without memory accounting) and makespan."""
    for at in range(keys.shape[0]):
        _decode(g, s, z, due, keys[at], aim, devices, latency, microseconds_per_byte)
        _, _, peaks[at], runtimes[at] = run_sequence(
            g, s, due, z.order, aim, devices, latency, microseconds_per_byte, np.inf, nothing, nothing
        )


@kernel
def anneal_keys(
    g: GraphArrays,
    s: State,
    z: Lazy,
    due: Due,
    keys: Any,
    aim: Aim,
    devices: int,
    latency: float,
    microseconds_per_byte: float,
    hot: float,
    cold: float,
    draws: Any,
    energy: float,
    best: Any,
    best_order: Any,
    best_placement: Any,
    nothing: Any,
) -> float:
    """Anneal over keys: each row of `draws` (uniform, 6 columns) is one move and one evaluation.

    A move adds a number within 0.1 or 0.5 to the keys of one op or two, or in one move of 20 redraws the
    patience. Acceptance, cooling, `best` and the result are those of `anneal_sequence`.
    """
    ops = g.runtime.size
    moves = draws.shape[0]
    for move in range(moves):
        temperature = hot * (cold / hot) ** (move / moves)
        one = int(draws[move, 0] * ops)
        two = int(draws[move, 1] * ops) if draws[move, 4] < 0.5 else one
        reach = 0.2 if draws[move, 4] % 0.5 < 0.25 else 1.0
        if latency + microseconds_per_byte > 0.0 and draws[move, 4] < 0.05:
            one, two = ops, ops
        before_one, before_two = keys[one], keys[two]
        keys[one] = draws[move, 2] if one == ops else before_one + reach * (draws[move, 2] - 0.5)
        if two != one:
            keys[two] = before_two + reach * (draws[move, 3] - 0.5)
        bar = energy * (1.0 - draws[move, 5]) ** -temperature
        _decode(g, s, z, due, keys, aim, devices, latency, microseconds_per_byte)
        _, new, peak, runtime = run_sequence(
            g, s, due, z.order, aim, devices, latency, microseconds_per_byte, bar, nothing, nothing
        )
        if new > bar:
            keys[two] = before_two
            keys[one] = before_one
            continue
        energy = new
        excess = max(0, peak - aim.limit)
        value = np.float64(peak) if aim.is_peak else runtime
        if excess < best[0] or (excess == best[0] and value < best[1]):
            best[0], best[1] = excess, value
            for at in range(ops):
                best_order[at] = z.order[at]
                best_placement[at] = s.placement[at]
    return energy
