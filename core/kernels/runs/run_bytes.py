"""The bytes of a group of tensors, from where the runs stand that touch it, by the rules of `core.model.unrolled`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, IndexArray, IntArray
from ..jit import inlined, kernel
from .runs import RunGraph
from .tensor_groups import Groups

MOST_TIMES = 8  # how often an op may run


class Sequence(NamedTuple):
    """A sequence of runs, and the bytes that each takes."""

    length: IndexArray  # shape `(1,)`: how many runs
    # items, number, memory: shape `(capacity,)`: per run its op, which of its op's runs it is, and bytes
    items: IndexArray
    number: IndexArray
    memory: IntArray
    # times, places: shapes `(ops,)` and `(ops, MOST_TIMES)`: how often each op runs, and where, ascending
    times: IndexArray
    places: IndexArray
    # old_length, old_items, old_number, old_memory: as they were before the edit
    old_length: IndexArray
    old_items: IndexArray
    old_number: IndexArray
    old_memory: IntArray
    # edited, is_edited: the groups whose bytes are left out of `memory` during an edit, how many in the last place;
    # whether each is
    edited: IndexArray
    is_edited: BoolArray
    # here, events, first, last, is_kept: scratch of one group: per tensor its buffer; the runs that touch it; per
    # buffer from when to when it is there
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
def add_group(g: RunGraph, groups: Groups, s: Sequence, group: Any, sign: Any, low: Any, high: Any) -> bool:
    """Add or subtract the bytes of a group from one run up to another; False if a run comes before its input."""
    buffers = _replay(g, groups, s, group)
    high = min(high, s.length[0])
    size = sign * g.size[groups.tensors[groups.tensor_ptr[group]]]
    if buffers >= 0 and size != 0:
        for buffer in range(buffers):
            end = high if s.is_kept[buffer] else min(high, s.last[buffer] + 1)
            for step in range(np.uint64(max(low, s.first[buffer])), np.uint64(end)):  # no sign: it is vectorised
                s.memory[step] += size
    return buffers >= 0


@kernel
def _replay(g: RunGraph, groups: Groups, s: Sequence, group: int) -> int:
    """Find the buffers of a group; returns how many, -1 if a run comes before its input."""
    if groups.tensor_ptr[group + 1] - groups.tensor_ptr[group] == 1:
        return _replay_tensor(g, groups, s, group)
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
def _replay_tensor(g: RunGraph, groups: Groups, s: Sequence, group: int) -> int:
    """Find the buffers of a tensor without views: one per run of its op, there until it is read last."""
    tensor = groups.tensors[groups.tensor_ptr[group]]
    maker = g.producer[tensor]
    buffers = int(s.times[maker])
    for buffer in range(buffers):
        s.first[buffer] = s.last[buffer] = s.places[maker, buffer]
        s.is_kept[buffer] = g.is_final[tensor] and buffer + 1 == buffers
    for k in range(groups.member_ptr[group], groups.member_ptr[group + 1]):
        op = groups.members[k]
        if op == maker:
            continue
        for number in range(s.times[op]):
            step = s.places[op, number]
            buffer = buffers - 1
            while buffer >= 0 and s.first[buffer] > step:
                buffer -= 1
            if buffer < 0:
                return -1
            s.last[buffer] = max(s.last[buffer], step)
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
    return excess_between(s, limit, np.int64(0), np.int64(s.length[0]))


@kernel
def excess_between(s: Sequence, limit: int, low: Any, high: Any) -> Any:
    """Return the bytes above a limit, summed from one run up to another."""
    total = np.int64(0)
    for step in range(np.uint64(low), np.uint64(high)):
        total += max(np.int64(0), s.memory[step] - limit)
    return total


@kernel
def bytes_at_end(g: RunGraph, groups: Groups, s: Sequence) -> int:
    """Return what stays after the last run, of all groups that are not left out."""
    total = g.persistent
    for group in range(s.is_edited.size):
        if not s.is_edited[group]:
            for k in range(groups.tensor_ptr[group], groups.tensor_ptr[group + 1]):
                if g.is_final[groups.tensors[k]]:
                    total += _final_bytes(g, groups, s, np.int32(group))
                    break
    return total


@kernel
def _final_bytes(g: RunGraph, groups: Groups, s: Sequence, group: Any) -> int:
    buffers = _replay(g, groups, s, group)
    kept = 0
    for buffer in range(buffers):
        if s.is_kept[buffer]:
            kept += 1
    return kept * int(g.size[groups.tensors[groups.tensor_ptr[group]]])
