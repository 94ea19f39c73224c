"""A beam over the placements of an order's ops under a limit: the copies that do not fit are dropped or moved.

All states at a step agree on which ops have run; one says where each tensor that is still needed has copies. They stay
while there is room. When a device lacks room it drops copies that another device has too, then sends away tensors that
it alone has (a transfer made early). A state dies only when nothing that could go makes room.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, IndexArray, IntArray
from ..bits import bit_of, has_bit
from ..cost_model import Steps, write_step
from ..graph_arrays import GraphArrays
from ..hash_table import slot_of
from ..heap import pop, push
from ..jit import inlined, kernel

NOBODY = -1


class Route(NamedTuple):
    """The tensors along an order, in slots for as long as they are needed: shared by the states of a step."""

    order: IndexArray
    place: IndexArray  # per op
    # Per tensor: its slot in a state while it is needed, how many readers and views are left, and if it has views
    slot: IndexArray
    left: IndexArray
    has_views: BoolArray
    held: IndexArray  # per slot: the tensor there now
    dead: IndexArray  # slots that a step empties


def new_route(g: GraphArrays, order: Any) -> tuple[Route, int]:
    """Give every tensor a slot for as long as it is needed along an order; returns how many slots there are."""
    ops, tensors = len(g.runtime), len(g.tensor_size)
    has_views = np.zeros(tensors, np.bool_)
    has_views[g.alias_of[g.alias_of >= 0]] = True
    route = Route(
        order=np.array(order, np.int32),
        place=np.empty(ops, np.int32),
        slot=np.empty(tensors, np.int32),
        left=np.empty(tensors, np.int32),
        has_views=has_views,
        held=np.empty(max(1, tensors), np.int32),
        dead=np.empty(tensors, np.int32),
    )
    route.place[route.order] = np.arange(ops, dtype=np.int32)
    return route, max(1, int(assign_slots(g, route)))


@inlined
def start_route(g: GraphArrays, route: Route) -> None:
    """Before the first op: readers and views of each tensor are all left."""
    for tensor in range(g.tensor_size.size):
        route.left[tensor] = g.consumer_ptr[tensor + 1] - g.consumer_ptr[tensor] + g.is_final[tensor]
    for tensor in range(g.tensor_size.size):
        if g.alias_of[tensor] >= 0:
            route.left[g.alias_of[tensor]] += 1


@inlined
def _free(g: GraphArrays, route: Route, tensor: int, freed: Any, count: int) -> int:
    """Append to `freed` the slots of an unneeded tensor and those it was the last view of; returns their number."""
    while tensor >= 0:
        freed[count] = route.slot[tensor]
        count += 1
        tensor = g.alias_of[tensor]
        if tensor >= 0:
            route.left[tensor] -= 1
            if route.left[tensor] > 0:
                tensor = NOBODY
    return count


@inlined
def free_after(g: GraphArrays, route: Route, op: int, freed: Any, count: int) -> int:
    """Append to `freed` the slots that an op empties once it has run; return how many there are then."""
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        if route.left[tensor] == 0:
            count = _free(g, route, tensor, freed, count)
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[at]
        route.left[tensor] -= 1
        if route.left[tensor] == 0:
            count = _free(g, route, tensor, freed, count)
    return count


@kernel
def assign_slots(g: GraphArrays, route: Route) -> int:
    """Fill `route.slot`, the one freed last first; returns how many are needed at once."""
    start_route(g, route)
    # `held` lists the free slots here.
    free, slots = 0, 0
    for op in route.order:
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            if free > 0:
                free -= 1
                route.slot[tensor] = route.held[free]
            else:
                route.slot[tensor] = slots
                slots += 1
        free = free_after(g, route, op, route.held, free)
    return slots


@kernel
def begin_step(g: GraphArrays, route: Route, step: int) -> int:
    """Hold the outputs of a step's op, count down its inputs, list emptied slots in `dead`; returns how many."""
    op = route.order[step]
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        route.held[route.slot[tensor]] = tensor
    return free_after(g, route, op, route.dead, 0)


@kernel
def end_step(route: Route, dying: int) -> None:
    """Empty the slots that a step lists in `dead`."""
    for at in range(dying):
        route.held[route.dead[at]] = NOBODY


COPIED, ALONE = 2, 1  # kinds of tensors on a device: another has it too, which goes first, or it alone has it


class Placed(NamedTuple):
    """A state: where everything is that is needed."""

    # Per slot: bits of the devices with a copy of the tensor, of those that ever had one, and the home that made it
    copies: Any
    sent: Any
    home: Any
    resident: IntArray  # per device, bytes: tensors there now, persistent, and the largest need so far
    persistent: IntArray
    top: IntArray


class Limits(NamedTuple):
    """Limits of a beam."""

    size: int  # states at each step
    memory: IntArray  # bytes per device
    share: int  # of them, set aside for persistent bytes of ops to come
    are_alike: bool  # devices may hold as much each


@inlined
def bytes_on(g: GraphArrays, tensor: int, home: int, device: int) -> Any:
    """Return the bytes of a copy: a view takes nothing where it was made."""
    return 0 if g.alias_of[tensor] >= 0 and home == device else g.tensor_size[tensor]


@inlined
def may_read(copies: Any, sent: Any, home: int) -> Any:
    """Return the devices that may read a tensor: those with a copy, and from its home those never sent one."""
    return copies | ~sent if has_bit(copies, home) else copies


@inlined
def need_of(g: GraphArrays, route: Route, op: int, device: int, copies: Any) -> Any:
    """Return the bytes that an op adds to a device while it runs: outputs, workspace, and the inputs not there yet."""
    need = g.workspace[op]
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        need += bytes_on(g, tensor, device, device)
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        if not has_bit(copies[route.slot[g.inputs[at]]], device):
            need += g.tensor_size[g.inputs[at]]
    return need


@inlined
def _may_keep_only(g: GraphArrays, route: Route, step: int, p: Placed, tensor: int, kept: Any) -> bool:
    """Whether every op yet to read a tensor can still meet all its inputs if only `kept` copies remain."""
    slot = route.slot[tensor]
    mine = may_read(kept, p.sent[slot] | kept, p.home[slot])
    for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
        reader = g.consumers[at]
        if route.place[reader] < step:
            continue
        meets = mine
        for i in range(g.input_ptr[reader], g.input_ptr[reader + 1]):
            other = g.inputs[i]
            if other != tensor and route.place[g.producer[other]] < step:
                s = route.slot[other]
                meets &= may_read(p.copies[s], p.sent[s], p.home[s])
        if meets == 0:
            return False
    return True


@inlined
def _emptiest(p: Placed, limits: Limits, slot: int, size: int) -> int:
    """Return the device of least level that has room for a tensor and was never sent it, or NOBODY."""
    found, least = NOBODY, 0
    for device in range(p.resident.size):
        level = p.resident[device] + max(p.persistent[device], limits.share)
        fits = not has_bit(p.sent[slot], device) and level + size <= limits.memory[device]
        if fits and (found < 0 or level < least):
            found, least = device, level
    return found


@inlined
def _goes_first(kind: int, size: int, best_kind: int, best_size: int, over: int) -> bool:
    """Whether one tensor should rather go than another: of each kind the smallest that suffices, else the largest."""
    if kind != best_kind:
        return kind > best_kind
    if size >= over:
        return best_size < over or size < best_size
    return best_size < size


@inlined
def _reads(g: GraphArrays, op: int, tensor: int) -> bool:
    """Whether an op reads a tensor."""
    found = False
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        found = found or g.inputs[at] == tensor
    return found


@inlined
def _best_to_drop(
    g: GraphArrays, route: Route, step: int, device: int, limits: Limits, p: Placed, over: int
) -> tuple[int, int]:
    """Return the slot that best goes from a device that lacks `over` bytes, and the device that it is sent to."""
    chosen, receiver, best_kind, best_size = NOBODY, NOBODY, 0, 0
    for slot in range(p.copies.size):
        tensor = route.held[slot]
        if tensor < 0 or not has_bit(p.copies[slot], device) or route.has_views[tensor]:
            continue
        if g.is_final[tensor] and p.home[slot] == device:
            continue
        size = bytes_on(g, tensor, p.home[slot], device)
        kind = COPIED if p.copies[slot] != bit_of(device) else ALONE
        if size == 0 or (kind == ALONE and p.home[slot] != device):
            continue
        if not _goes_first(kind, size, best_kind, best_size, over) or _reads(g, route.order[step], tensor):
            continue
        target = NOBODY
        kept = p.copies[slot] & ~bit_of(device)
        if kind == ALONE:
            target = _emptiest(p, limits, slot, size)
            if target < 0:
                continue
            kept = bit_of(target)
        if _may_keep_only(g, route, step, p, tensor, kept):
            chosen, receiver, best_kind, best_size = slot, target, kind, size
    return chosen, receiver


@inlined
def _receive(g: GraphArrays, p: Placed, tensor: int, slot: int, device: int) -> None:
    """Put a copy of a tensor on a device."""
    p.copies[slot] |= bit_of(device)
    p.sent[slot] |= bit_of(device)
    p.resident[device] += g.tensor_size[tensor]


@kernel
def place_op(
    g: GraphArrays, route: Route, step: int, device: int, limits: Limits, p: Placed, steps: Steps, written: int
) -> tuple[int, int]:
    """Run the op of a step on a device in one state: make room, send its missing inputs; those read last stay."""
    op = route.order[step]
    fixed = max(p.persistent[device] + g.persistent[op], limits.share)
    need = p.resident[device] + fixed + need_of(g, route, op, device, p.copies)
    while need > limits.memory[device]:
        slot, receiver = _best_to_drop(g, route, step, device, limits, p, need - limits.memory[device])
        if slot < 0:
            return -1, written
        tensor = route.held[slot]
        if receiver >= 0:
            _receive(g, p, tensor, slot, receiver)
            p.top[receiver] = max(p.top[receiver], p.resident[receiver])
            written = write_step(steps, written, ~tensor, receiver)
        size = bytes_on(g, tensor, p.home[slot], device)
        p.copies[slot] &= ~bit_of(device)
        p.resident[device] -= size
        need -= size
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        read = g.inputs[at]
        if not has_bit(p.copies[route.slot[read]], device):
            _receive(g, p, read, route.slot[read], device)
            written = write_step(steps, written, ~read, device)
    written = write_step(steps, written, op, device)
    for made in range(g.output_ptr[op], g.output_ptr[op + 1]):
        own = route.slot[made]
        p.copies[own] = bit_of(device)
        p.sent[own] = bit_of(device)
        p.home[own] = device
        p.resident[device] += bytes_on(g, made, device, device)
    p.persistent[device] += g.persistent[op]
    p.top[device] = max(p.top[device], need - fixed)
    for other in range(p.resident.size):
        if p.top[other] + p.persistent[other] > limits.memory[other]:
            return -1, written
    return need, written


@inlined
def retire(g: GraphArrays, route: Route, dying: int, p: Placed) -> None:
    """Remove from a state the tensors that a step needs no more: the first `dying` of `route.dead`."""
    for at in range(dying):
        slot = route.dead[at]
        for device in range(p.resident.size):
            if has_bit(p.copies[slot], device):
                p.resident[device] -= bytes_on(g, route.held[slot], p.home[slot], device)
        p.copies[slot] = 0


class States(NamedTuple):
    """States of two steps, a row each, those of even steps first."""

    placed: Placed
    hash: Any
    peak: IntArray  # the largest need so far, bytes
    used: IndexArray  # how many devices are


class Choices(NamedTuple):
    """A step's successors, `state * devices + device`, and the parents of those kept."""

    need: IntArray  # bytes
    tie: Any  # random
    heap: IndexArray
    table: IndexArray  # hash table of the successors kept
    parent: IndexArray  # per step and state what it came by
    device: Any
    numbers: Any  # eight random odd ones, for hashes and ties


def new_states(size: int, slots: int, devices: int) -> States:
    """Allocate two steps of a beam."""
    by_slot = (np.empty((2, size, slots), kind) for kind in (np.uint64, np.uint64, np.uint8))
    by_device = (np.empty((2, size, devices), np.int64) for _ in range(3))
    placed = Placed(*by_slot, *by_device)
    return States(placed, np.empty((2, size), np.uint64), np.empty((2, size), np.int64), np.empty((2, size), np.int32))


def new_choices(size: int, ops: int, devices: int) -> Choices:
    """Allocate the heap, the table and the links back; the random numbers are to be drawn."""
    return Choices(
        need=np.empty(size * devices, np.int64),
        tie=np.empty(size * devices, np.uint64),
        heap=np.empty(size * devices, np.int32),
        table=np.empty(1 << (2 * size).bit_length(), np.int32),
        parent=np.empty((ops, size), np.int32),
        device=np.empty((ops, size), np.uint8),
        numbers=np.empty(8, np.uint64),
    )


@inlined
def _placed(s: States, level: int, row: int) -> Placed:
    """Return a state."""
    p = s.placed
    at = level, row
    return Placed(p.copies[at], p.sent[at], p.home[at], p.resident[at], p.persistent[at], p.top[at])


@inlined
def _copy(state: Placed, to: Placed) -> None:
    """Copy a state."""
    for slot in range(state.copies.size):
        to.copies[slot] = state.copies[slot]
        to.sent[slot] = state.sent[slot]
        to.home[slot] = state.home[slot]
    for device in range(state.resident.size):
        to.resident[device] = state.resident[device]
        to.persistent[device] = state.persistent[device]
        to.top[device] = state.top[device]


@inlined
def _hash(p: Placed, numbers: Any) -> Any:
    """Hash where everything that is needed is, and the persistent bytes."""
    total = np.uint64(0)
    for slot in range(p.copies.size):
        if p.copies[slot] != 0:
            mixed = (p.copies[slot] + numbers[0]) * numbers[1] ^ (p.sent[slot] + numbers[2]) * numbers[3]
            mixed = (mixed + np.uint64(p.home[slot]) + np.uint64(slot) * numbers[4]) * numbers[5]
            mixed ^= mixed >> np.uint64(29)
            total += mixed * numbers[6]
    for device in range(p.persistent.size):
        mixed = (np.uint64(p.persistent[device]) + np.uint64(device) * numbers[1]) * numbers[5]
        total += (mixed ^ (mixed >> np.uint64(29))) * numbers[6]
    return total ^ (total >> np.uint64(31))


@inlined
def _needs_less(c: Choices, one: int, two: int) -> bool:
    """Order successors for the heap."""
    return bool(c.need[one] < c.need[two] or (c.need[one] == c.need[two] and c.tie[one] < c.tie[two]))


@kernel
def start_beam(g: GraphArrays, route: Route, s: States) -> None:
    """Begin with the one state in which no op has run."""
    start_route(g, route)
    route.held[:] = NOBODY
    p = _placed(s, 0, 0)
    p.copies[:] = 0
    p.resident[:] = 0
    p.persistent[:] = 0
    p.top[:] = 0
    s.hash[0, 0] = 0
    s.peak[0, 0] = 0
    s.used[0, 0] = 0


@kernel
def _extend(
    g: GraphArrays, route: Route, s: States, c: Choices, limits: Limits, step: int, count: int, dying: int
) -> int:
    """Fill the states of the next step from the `count` of this one; returns how many there are."""
    now, devices = step & 1, s.placed.resident.shape[2]
    following = 1 - now
    nothing = Steps(route.dead[:0], route.dead[:0])
    none_written: Any = np.int64(0)  # of one type with what `trace_beam` gives, so that `place_op` is compiled once
    op, entries = route.order[step], 0
    for state in range(count):  # on the heap go all possible devices; those that nothing is on yet are alike
        p = _placed(s, now, state)
        for device in range(min(devices, s.used[now, state] + 1) if limits.are_alike else devices):
            is_possible = True
            for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
                read = route.slot[g.inputs[at]]
                is_possible = is_possible and has_bit(may_read(p.copies[read], p.sent[read], p.home[read]), device)
            if is_possible:
                fixed = max(p.persistent[device] + g.persistent[op], limits.share)
                least = p.resident[device] + fixed + need_of(g, route, op, device, p.copies)
                choice = state * devices + device
                c.need[choice] = max(least, s.peak[now, state])
                c.tie[choice] = (s.hash[now, state] + np.uint64(device)) * c.numbers[7]
                entries = push(c.heap, entries, choice, c, _needs_less)
    c.table[:] = -1
    kept = 0
    while entries > 0 and kept < limits.size:
        state, device = divmod(c.heap[0], devices)
        entries = pop(c.heap, entries, c, _needs_less)
        p = _placed(s, following, kept)
        _copy(_placed(s, now, state), p)
        need, _ = place_op(g, route, step, device, limits, p, nothing, none_written)
        if need < 0:
            continue
        retire(g, route, dying, p)
        key = _hash(p, c.numbers)
        slot = slot_of(c.table, s.hash[following], key)
        if c.table[slot] >= 0:
            continue
        c.table[slot] = kept
        s.hash[following, kept] = key
        s.peak[following, kept] = max(s.peak[now, state], need)
        s.used[following, kept] = max(s.used[now, state], device + 1)
        c.parent[step, kept] = state
        c.device[step, kept] = device
        kept += 1
    return kept


@kernel
def extend_beam(
    g: GraphArrays, route: Route, s: States, c: Choices, limits: Limits, first: int, last: int, count: int
) -> tuple[int, int]:
    """Place the ops of some steps on all devices from all states; the least needs so far are kept, ties at random."""
    expanded = 0
    for step in range(first, last):
        expanded += count
        dying = begin_step(g, route, step)
        count = _extend(g, route, s, c, limits, step, count, dying)
        if count == 0:
            break
        end_step(route, dying)
    return count, expanded


@kernel
def trace_beam(g: GraphArrays, route: Route, s: States, c: Choices, limits: Limits, count: int, steps: Steps) -> int:
    """Write the steps of the final state of least peak; returns how many there are."""
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
    start_beam(g, route, s)
    p = _placed(s, 0, 0)
    written: Any = np.int64(0)
    for step in range(ops):
        dying = begin_step(g, route, step)
        device: Any = np.int64(c.parent[step, 0])
        _, written = place_op(g, route, step, device, limits, p, steps, written)
        retire(g, route, dying, p)
        end_step(route, dying)
    return int(written)
