"""Chromosomes of one key per op, decoded to a sequence, its placement chosen meanwhile: priced, and annealed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..bits import bit_of, has_bit
from ..cost_model import MachineArrays, State, Steps
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..metropolis import Walk, bar_of, seed_of, uniform
from ..orders.order_memory import release
from .sequences import Due, Objective, Places, new_due, note_best, run_sequence, sending

NOWHERE = -1


class Lazy(NamedTuple):
    """Scratch of the decoders."""

    reads: IndexArray  # per op: how many tensors it reads that other ops make, and how many of them are pending
    pending: IndexArray
    taken: IndexArray  # per op: how many ops were taken with it
    order: IndexArray
    ready: IndexArray  # the most urgent first
    where: Any  # per op: a bit per device on which all its inputs are
    met: IndexArray  # per pair of devices: how many ops had been taken when they last synchronised
    clock: FloatArray
    work: FloatArray  # per device: of the ready ops whose inputs are all there, microseconds
    parked: BoolArray
    resident: IntArray
    left: IndexArray  # per tensor: its readers yet to run
    due: Due
    is_alike: bool  # every op takes as long on each device
    costs: bool  # transfers take time
    is_free: bool  # each op may be anywhere
    before: Any  # keys before a move
    places: Places


def new_lazy(g: GraphArrays, m: MachineArrays, places: Places) -> Lazy:
    """Allocate the scratch."""
    ops, devices = m.times.shape
    is_made = g.producer[g.inputs] < m.first_home
    return Lazy(
        reads=np.bincount(np.repeat(np.arange(ops), np.diff(g.input_ptr)), is_made, ops).astype(np.int32),
        pending=np.empty(ops, np.int32),
        taken=np.empty(ops, np.int32),
        order=np.empty(ops, np.int32),
        ready=np.empty(ops, np.int32),
        where=np.empty(ops, np.uint64),
        met=np.empty(devices * devices, np.int32),
        clock=np.empty(devices),
        work=np.empty(devices),
        parked=np.empty(devices, np.bool_),
        resident=np.empty(devices, np.int64),
        left=np.empty(len(g.tensor_size), np.int32),
        due=new_due(g, devices),
        is_alike=bool((m.times[: m.first_home] == m.times[: m.first_home, :1]).all()),
        costs=bool(m.latency.any() or m.per_byte.any()),
        is_free=bool(places.allowed.all()) and len(places.members) == len(np.unique(places.group)),
        before=np.empty(ops + 1, np.float32),
        places=places,
    )


@inlined
def _is_far(g: GraphArrays, m: MachineArrays, s: State, z: Lazy, tensor: int, device: int) -> Any:
    """Whether a tensor would have to be sent to a device; a resident whose home is open would not."""
    source = s.placement[g.producer[tensor]]
    is_made = tensor < m.first_resident or not m.everywhere[tensor]
    return source != device and source != NOWHERE and is_made and not has_bit(z.due.sent[tensor], device)


@inlined
def _may_be(s: State, z: Lazy, op: int, device: int) -> Any:
    """Whether an op may run on a device: the rules allow it, and so does where an op is that it must be with."""
    first = z.places.group[op]
    first = z.places.members[z.places.member_ptr[first]]
    return z.places.allowed[op, device] and (s.placement[first] == NOWHERE or s.placement[first] == device)


@inlined
def _find(g: GraphArrays, m: MachineArrays, s: State, z: Lazy, op: int) -> None:
    """Note where all inputs of a ready op are, or could have been sent when devices last synchronised."""
    devices = z.clock.size
    for device in range(devices):
        if has_bit(z.where[op], device):
            continue
        here = z.is_free or _may_be(s, z, op, device)
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            maker = g.producer[tensor]
            if _is_far(g, m, s, z, tensor, device) and z.taken[maker] > z.met[s.placement[maker] * devices + device]:
                here = False
                break
        if here:
            z.where[op] |= bit_of(device)
            z.work[device] += m.times[op, device]


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
def _next_device(z: Lazy, any_device: bool) -> int:
    """Return the device whose clock lags most, the first of equals, among those not parked; -1 for none."""
    found = -1
    for device in range(z.clock.size):
        if (any_device or not z.parked[device]) and (found < 0 or z.clock[device] < z.clock[found]):
            found = device
    return found


@inlined
def _ends_elsewhere(m: MachineArrays, z: Lazy, op: int, device: int, patience: float) -> float:
    """Return when an op could start here to end as another device should, which has its inputs and is as busy."""
    elsewhere = np.inf
    for other in range(z.clock.size):
        if has_bit(z.where[op], other) and other != device:
            start = z.clock[other] + patience * (z.work[other] - m.times[op, other])
            elsewhere = min(elsewhere, start + (m.times[op, other] - m.times[op, device]))
    return elsewhere


@inlined
def _choose_near(m: MachineArrays, z: Lazy, size: int, device: int, patience: float, forced: bool) -> int:
    """Return the place of the most urgent ready op whose inputs are all on `device`, or -1."""
    for at in range(size):
        op = z.ready[at]
        is_near = has_bit(z.where[op], device)
        if is_near and (forced or z.is_alike or _ends_elsewhere(m, z, op, device, patience) >= z.clock[device]):
            return at
    return -1


@inlined
def _choose_far(
    g: GraphArrays, m: MachineArrays, s: State, z: Lazy, size: int, device: int, patience: float, forced: bool
) -> int:
    """Return the place among the ready ops of the one that could start first on `device`, or -1."""
    chosen, devices = -1, z.clock.size
    least = np.inf
    for at in range(size):
        op = z.ready[at]
        if not (z.is_free or _may_be(s, z, op, device)):
            continue
        start, cost = z.clock[device], 0.0
        for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[i]
            if _is_far(g, m, s, z, tensor, device):
                maker = g.producer[tensor]
                source = s.placement[maker]
                cost += sending(g, m, tensor, source, device)
                if z.taken[maker] > z.met[source * devices + device]:
                    start = max(start, z.clock[source])
        start += cost
        if start >= least:
            continue
        elsewhere = np.inf
        if not forced and (cost > 0.0 or not z.is_alike):
            elsewhere = _ends_elsewhere(m, z, op, device, patience)
        if start <= elsewhere:
            chosen, least = at, start
    return chosen


@inlined
def _meet(g: GraphArrays, m: MachineArrays, s: State, z: Lazy, op: int, device: int, taken: int) -> None:
    """Synchronise a device with those that hold inputs of an op, made since they last met."""
    devices = z.clock.size
    for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
        maker = g.producer[g.inputs[i]]
        source = s.placement[maker]
        if _is_far(g, m, s, z, g.inputs[i], device) and z.taken[maker] > z.met[source * devices + device]:
            now = max(z.clock[source], z.clock[device])
            z.clock[source] = now
            z.clock[device] = now
            z.met[source * devices + device] = taken
            z.met[device * devices + source] = taken


@kernel
def _settle(g: GraphArrays, m: MachineArrays, s: State, z: Lazy, op: int, device: int) -> None:
    """Give a device to the homes that are with an op, or to a home itself; ready ops then have to be there."""
    first = z.places.group[op]
    for at in range(z.places.member_ptr[first], z.places.member_ptr[first + 1]):
        member = z.places.members[at]
        if member >= m.first_home:
            s.placement[member] = device
            for tensor in range(g.output_ptr[member], g.output_ptr[member + 1]):
                for i in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
                    if not m.everywhere[tensor]:
                        _keep_only(m, z, g.consumers[i], device)
        elif member != op:
            _keep_only(m, z, member, device)
            if at == z.places.member_ptr[first]:
                s.placement[member] = device


@inlined
def _keep_only(m: MachineArrays, z: Lazy, op: int, device: int) -> None:
    """Forget of all devices but one that they have the inputs of an op."""
    for other in range(z.clock.size):
        if other != device and has_bit(z.where[op], other):
            z.where[op] &= ~bit_of(other)
            z.work[other] -= m.times[op, other]


@inlined
def _run(g: GraphArrays, m: MachineArrays, s: State, z: Lazy, op: int, device: int) -> None:
    """Send an op its missing inputs and run it; no device is parked any more."""
    for other in range(z.clock.size):
        z.parked[other] = False
        if has_bit(z.where[op], other):
            z.work[other] -= m.times[op, other]
    z.where[op] = 0
    s.placement[op] = device
    if not z.is_free:
        _settle(g, m, s, z, op, device)
    for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[i]
        maker = g.producer[tensor]
        if s.placement[maker] == NOWHERE:
            home = device
            while not z.places.allowed[maker, home]:
                home = home + 1 if home + 1 < z.clock.size else 0
            _settle(g, m, s, z, maker, home)
        if _is_far(g, m, s, z, tensor, device):
            z.due.sent[tensor] |= bit_of(device)
            cost = sending(g, m, tensor, s.placement[maker], device)
            z.clock[s.placement[maker]] += cost
            z.clock[device] += cost
    z.clock[device] += m.times[op, device]


@inlined
def _begin(g: GraphArrays, m: MachineArrays, s: State, z: Lazy, keys: Any) -> int:
    """Take the residents, and find the ops that are ready then; returns how many are."""
    ops = s.placement.size
    z.clock[:] = 0.0
    z.work[:] = 0.0
    z.met[:] = 0
    z.parked[:] = False
    z.where[:] = 0
    z.due.sent[:] = 0
    s.placement[:] = NOWHERE
    size = 0
    for op in range(m.first_home, ops):
        z.order[op - m.first_home] = op
        z.taken[op] = op - m.first_home + 1
    for op in range(m.first_home):
        z.pending[op] = z.reads[op]
        if z.pending[op] == 0:
            _find(g, m, s, z, op)
            size = _insert(z, keys, size, op)
    return size


@kernel
def decode_for_makespan(g: GraphArrays, s: State, z: Lazy, keys: Any, m: MachineArrays) -> None:
    """Fill `z.order` and `s.placement` from `ops + 1` keys: one per op, and the patience."""
    # The device whose clock lags takes the most urgent ready op whose inputs are all on it. If there is none it
    # synchronises with the devices that hold the inputs of the op that could start first; all that these had made then
    # counts as sent. If every such op had better stay where it is, the device is parked until the next op is taken;
    # when all are parked, the one that lags takes the op that could start first. Residents come first, and have their
    # home where they are read first.
    ops = s.placement.size
    patience = np.float64(keys[ops])
    size, taken = _begin(g, m, s, z, keys), ops - m.first_home
    while taken < ops:
        device = _next_device(z, False)
        forced = device < 0
        if forced:
            device = _next_device(z, True)
        chosen = _choose_near(m, z, size, device, patience, forced)
        if chosen < 0:
            chosen = _choose_far(g, m, s, z, size, device, patience, forced)
            if chosen < 0 and forced:  # it may run none of them, of which the most urgent runs where it may
                chosen = 0
                while not _may_be(s, z, z.ready[0], device):
                    device = device + 1 if device + 1 < z.clock.size else 0
            if chosen < 0:
                z.parked[device] = True
                continue
            _meet(g, m, s, z, z.ready[chosen], device, taken)
            for at in range(size):
                _find(g, m, s, z, z.ready[at])
        op = z.ready[chosen]
        size -= 1
        for at in range(chosen, size):
            z.ready[at] = z.ready[at + 1]
        _run(g, m, s, z, op, device)
        z.order[taken] = op
        taken += 1
        z.taken[op] = taken
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
                consumer = g.consumers[at]
                z.pending[consumer] -= 1
                if z.pending[consumer] == 0:
                    _find(g, m, s, z, consumer)
                    size = _insert(z, keys, size, consumer)
    for op in range(m.first_home, ops):  # residents that nothing reads
        if s.placement[op] == NOWHERE:
            device = 0
            while not z.places.allowed[op, device]:
                device += 1
            _settle(g, m, s, z, op, device)


@inlined
def _own_bytes(g: GraphArrays, tensor: int) -> Any:
    """Return the bytes of a tensor that count: none of a view."""
    return g.tensor_size[tensor] if g.alias_of[tensor] < 0 else 0


@inlined
def _read(g: GraphArrays, z: Lazy, op: int, device: int) -> None:
    """Bring an op's inputs to its device, and drop everywhere those that it is the last to read."""
    for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[i]
        size = _own_bytes(g, tensor)
        if not has_bit(z.due.sent[tensor], device):
            z.due.sent[tensor] |= bit_of(device)
            z.resident[device] += size
        z.left[tensor] -= 1
        if z.left[tensor] == 0 and not g.is_final[tensor]:
            for other in range(z.resident.size):
                if has_bit(z.due.sent[tensor], other):
                    z.resident[other] -= size


@kernel
def decode_for_peak(g: GraphArrays, s: State, z: Lazy, keys: Any) -> None:
    """Fill `z.order` and `s.placement`: the ready op and device that raise the peak least, then grow memory least."""
    # A tensor counts wherever it was brought to until all its readers have run, a view nothing. An op's key times the
    # last key (the noise) of the largest tensor counts as that many bytes less.
    ops, noise, devices = g.runtime.size, np.float64(keys[g.runtime.size]), z.clock.size
    count, peak, largest = 0, 0, 0
    z.resident[:] = 0
    z.due.sent[:] = 0
    for tensor in range(g.tensor_size.size):
        largest = max(largest, g.tensor_size[tensor])
        z.left[tensor] = g.consumer_ptr[tensor + 1] - g.consumer_ptr[tensor]
    for op in range(ops):
        z.pending[op] = g.input_ptr[op + 1] - g.input_ptr[op]
        if z.pending[op] == 0:
            z.ready[count] = op
            count += 1
    for step in range(ops):
        chosen, where, least_peak, least = -1, 0, 0, 0.0
        for at in range(count):
            op = z.ready[at]
            kept = g.persistent[op]  # for good, or for readers
            for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
                kept += _own_bytes(g, tensor)
            for device in range(devices):
                brought, freed = 0, 0
                for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
                    tensor = g.inputs[i]
                    if not has_bit(z.due.sent[tensor], device):
                        brought += g.tensor_size[tensor]
                    if z.left[tensor] == 1 and not g.is_final[tensor]:
                        freed += _own_bytes(g, tensor)
                reached = max(peak, z.resident[device] + brought + kept + g.workspace[op])
                grown = np.float64(brought + kept - freed) - noise * np.float64(keys[op]) * largest
                if chosen < 0 or reached < least_peak or (reached == least_peak and grown < least):
                    chosen, where, least_peak, least = at, device, reached, grown
        op = z.ready[chosen]
        count -= 1
        for at in range(chosen, count):
            z.ready[at] = z.ready[at + 1]
        z.order[step] = op
        s.placement[op] = where
        peak = least_peak
        z.resident[where] += g.persistent[op]
        _read(g, z, op, where)
        for made in range(g.output_ptr[op], g.output_ptr[op + 1]):
            if z.left[made] > 0 or g.is_final[made]:
                z.resident[where] += _own_bytes(g, made)
            z.due.sent[made] |= bit_of(where)
            count = release(g.consumer_ptr, g.consumers, made, z.pending, z.ready, count)


LEAST_MOVED = 0.02  # the least share of the keys, on average, that a move changes, unless that is less than one


@inlined
def _decode(g: GraphArrays, s: State, z: Lazy, keys: Any, aim: Objective, m: MachineArrays) -> None:
    """Turn keys into a sequence, in `z.order` and `s.placement`: by memory if the peak counts, else by time."""
    if aim.is_peak:
        decode_for_peak(g, s, z, keys)
    else:
        decode_for_makespan(g, s, z, keys, m)


@kernel
def price_keys(g: GraphArrays, s: State, z: Lazy, keys: Any, aim: Objective, m: MachineArrays, prices: Any) -> None:
    """Decode and run each row of `keys`; write its excess, peak (0 without memory accounting) and makespan."""
    nothing = Steps(z.order[:0], z.order[:0])
    for at in range(keys.shape[0]):
        _decode(g, s, z, keys[at], aim, m)
        _, _, excess, peak, runtime = run_sequence(g, s, z.due, z.order, aim, m, np.inf, nothing)
        prices[at, 0], prices[at, 1], prices[at, 2] = excess, peak, runtime


@inlined
def _copy(keys: Any, to: Any) -> None:
    """Copy keys."""
    for at in range(keys.size):
        to[at] = keys[at]


@inlined
def _change(keys: Any, draws: Any, ops: int) -> None:
    """Add a number within 0.1 or 0.5 to the keys of one op, and of a share of all others drawn for the move."""
    seed, share = seed_of(draws[0]), max(LEAST_MOVED, 1.0 / ops) ** draws[1]
    reach = 0.2 if draws[3] < 0.5 else 1.0
    one = int(draws[0] * ops)
    for op in range(ops):
        drawn = uniform(seed, op)
        if drawn < share:
            keys[op] += reach * (drawn / share - 0.5)
        elif op == one:
            keys[op] += reach * (draws[2] - 0.5)


@kernel
def anneal_keys(
    g: GraphArrays, s: State, z: Lazy, keys: Any, aim: Objective, m: MachineArrays, energy: float, walk: Walk
) -> float:
    """Anneal over keys, 5 draws a move; returns the cost of the present `keys` then."""
    ops, draws = g.runtime.size, walk.draws
    nothing = Steps(z.order[:0], z.order[:0])
    _copy(keys, z.before)
    for move in range(draws.shape[0]):
        if z.costs and draws[move, 3] < 0.05:
            keys[ops] = draws[move, 2]
        else:
            _change(keys, draws[move], ops)
        bar = bar_of(energy, walk.temperature, draws[move, 4])
        _decode(g, s, z, keys, aim, m)
        _, new, excess, peak, runtime = run_sequence(g, s, z.due, z.order, aim, m, bar, nothing)
        if new > bar:
            _copy(z.before, keys)
            continue
        energy = new
        _copy(keys, z.before)
        note_best(walk, aim, excess, peak, runtime, z.order, s.placement)
    return energy
