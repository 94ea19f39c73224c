"""One op on one device in one state of a placement beam: make room, send what it reads, run it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...base.arrays import IntArray
from ..bits import bit_of, has_bit
from ..cost_model import Steps, write_step
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from .routes import NOBODY, Route

COPIED, ALONE = 2, 1
"""Kinds of tensors on a device: those that another has too, which go first, and those that it alone has."""


class Placed(NamedTuple):
    """A state: where everything is that is needed.

    Per slot: bits of the devices that have a `copies` of the tensor, of those that ever had one (`sent`), and the
    `home` that made it. Per device, bytes: `resident` tensors, `persistent` bytes, and the largest need so far
    (`top`).
    """

    copies: Any
    sent: Any
    home: Any
    resident: IntArray
    persistent: IntArray
    top: IntArray


class Limits(NamedTuple):
    """What a beam may take.

    It keeps `size` states at each step. Each device may hold so many bytes of `memory`, and a `share` of it is set
    aside for persistent bytes of ops to come; `are_alike` says whether devices may hold as much each.
    """

    size: int
    memory: IntArray
    share: int
    are_alike: bool


@inlined
def bytes_on(g: GraphArrays, tensor: int, home: int, device: int) -> Any:
    """Return what a copy takes: a view takes nothing where it was made."""
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


@inlined
def _send_inputs(g: GraphArrays, route: Route, op: int, device: int, p: Placed, steps: Steps, written: int) -> int:
    """Send a device what an op reads and it lacks; returns how many steps are written."""
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[at]
        slot = route.slot[tensor]
        if not has_bit(p.copies[slot], device):
            _receive(g, p, tensor, slot, device)
            written = write_step(steps, written, ~tensor, device)
    return written


@inlined
def _run(g: GraphArrays, route: Route, op: int, device: int, p: Placed) -> None:
    """Put an op's outputs and persistent bytes on its device."""
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        slot = route.slot[tensor]
        p.copies[slot] = bit_of(device)
        p.sent[slot] = bit_of(device)
        p.home[slot] = device
        p.resident[device] += bytes_on(g, tensor, device, device)
    p.persistent[device] += g.persistent[op]


@kernel
def place_op(
    g: GraphArrays, route: Route, step: int, device: int, limits: Limits, p: Placed, steps: Steps, written: int
) -> tuple[int, int]:
    """Run the op of a step on a device in one state, in place: make room, send what it reads, run it.

    Steps are written from the place `written` on if they are asked for. What the op is the last to need stays:
    see `retire`.
    """
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
    written = _send_inputs(g, route, op, device, p, steps, written)
    written = write_step(steps, written, op, device)
    _run(g, route, op, device, p)
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
