"""Edits of a sequence of runs: the bytes of those buffers alone are found anew that an edit touches."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.arrays import IndexArray
from ..jit import kernel
from .run_bytes import MOST_TIMES, Sequence, add_group, bytes_at_end, excess_between
from .runs import RunGraph
from .tensor_groups import Groups

PLUS, MINUS, START = np.int64(1), np.int64(-1), np.int64(0)  # typed as variables are: literals compile callees anew


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
        if not _keeps_control(g, s, np.int32(op)):
            return False
    is_valid = True
    for group in range(s.is_edited.size):
        is_valid = is_valid and add_group(g, groups, s, np.int32(group), PLUS, START, s.items.size)
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
    low, end = 0, min(s.length[0], s.old_length[0])
    while low < end and s.items[low] == s.old_items[low]:
        low += 1
    for step in range(low, s.length[0]):
        op = s.items[step]
        s.times[op] = min(s.times[op], s.number[step])
    s.length[0] = s.old_length[0]
    for step in range(low, s.length[0]):
        op = s.old_items[step]
        s.items[step] = op
        s.number[step] = s.old_number[step]
        s.places[op, s.number[step]] = step
        s.times[op] = max(s.times[op], s.number[step] + 1)
    for step in range(s.length[0]):
        s.memory[step] = s.old_memory[step]
    for k in range(s.edited[s.is_edited.size]):
        s.is_edited[s.edited[k]] = False


@kernel
def finish(g: RunGraph, groups: Groups, s: Sequence) -> bool:
    """End an edit and find the bytes of what it touched; whether the sequence is valid (else it is to be undone)."""
    for k in range(s.edited[s.is_edited.size]):
        if not add_group(g, groups, s, s.edited[k], PLUS, START, s.items.size):
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
def delete_run(g: RunGraph, groups: Groups, s: Sequence, step: Any) -> None:
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
def shift_run(g: RunGraph, groups: Groups, s: Sequence, step: int, place: int, limit: int) -> Any:
    """Let a run stand at another place; returns by how much the bytes above a limit rise, summed over the runs."""
    # No run of its op, nor of one that reads it or that it reads or waits for, may be between the two places: so it is
    # no edit to be begun, the sequence stays valid, and no other run has other bytes.
    op, number = s.items[step], s.number[step]
    low, high = min(step, place), max(step, place) + 1
    rise = -excess_between(s, limit, low, high)
    for k in range(groups.touch_ptr[op], groups.touch_ptr[op + 1]):
        s.is_edited[groups.touches[k]] = True
        add_group(g, groups, s, groups.touches[k], MINUS, low, high + 1)  # the run behind is looked at below
    beside = s.items[place] if place < step else (s.items[place + 1] if place + 1 < s.length[0] else -1)
    memory = g.workspace[op]
    if beside >= 0:
        memory += s.memory[place if place < step else place + 1] - g.workspace[beside]
        for k in range(g.made_ptr[beside], g.made_ptr[beside + 1]):
            tensor = g.made[k]
            if g.alias[tensor] < 0 and not s.is_edited[groups.group[tensor]]:
                memory -= g.size[tensor]
    else:  # at the end: what is there after the last run
        memory += bytes_at_end(g, groups, s)
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
    for k in range(groups.touch_ptr[op], groups.touch_ptr[op + 1]):
        s.is_edited[groups.touches[k]] = False
        add_group(g, groups, s, groups.touches[k], PLUS, low, high + 1)
    return rise + excess_between(s, limit, low, high)


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
def _keeps_control(g: RunGraph, s: Sequence, op: Any) -> bool:
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
            add_group(g, groups, s, group, MINUS, START, s.items.size)
