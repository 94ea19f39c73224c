"""A sequence of runs whose price follows each edit: the bytes of those buffers alone are found anew that it touches.

Which buffers a group of tensors has, and from when to when, depends only on where the runs stand that make or read its
tensors; the rules are those of `core.costs.unrolled`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import BoolArray, IndexArray, IntArray
from ..jit import inlined, kernel
from .runs import RunGraph
from .tensor_groups import Groups

MOST_TIMES = 8
"""How often an op may run."""


class Sequence(NamedTuple):
    """A sequence of runs, and the bytes that each takes.

    Parameters
    ----------
    length
        Shape `(1,)`: how many runs.
    items, number, memory
        Shape `(capacity,)`: per run its op, which of its op's runs it is, and bytes.
    times, places
        Shapes `(ops,)` and `(ops, MOST_TIMES)`: how often each op runs, and where, ascending.
    old_length, old_items, old_number, old_memory
        As they were before the edit.
    edited, is_edited
        The groups whose bytes are left out of `memory` during an edit, how many in the last place; whether each is.
    here, events, first, last, is_kept
        Scratch of one group: per tensor its buffer; the runs that touch it; per buffer from when to when it is there.
    """

    length: IndexArray
    items: IndexArray
    number: IndexArray
    memory: IntArray
    times: IndexArray
    places: IndexArray
    old_length: IndexArray
    old_items: IndexArray
    old_number: IndexArray
    old_memory: IntArray
    edited: IndexArray
    is_edited: BoolArray
    here: IndexArray
    events: IndexArray
    first: IndexArray
    last: IndexArray
    is_kept: BoolArray


def new_sequence(g: RunGraph, groups: Groups, capacity: int) -> Sequence:
    """Allocate room for a sequence of at most `capacity` runs."""
    ops, count, index = g.runtime.size, len(groups.tensor_ptr) - 1, np.int32
    empty = [np.zeros(capacity, index) for _ in range(7)]
    return Sequence(
        np.zeros(1, index),
        empty[0],
        empty[1],
        np.zeros(capacity, np.int64),
        np.zeros(ops, index),
        np.zeros((ops, MOST_TIMES), index),
        np.zeros(1, index),
        empty[2],
        empty[3],
        np.zeros(capacity, np.int64),
        np.zeros(count + 1, index),
        np.zeros(count, np.bool_),
        np.zeros(g.size.size, index),
        empty[4],
        empty[5],
        empty[6],
        np.zeros(capacity, np.bool_),
    )


@kernel
def set_sequence(g: RunGraph, groups: Groups, s: Sequence, items: IndexArray) -> bool:
    """Take over a sequence and find its bytes; whether it is valid and no op runs too often."""
    s.times[:] = 0
    s.length[0] = items.size
    for step in range(items.size):
        op = items[step]
        if s.times[op] == MOST_TIMES:
            return False
        s.items[step] = op
        s.number[step] = s.times[op]
        s.places[op, s.times[op]] = step
        s.times[op] += 1
        s.memory[step] = g.persistent + g.workspace[op]
    for op in range(g.runtime.size):
        if not _keeps_control(g, s, op):
            return False
    is_valid = True
    for group in range(s.is_edited.size):
        is_valid = is_valid and _add_group(g, groups, s, group, 1)
    return is_valid


@kernel
def begin(s: Sequence) -> None:
    """Begin an edit."""
    s.old_length[0] = s.length[0]
    s.edited[s.is_edited.size] = 0
    for step in range(s.length[0]):
        s.old_items[step] = s.items[step]
        s.old_number[step] = s.number[step]
        s.old_memory[step] = s.memory[step]


@kernel
def undo(s: Sequence) -> None:
    """Take an edit back."""
    for step in range(s.length[0]):
        s.times[s.items[step]] = 0
    s.length[0] = s.old_length[0]
    for step in range(s.length[0]):
        op = s.old_items[step]
        s.items[step] = op
        s.number[step] = s.old_number[step]
        s.memory[step] = s.old_memory[step]
        s.places[op, s.number[step]] = step
        s.times[op] = max(s.times[op], s.number[step] + 1)
    for k in range(s.edited[s.is_edited.size]):
        s.is_edited[s.edited[k]] = False


@kernel
def finish(g: RunGraph, groups: Groups, s: Sequence) -> bool:
    """End an edit and find the bytes of what it touched; whether the sequence is valid (else it is to be undone)."""
    for k in range(s.edited[s.is_edited.size]):
        if not _add_group(g, groups, s, s.edited[k], 1):
            return False
    for k in range(s.edited[s.is_edited.size]):
        s.is_edited[s.edited[k]] = False
    return True


@kernel
def insert_run(g: RunGraph, groups: Groups, s: Sequence, op: int, step: int) -> bool:
    """Insert a run before another one; False if its op would run too often, or control edges forbid it."""
    length = s.length[0]
    if s.times[op] == MOST_TIMES or length == s.items.size:
        return False
    _leave_out(g, groups, s, op)
    after = s.items[step]
    memory = s.memory[step] - g.workspace[after] + g.workspace[op]
    for k in range(g.made_ptr[after], g.made_ptr[after + 1]):
        tensor = g.made[k]
        if g.alias[tensor] < 0 and not s.is_edited[groups.group[tensor]]:
            memory -= g.size[tensor]
    for later in range(length, step, -1):
        other = s.items[later - 1]
        s.items[later] = other
        s.number[later] = s.number[later - 1]
        s.memory[later] = s.memory[later - 1]
        s.places[other, s.number[later]] = later
    number = s.times[op]
    while number > 0 and s.places[op, number - 1] > step:
        s.places[op, number] = s.places[op, number - 1]
        s.number[s.places[op, number]] = number
        number -= 1
    s.places[op, number] = step
    s.times[op] += 1
    s.items[step] = op
    s.number[step] = number
    s.memory[step] = memory
    s.length[0] = length + 1
    return _keeps_control(g, s, op)


@kernel
def delete_run(g: RunGraph, groups: Groups, s: Sequence, step: int) -> None:
    """Take out a run of an op that runs several times."""
    op = s.items[step]
    _leave_out(g, groups, s, op)
    s.times[op] -= 1
    for number in range(s.number[step], s.times[op]):
        s.places[op, number] = s.places[op, number + 1]
        s.number[s.places[op, number]] = number
    s.length[0] -= 1
    for later in range(step, s.length[0]):
        other = s.items[later + 1]
        s.items[later] = other
        s.number[later] = s.number[later + 1]
        s.memory[later] = s.memory[later + 1]
        s.places[other, s.number[later]] = later


@kernel
def shift_run(g: RunGraph, groups: Groups, s: Sequence, step: int, place: int) -> None:
    """Let a run stand at another place; between the two no run of its op may be."""
    op, number = s.items[step], s.number[step]
    _leave_out(g, groups, s, op)
    beside = s.items[place] if place < step else (s.items[place + 1] if place + 1 < s.length[0] else -1)
    memory = g.workspace[op]
    if beside >= 0:
        memory += s.memory[place if place < step else place + 1] - g.workspace[beside]
        for k in range(g.made_ptr[beside], g.made_ptr[beside + 1]):
            tensor = g.made[k]
            if g.alias[tensor] < 0 and not s.is_edited[groups.group[tensor]]:
                memory -= g.size[tensor]
    else:  # at the end: what is there after the last run
        memory += _bytes_at_end(g, groups, s)
    direction = -1 if place < step else 1
    at = step
    while at != place:
        other = s.items[at + direction]
        s.items[at] = other
        s.number[at] = s.number[at + direction]
        s.memory[at] = s.memory[at + direction]
        s.places[other, s.number[at]] = at
        at += direction
    s.items[place] = op
    s.number[place] = number
    s.memory[place] = memory
    s.places[op, number] = place


@kernel
def _bytes_at_end(g: RunGraph, groups: Groups, s: Sequence) -> int:
    """Return what stays after the last run, of all groups that are not left out."""
    total = g.persistent
    for group in range(s.is_edited.size):
        if not s.is_edited[group]:
            for k in range(groups.tensor_ptr[group], groups.tensor_ptr[group + 1]):
                if g.is_final[groups.tensors[k]]:
                    total += _final_bytes(g, groups, s, group)
                    break
    return total


@kernel
def _final_bytes(g: RunGraph, groups: Groups, s: Sequence, group: int) -> int:
    buffers = _replay(g, groups, s, group)
    kept = 0
    for buffer in range(buffers):
        if s.is_kept[buffer]:
            kept += 1
    return kept * int(g.size[groups.tensors[groups.tensor_ptr[group]]])


@kernel
def is_read(g: RunGraph, groups: Groups, s: Sequence, step: int) -> bool:
    """Whether a run is read, or the last of an op that makes something final."""
    op, number = s.items[step], s.number[step]
    end = s.length[0]
    if number + 1 < s.times[op]:
        end = s.places[op, number + 1] + 1
    else:
        for k in range(g.made_ptr[op], g.made_ptr[op + 1]):
            if g.is_final[g.made[k]]:
                return True
    for k in range(groups.user_ptr[op], groups.user_ptr[op + 1]):
        user = groups.users[k]
        for number in range(s.times[user]):
            if step < s.places[user, number] < end:
                return True
    return False


@kernel
def _keeps_control(g: RunGraph, s: Sequence, op: int) -> bool:
    """Whether all runs of an op come after those it waits for, and before those that wait for it."""
    for k in range(g.wait_ptr[op], g.wait_ptr[op + 1]):
        other = g.waits[k]
        if s.places[other, s.times[other] - 1] > s.places[op, 0]:
            return False
    for k in range(g.follow_ptr[op], g.follow_ptr[op + 1]):
        if s.places[g.follows[k], 0] < s.places[op, s.times[op] - 1]:
            return False
    return True


@kernel
def _leave_out(g: RunGraph, groups: Groups, s: Sequence, op: int) -> None:
    """Take the bytes of all that an op touches out of the memory, until the edit ends."""
    count = s.is_edited.size
    for k in range(groups.touch_ptr[op], groups.touch_ptr[op + 1]):
        group = groups.touches[k]
        if not s.is_edited[group]:
            s.is_edited[group] = True
            s.edited[s.edited[count]] = group
            s.edited[count] += 1
            _add_group(g, groups, s, group, -1)


@kernel
def _add_group(g: RunGraph, groups: Groups, s: Sequence, group: int, sign: int) -> bool:
    """Add or subtract the bytes of a group; False if a run comes before its input."""
    buffers = _replay(g, groups, s, group)
    size = sign * g.size[groups.tensors[groups.tensor_ptr[group]]]
    if buffers >= 0 and size != 0:
        for buffer in range(buffers):
            end = s.length[0] if s.is_kept[buffer] else s.last[buffer] + 1
            for step in range(s.first[buffer], end):
                s.memory[step] += size
    return buffers >= 0


@kernel
def _replay(g: RunGraph, groups: Groups, s: Sequence, group: int) -> int:
    """Find the buffers of a group; returns how many, -1 if a run comes before its input."""
    for k in range(groups.tensor_ptr[group], groups.tensor_ptr[group + 1]):
        s.here[groups.tensors[k]] = -1
    buffers = 0
    for event in range(_gather(groups, s, group)):
        step = s.events[event]
        op = s.items[step]
        for k in range(g.read_ptr[op], g.read_ptr[op + 1]):
            tensor = g.reads[k]
            if groups.group[tensor] == group:
                buffer = s.here[tensor]
                if buffer < 0:
                    return -1
                s.last[buffer] = step
        is_last = s.number[step] + 1 == s.times[op]
        for k in range(g.made_ptr[op], g.made_ptr[op + 1]):
            tensor = g.made[k]
            if groups.group[tensor] != group:
                continue
            if g.alias[tensor] >= 0:
                buffer = s.here[g.alias[tensor]]
            else:
                buffer = buffers
                buffers += 1
                s.first[buffer] = step
                s.is_kept[buffer] = False
            s.last[buffer] = step
            if g.is_final[tensor] and is_last:
                s.is_kept[buffer] = True
            s.here[tensor] = buffer
    return buffers


@kernel
def _gather(groups: Groups, s: Sequence, group: int) -> int:
    """Collect the runs that touch a group, in their order."""
    count = 0
    for k in range(groups.member_ptr[group], groups.member_ptr[group + 1]):
        op = groups.members[k]
        for number in range(s.times[op]):
            step = s.places[op, number]
            at = count
            while at > 0 and s.events[at - 1] > step:
                s.events[at] = s.events[at - 1]
                at -= 1
            s.events[at] = step
            count += 1
    return count


@inlined
def excess_of(s: Sequence, limit: int) -> Any:
    """Return the bytes above a limit, summed over the runs."""
    total = np.int64(0)
    for step in range(s.length[0]):
        total += max(np.int64(0), s.memory[step] - limit)
    return total
