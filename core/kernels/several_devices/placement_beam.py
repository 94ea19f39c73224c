"""A beam over the placements of an order's ops under a limit: the copies that do not fit are dropped or moved.

The order is fixed, so all states at a step agree on which ops have run. A state says where each tensor that
is still needed has copies. They stay while there is room. When a device lacks room it drops copies that another
device has too, then sends away tensors that it alone has (a transfer made early). So a limit decides what is
kept twice, and a state dies only when nothing that could go makes room.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...graph import BoolArray, IndexArray, IntArray
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel

NOBODY = -1


class Route(NamedTuple):
    """What the states of a step share.

    Per op its `place` in the order. Per tensor: the `slot` that it has in a state while it is needed, how many
    readers and views are `left`, and whether it `has_views`. Per slot the tensor that is `held` there now.
    """

    order: IndexArray
    place: IndexArray
    slot: IndexArray
    left: IndexArray
    has_views: BoolArray
    held: IndexArray


class States(NamedTuple):
    """States of two steps, the present and the next, a row each.

    Per slot: bits of the devices that have a `copies` of the tensor, of those that ever had one (`sent`), and the
    `home` that made it. Per device, bytes: `resident` tensors, `persistent` bytes, and the largest need so far
    (`top`). Per state: `hash`, `peak` in bytes, and how many devices are `used`.
    """

    copies: Any
    sent: Any
    home: Any
    resident: IntArray
    persistent: IntArray
    top: IntArray
    hash: Any
    peak: IntArray
    used: IndexArray


class Choices(NamedTuple):
    """A step's successors as a heap, a hash table of those kept, and per step and state where it came from."""

    need: IntArray
    tie: Any
    choice: IndexArray
    table: IndexArray
    parent: IndexArray
    device: Any


def new_route(g: GraphArrays, order: Any) -> tuple[Route, int]:
    """Give every tensor a slot for as long as it is needed along an order; returns how many slots there are."""
    ops, tensors = len(g.runtime), len(g.tensor_size)
    has_views = np.zeros(tensors, np.bool_)
    has_views[g.alias_of[g.alias_of >= 0]] = True
    route = Route(
        np.array(order, np.int32),
        np.empty(ops, np.int32),
        np.empty(tensors, np.int32),
        np.empty(tensors, np.int32),
        has_views,
        np.empty(tensors, np.int32),
    )
    route.place[route.order] = np.arange(ops, dtype=np.int32)
    return route, int(assign_slots(g, route))


def new_states(size: int, slots: int, devices: int) -> States:
    """Allocate two steps of a beam."""
    return States(
        copies=np.empty((2, size, slots), np.uint64),
        sent=np.empty((2, size, slots), np.uint64),
        home=np.empty((2, size, slots), np.uint8),
        resident=np.empty((2, size, devices), np.int64),
        persistent=np.empty((2, size, devices), np.int64),
        top=np.empty((2, size, devices), np.int64),
        hash=np.empty((2, size), np.uint64),
        peak=np.empty((2, size), np.int64),
        used=np.empty((2, size), np.int32),
    )


def new_choices(size: int, ops: int, devices: int) -> Choices:
    """Allocate the heap, the table and the links back."""
    return Choices(
        need=np.empty(size * devices, np.int64),
        tie=np.empty(size * devices, np.uint64),
        choice=np.empty(size * devices, np.int32),
        table=np.empty(1 << (2 * size).bit_length(), np.int32),
        parent=np.empty((ops, size), np.int32),
        device=np.empty((ops, size), np.uint8),
    )


@inlined
def _start(g: GraphArrays, route: Route) -> None:
    """Before the first op: readers and views of each tensor are all left."""
    for tensor in range(g.tensor_size.size):
        route.left[tensor] = g.consumer_ptr[tensor + 1] - g.consumer_ptr[tensor] + g.is_final[tensor]
    for tensor in range(g.tensor_size.size):
        if g.alias_of[tensor] >= 0:
            route.left[g.alias_of[tensor]] += 1


@inlined
def _dies(g: GraphArrays, route: Route, tensor: int) -> int:
    """One reader or view of a tensor is done with it; returns the tensor, or NOBODY, that this frees."""
    route.left[tensor] -= 1
    return tensor if route.left[tensor] == 0 else NOBODY


@kernel
def assign_slots(g: GraphArrays, route: Route) -> int:
    """Fill `route.slot`, the lowest that is free first; returns how many are needed at once."""
    _start(g, route)
    # `held` lists the free slots here, the last freed on top.
    free, slots = 0, 0
    for op in route.order:
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            if free > 0:
                free -= 1
                route.slot[tensor] = route.held[free]
            else:
                route.slot[tensor] = slots
                slots += 1
        for at in range(g.output_ptr[op], g.output_ptr[op + 1]):
            tensor = at if route.left[at] == 0 else NOBODY
            while tensor >= 0:
                route.held[free] = route.slot[tensor]
                free += 1
                tensor = g.alias_of[tensor]
                if tensor >= 0:
                    tensor = _dies(g, route, tensor)
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = _dies(g, route, g.inputs[at])
            while tensor >= 0:
                route.held[free] = route.slot[tensor]
                free += 1
                tensor = g.alias_of[tensor]
                if tensor >= 0:
                    tensor = _dies(g, route, tensor)
    return slots


@inlined
def _has(bits: Any, device: int) -> bool:
    found: bool = (bits >> np.uint64(device)) & np.uint64(1) != 0
    return found


@inlined
def _bytes_on(g: GraphArrays, tensor: int, home: int, device: int) -> int:
    """Return what a copy takes: a view takes nothing where it was made."""
    return 0 if g.alias_of[tensor] >= 0 and home == device else g.tensor_size[tensor]


@inlined
def _reachable(copies: Any, sent: Any, home: int) -> Any:
    """Return the devices that may read a tensor: those with a copy, and from its home those never sent one."""
    return copies | ~sent if _has(copies, home) else copies


@inlined
def _may_keep_only(
    g: GraphArrays, route: Route, step: int, copies: Any, sent: Any, home: Any, tensor: int, kept: Any
) -> bool:
    """Whether every op yet to read a tensor can still meet all its inputs if only `kept` copies remain."""
    slot = route.slot[tensor]
    mine = _reachable(kept, sent[slot] | kept, home[slot])
    for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
        reader = g.consumers[at]
        if route.place[reader] < step:
            continue
        meets = mine
        for i in range(g.input_ptr[reader], g.input_ptr[reader + 1]):
            other = g.inputs[i]
            if other != tensor and route.place[g.producer[other]] < step:
                s = route.slot[other]
                meets &= _reachable(copies[s], sent[s], home[s])
        if meets == 0:
            return False
    return True


@kernel
def place_op(
    g: GraphArrays,
    route: Route,
    slots: int,
    step: int,
    device: int,
    limit: int,
    share: int,
    copies: Any,
    sent: Any,
    home: Any,
    resident: Any,
    persistent: Any,
    top: Any,
    items: Any,
    targets: Any,
    written: int,
) -> tuple[int, int]:
    """Run the op of a step on a device in one state, in place: make room, send what it reads, run it.

    Tensors that die are removed afterwards. Steps are written to `items` and `targets` from `written` on
    unless these are empty.

    Returns
    -------
    tuple
        Bytes needed on the device, -1 if there is no room; how many steps are written.
    """
    op = route.order[step]
    bit = np.uint64(1) << np.uint64(device)
    record = items.size > 0
    fixed = max(persistent[device] + g.persistent[op], share)
    need = resident[device] + fixed + g.workspace[op]
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        need += _bytes_on(g, tensor, device, device)
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        slot = route.slot[g.inputs[at]]
        if not _has(copies[slot], device):
            need += g.tensor_size[g.inputs[at]]
    while need > limit:
        # Copies that another device has go first; of each kind the smallest that suffices, else the largest.
        chosen, best_kind, best_bytes, receiver = NOBODY, 0, 0, NOBODY
        over = need - limit
        for slot in range(slots):
            tensor = route.held[slot]
            if tensor < 0 or not _has(copies[slot], device) or route.has_views[tensor]:
                continue
            if g.is_final[tensor] and home[slot] == device:
                continue
            size = _bytes_on(g, tensor, home[slot], device)
            kind = 2 if copies[slot] != bit else 1
            if size == 0 or kind < best_kind or (kind == 1 and home[slot] != device):
                continue
            if kind == best_kind and not (
                (size >= over and (best_bytes < over or size < best_bytes)) or best_bytes < size < over
            ):
                continue
            is_input = False
            for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
                is_input = is_input or g.inputs[at] == tensor
            if is_input:
                continue
            target = NOBODY
            kept = copies[slot] & ~bit
            if kind == 1:
                for other in range(resident.size):
                    level = resident[other] + max(persistent[other], share)
                    if _has(sent[slot], other) or level + size > limit:
                        continue
                    if target < 0 or level < resident[target] + max(persistent[target], share):
                        target = other
                if target < 0:
                    continue
                kept = np.uint64(1) << np.uint64(target)
            if _may_keep_only(g, route, step, copies, sent, home, tensor, kept):
                chosen, best_kind, best_bytes, receiver = slot, kind, size, target
        if chosen < 0:
            return -1, written
        if receiver >= 0:
            tensor = route.held[chosen]
            there = np.uint64(1) << np.uint64(receiver)
            copies[chosen] |= there
            sent[chosen] |= there
            resident[receiver] += g.tensor_size[tensor]
            top[receiver] = max(top[receiver], resident[receiver])
            if record:
                items[written] = ~tensor
                targets[written] = receiver
            written += 1
        copies[chosen] &= ~bit
        resident[device] -= best_bytes
        need -= best_bytes
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[at]
        slot = route.slot[tensor]
        if not _has(copies[slot], device):
            copies[slot] |= bit
            sent[slot] |= bit
            resident[device] += g.tensor_size[tensor]
            if record:
                items[written] = ~tensor
                targets[written] = device
            written += 1
    if record:
        items[written] = op
        targets[written] = device
    written += 1
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        slot = route.slot[tensor]
        copies[slot] = bit
        sent[slot] = bit
        home[slot] = device
        resident[device] += _bytes_on(g, tensor, device, device)
    persistent[device] += g.persistent[op]
    top[device] = max(top[device], need - fixed)
    for other in range(resident.size):
        if top[other] + persistent[other] > limit:
            return -1, written
    return need, written


@inlined
def _retire(g: GraphArrays, slot: int, tensor: int, copies: Any, home: Any, resident: Any) -> None:
    for device in range(resident.size):
        if _has(copies[slot], device):
            resident[device] -= _bytes_on(g, tensor, home[slot], device)
    copies[slot] = 0


@kernel
def _begin_step(g: GraphArrays, route: Route, step: int, dead: Any) -> int:
    """Hold the outputs of a step's op and count down its inputs; `dead` receives the slots needed no more after it."""
    op = route.order[step]
    count = 0
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        route.held[route.slot[tensor]] = tensor
    for at in range(g.output_ptr[op], g.output_ptr[op + 1]):
        tensor = at if route.left[at] == 0 else NOBODY
        while tensor >= 0:
            dead[count] = route.slot[tensor]
            count += 1
            tensor = g.alias_of[tensor]
            if tensor >= 0:
                tensor = _dies(g, route, tensor)
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = _dies(g, route, g.inputs[at])
        while tensor >= 0:
            dead[count] = route.slot[tensor]
            count += 1
            tensor = g.alias_of[tensor]
            if tensor >= 0:
                tensor = _dies(g, route, tensor)
    return count


@inlined
def _comes_first(c: Choices, one: int, two: int) -> bool:
    is_first: bool = c.need[one] < c.need[two] or (c.need[one] == c.need[two] and c.tie[one] < c.tie[two])
    return is_first


@inlined
def _swap(c: Choices, one: int, two: int) -> None:
    need, tie, choice = c.need[one], c.tie[one], c.choice[one]
    c.need[one], c.tie[one], c.choice[one] = c.need[two], c.tie[two], c.choice[two]
    c.need[two], c.tie[two], c.choice[two] = need, tie, choice


@kernel
def _push(c: Choices, at: int) -> None:
    """Let the last entry of the heap rise."""
    while at > 0 and _comes_first(c, at, (at - 1) >> 1):
        _swap(c, at, (at - 1) >> 1)
        at = (at - 1) >> 1


@kernel
def _pop(c: Choices, count: int) -> int:
    """Move the first entry behind the heap's others, and return its choice."""
    _swap(c, 0, count - 1)
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count - 1:
            return int(c.choice[count - 1])
        if child + 1 < count - 1 and _comes_first(c, child + 1, child):
            child += 1
        if not _comes_first(c, child, at):
            return int(c.choice[count - 1])
        _swap(c, at, child)
        at = child


@inlined
def _hash(slots: int, copies: Any, sent: Any, home: Any, persistent: Any, zobrist: Any) -> Any:
    """Hash where everything that is needed is, and the persistent bytes."""
    total = np.uint64(0)
    for slot in range(slots):
        if copies[slot] != 0:
            mixed = (copies[slot] + zobrist[0]) * zobrist[1] ^ (sent[slot] + zobrist[2]) * zobrist[3]
            mixed = (mixed + np.uint64(home[slot]) + np.uint64(slot) * zobrist[4]) * zobrist[5]
            mixed ^= mixed >> np.uint64(29)
            total += mixed * zobrist[6]
    for device in range(persistent.size):
        mixed = (np.uint64(persistent[device]) + np.uint64(device) * zobrist[1]) * zobrist[5]
        total += (mixed ^ (mixed >> np.uint64(29))) * zobrist[6]
    return total ^ (total >> np.uint64(31))


@inlined
def _slot_of(c: Choices, hashes: Any, key: Any) -> Any:
    mask = np.uint64(c.table.size - 1)
    slot = key & mask
    while c.table[slot] >= 0 and hashes[c.table[slot]] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@inlined
def _copy_state(s: States, slots: int, now: int, state: int, row: int) -> None:
    """Copy a state of the present step to a row of the next."""
    for slot in range(slots):
        s.copies[1 - now, row, slot] = s.copies[now, state, slot]
        s.sent[1 - now, row, slot] = s.sent[now, state, slot]
        s.home[1 - now, row, slot] = s.home[now, state, slot]
    for device in range(s.resident.shape[2]):
        s.resident[1 - now, row, device] = s.resident[now, state, device]
        s.persistent[1 - now, row, device] = s.persistent[now, state, device]
        s.top[1 - now, row, device] = s.top[now, state, device]


@inlined
def _offer_choices(
    g: GraphArrays,
    route: Route,
    s: States,
    c: Choices,
    now: int,
    count: int,
    op: int,
    limit: int,
    share: int,
    devices: int,
    salt: Any,
) -> int:
    """Put every state's possible devices for an op on the heap; devices that nothing is on yet are alike."""
    made = g.workspace[op]
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        made += _bytes_on(g, tensor, 0, 0)
    entries = 0
    for state in range(count):
        for device in range(min(devices, s.used[now, state] + 1)):
            need = made + s.resident[now, state, device]
            need += max(s.persistent[now, state, device] + g.persistent[op], share)
            possible = True
            for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
                tensor = g.inputs[at]
                slot = route.slot[tensor]
                copies = s.copies[now, state, slot]
                if not _has(copies, device):
                    need += g.tensor_size[tensor]
                    possible = possible and _has(
                        _reachable(copies, s.sent[now, state, slot], s.home[now, state, slot]), device
                    )
            if possible:
                c.need[entries] = max(need, s.peak[now, state])
                c.tie[entries] = (s.hash[now, state] + np.uint64(device)) * salt
                c.choice[entries] = state * devices + device
                _push(c, entries)
                entries += 1
    return entries


@kernel
def start_beam(g: GraphArrays, route: Route, slots: int, s: States) -> None:
    """Begin with the one state in which no op has run."""
    _start(g, route)
    route.held[:] = NOBODY
    s.copies[0, 0, :slots] = 0
    s.resident[0, 0] = 0
    s.persistent[0, 0] = 0
    s.top[0, 0] = 0
    s.hash[0, 0] = 0
    s.peak[0, 0] = 0
    s.used[0, 0] = 0


@kernel
def extend_beam(
    g: GraphArrays,
    route: Route,
    slots: int,
    s: States,
    c: Choices,
    size: int,
    limit: int,
    share: int,
    zobrist: Any,
    dead: Any,
    first: int,
    last: int,
    count: int,
) -> tuple[int, int]:
    """Place the ops of the steps `first` to `last - 1` so that no device exceeds `limit` bytes.

    At each step every state takes the op to each device. Successors are ranked by the largest need so far,
    before anything makes room for it, ties at random; equal ones are collapsed and the first `size` kept.

    Parameters
    ----------
    g, route, slots
        The graph, the order, and how many slots its tensors take.
    s, c, dead
        States, choices and scratch; `dead` has room for every tensor.
    size
        States kept at each step.
    limit
        Bytes that each device may hold.
    share
        Bytes of every device set aside for persistent bytes of ops to come.
    zobrist
        Shape `(8,)`: random odd numbers, for hashes and ties.
    first, last, count
        The steps, and how many states there are before the first.

    Returns
    -------
    tuple
        How many states there are after the last step, 0 if the beam died; how many it expanded.
    """
    devices = s.resident.shape[2]
    nothing = dead[:0]
    now, expanded = first & 1, 0
    for step in range(first, last):
        op = route.order[step]
        expanded += count
        entries = _offer_choices(g, route, s, c, now, count, op, limit, share, devices, zobrist[7])
        dying = _begin_step(g, route, step, dead)
        c.table[:] = -1
        following = 1 - now
        kept = 0
        while entries > 0 and kept < size:
            state, device = divmod(_pop(c, entries), devices)
            entries -= 1
            _copy_state(s, slots, now, state, kept)
            need, _ = place_op(
                g, route, slots, step, device, limit, share, s.copies[following, kept], s.sent[following, kept],
                s.home[following, kept], s.resident[following, kept], s.persistent[following, kept],
                s.top[following, kept], nothing, nothing, 0,
            )  # fmt: skip
            if need < 0:
                continue
            for at in range(dying):
                _retire(g, dead[at], route.held[dead[at]], s.copies[following, kept], s.home[following, kept],
                        s.resident[following, kept])  # fmt: skip
            key = _hash(
                slots,
                s.copies[following, kept],
                s.sent[following, kept],
                s.home[following, kept],
                s.persistent[following, kept],
                zobrist,
            )
            place = _slot_of(c, s.hash[following], key)
            if c.table[place] >= 0:
                continue
            c.table[place] = kept
            s.hash[following, kept] = key
            s.peak[following, kept] = max(s.peak[now, state], need)
            s.used[following, kept] = max(s.used[now, state], device + 1)
            c.parent[step, kept] = state
            c.device[step, kept] = device
            kept += 1
        if kept == 0:
            return 0, expanded
        for at in range(dying):
            route.held[dead[at]] = NOBODY
        now, count = following, kept
    return count, expanded


@kernel
def trace_beam(
    g: GraphArrays,
    route: Route,
    slots: int,
    s: States,
    c: Choices,
    limit: int,
    share: int,
    dead: Any,
    count: int,
    items: Any,
    targets: Any,
) -> int:
    """Write the steps of the final state of least peak, as in `Schedule`; returns how many there are."""
    ops = g.runtime.size
    now = ops & 1
    least = 0
    for state in range(count):
        if s.peak[now, state] < s.peak[now, least]:
            least = state
    for step in range(ops - 1, -1, -1):
        before = c.parent[step, least]
        c.parent[step, 0] = c.device[step, least]
        least = before
    start_beam(g, route, slots, s)
    written = 0
    for step in range(ops):
        dying = _begin_step(g, route, step, dead)
        _, written = place_op(
            g, route, slots, step, c.parent[step, 0], limit, share, s.copies[0, 0], s.sent[0, 0], s.home[0, 0],
            s.resident[0, 0], s.persistent[0, 0], s.top[0, 0], items, targets, written,
        )  # fmt: skip
        for at in range(dying):
            _retire(g, dead[at], route.held[dead[at]], s.copies[0, 0], s.home[0, 0], s.resident[0, 0])
            route.held[dead[at]] = NOBODY
    return written
