"""Sequences of runs on one device and their edits, by the rules of `core.model.unrolled`: the bytes of each run."""
# An edit finds the bytes of those buffers alone anew that it touches.

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray, IntArray, csr, sorted_csr
from ...graph.graph import CostGraph
from ..jit import inlined, kernel

MOST_TIMES = 8  # how often an op may run
PLUS, MINUS, START = np.int64(1), np.int64(-1), np.int64(0)  # typed as variables are: literals compile callees anew


class RunGraph(NamedTuple):
    """A graph as sequences of runs need it: control tensors are edges between ops, and views are in a group."""

    read_ptr: IndexArray  # CSR op -> the distinct tensors it reads
    reads: IndexArray
    made_ptr: IndexArray  # CSR op -> the tensors it makes
    made: IndexArray
    # alias, size, is_final, producer: per tensor: what it is a view of or -1, bytes, whether it is kept, and its op
    alias: IndexArray
    size: IntArray
    is_final: BoolArray
    producer: IndexArray
    # pred_ptr, preds, succ_ptr, succs: CSR op -> ops that it reads or waits for, and those that read it or wait for it
    pred_ptr: IndexArray
    preds: IndexArray
    succ_ptr: IndexArray
    succs: IndexArray
    # wait_ptr, waits, follow_ptr, follows: CSR op -> ops that it waits for by control edges, and those that so wait
    wait_ptr: IndexArray
    waits: IndexArray
    follow_ptr: IndexArray
    follows: IndexArray
    # runs_once, runtime, workspace, rank: per op: may not run again, microseconds, bytes, its place in the input order
    runs_once: BoolArray
    runtime: FloatArray
    workspace: IntArray
    rank: IndexArray
    persistent: int  # bytes throughout
    group: IndexArray  # per tensor its group, of all that share a buffer; -1 for control
    tensor_ptr: IndexArray  # CSR group -> its tensors, the one that is no view first
    tensors: IndexArray
    member_ptr: IndexArray  # CSR group -> the ops that make or read one of them
    members: IndexArray
    touch_ptr: IndexArray  # CSR op -> the groups that it makes or reads
    touches: IndexArray
    user_ptr: IndexArray  # CSR op -> the ops that read what it makes
    users: IndexArray


def run_graph(graph: CostGraph) -> RunGraph:
    """Return the arrays of a graph."""
    ops, data = graph.num_ops, np.flatnonzero(~graph.is_control)
    readers, read = np.repeat(np.arange(ops), np.diff(graph.inputs[0])), graph.inputs[1]
    is_data = ~graph.is_control[read]
    waiting, waited = readers[~is_data], graph.tensor_producer[read[~is_data]]
    readers, read, makers = readers[is_data], read[is_data], graph.tensor_producer[data]
    rank = np.empty(ops, np.int32)
    rank[graph.input_order] = np.arange(ops)
    roots = np.unique(graph.root[data])
    group = np.full(graph.num_tensors, -1, np.int32)
    group[data] = np.searchsorted(roots, graph.root[data])
    group.setflags(write=False)
    touching = np.unique(np.stack((np.append(makers, readers), np.append(group[data], group[read]))), axis=1)
    users = np.unique(np.stack((graph.tensor_producer[read], readers)), axis=1)
    by_root = data[np.argsort(graph.alias_of[data] >= 0, kind="stable")]
    return RunGraph(
        *csr(readers, read, ops),
        *csr(makers, data, ops),
        graph.alias_of,
        graph.tensor_size,
        graph.is_final,
        graph.tensor_producer,
        *graph.predecessors,
        *graph.successors,
        *csr(waiting, waited, ops),
        *sorted_csr(waited, waiting, ops),
        graph.runs_once,
        graph.runtime,
        graph.workspace,
        rank,
        int(graph.persistent.sum()),
        group,
        *csr(group[by_root], by_root, len(roots)),
        *csr(touching[1], touching[0], len(roots)),
        *csr(touching[0], touching[1], ops),
        *csr(users[0], users[1], ops),
    )


class Sequence(NamedTuple):
    """A sequence of runs, and the bytes that each takes."""

    length: IndexArray  # shape `(1,)`: how many runs
    # items, number, memory: shape `(capacity,)`: per run its op, which of its op's runs it is, and bytes
    items: IndexArray
    number: IndexArray
    memory: IntArray
    times: IndexArray  # shapes `(ops,)` and `(ops, MOST_TIMES)`: how often each op runs, and where, ascending
    places: IndexArray
    old_length: IndexArray  # this and the next three: as they were before the edit
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


def new_sequence(g: RunGraph, capacity: int) -> Sequence:
    """Allocate room for a sequence of at most `capacity` runs."""
    ops, count = g.runtime.size, len(g.tensor_ptr) - 1
    shapes = {"length": 1, "times": ops, "places": (ops, MOST_TIMES), "old_length": 1, "here": g.size.size}
    shapes |= {"edited": count + 1, "is_edited": count}
    kinds = {"memory": np.int64, "old_memory": np.int64, "is_edited": np.bool_, "is_kept": np.bool_}
    return Sequence(*(np.zeros(shapes.get(of, capacity), kinds.get(of, np.int32)) for of in Sequence._fields))


@kernel
def add_group(g: RunGraph, s: Sequence, group: Any, sign: Any, low: Any, high: Any) -> bool:
    """Add or subtract the bytes of a group from one run up to another; False if a run comes before its input."""
    buffers = _replay(g, s, group)
    high = min(high, s.length[0])
    size = sign * g.size[g.tensors[g.tensor_ptr[group]]]
    if buffers >= 0 and size != 0:
        for buffer in range(buffers):
            end = high if s.is_kept[buffer] else min(high, s.last[buffer] + 1)
            for step in range(np.uint64(max(low, s.first[buffer])), np.uint64(end)):  # no sign: it is vectorised
                s.memory[step] += size
    return buffers >= 0


@kernel
def _replay(g: RunGraph, s: Sequence, group: Any) -> int:
    """Find the buffers of a group; returns how many, -1 if a run comes before its input."""
    if g.tensor_ptr[group + 1] - g.tensor_ptr[group] == 1:
        return _replay_tensor(g, s, group)
    for k in range(g.tensor_ptr[group], g.tensor_ptr[group + 1]):
        s.here[g.tensors[k]] = -1
    count = 0
    for k in range(g.member_ptr[group], g.member_ptr[group + 1]):  # the runs that touch it, in their order
        op = g.members[k]
        for number in range(s.times[op]):
            step = s.places[op, number]
            at = count
            while at > 0 and s.events[at - 1] > step:
                s.events[at] = s.events[at - 1]
                at -= 1
            s.events[at] = step
            count += 1
    buffers = 0
    for event in range(count):
        step = s.events[event]
        op = s.items[step]
        for k in range(g.read_ptr[op], g.read_ptr[op + 1]):
            tensor = g.reads[k]
            if g.group[tensor] == group:
                buffer = s.here[tensor]
                if buffer < 0:
                    return -1
                s.last[buffer] = step
        is_last = s.number[step] + 1 == s.times[op]
        for k in range(g.made_ptr[op], g.made_ptr[op + 1]):
            tensor = g.made[k]
            if g.group[tensor] != group:
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
def _replay_tensor(g: RunGraph, s: Sequence, group: int) -> int:
    """Find the buffers of a tensor without views: one per run of its op, there until it is read last."""
    tensor = g.tensors[g.tensor_ptr[group]]
    maker = g.producer[tensor]
    buffers = int(s.times[maker])
    for buffer in range(buffers):
        s.first[buffer] = s.last[buffer] = s.places[maker, buffer]
        s.is_kept[buffer] = g.is_final[tensor] and buffer + 1 == buffers
    for k in range(g.member_ptr[group], g.member_ptr[group + 1]):
        op = g.members[k]
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
def excess_between(s: Sequence, limit: int, low: Any, high: Any) -> Any:
    """Return the bytes above a limit, summed from one run up to another."""
    total = np.int64(0)
    for step in range(np.uint64(low), np.uint64(high)):
        total += max(np.int64(0), s.memory[step] - limit)
    return total


@kernel
def bytes_at_end(g: RunGraph, s: Sequence) -> int:
    """Return the bytes left after the last run, of all groups that are not left out."""
    total = g.persistent
    for group in range(s.is_edited.size):
        is_final = False
        for k in range(g.tensor_ptr[group], g.tensor_ptr[group + 1]):
            is_final = is_final or g.is_final[g.tensors[k]]
        if is_final and not s.is_edited[group]:
            for buffer in range(_replay(g, s, np.int32(group))):
                if s.is_kept[buffer]:
                    total += g.size[g.tensors[g.tensor_ptr[group]]]
    return total


@kernel
def set_sequence(g: RunGraph, s: Sequence, items: IndexArray) -> bool:
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
        is_valid = is_valid and add_group(g, s, np.int32(group), PLUS, START, s.items.size)
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
def finish(g: RunGraph, s: Sequence) -> bool:
    """End an edit and find the bytes of touched buffers; whether the sequence is valid (else it is to be undone)."""
    for k in range(s.edited[s.is_edited.size]):
        if not add_group(g, s, s.edited[k], PLUS, START, s.items.size):
            return False
    for k in range(s.edited[s.is_edited.size]):
        s.is_edited[s.edited[k]] = False
    return True


@kernel
def insert_run(g: RunGraph, s: Sequence, op: int, step: int) -> bool:
    """Insert a run before another one; False if its op would run too often, or control edges forbid it."""
    length = s.length[0]
    if s.times[op] == MOST_TIMES or length == s.items.size:
        return False
    _leave_out(g, s, op)
    memory = g.workspace[op] + _held_before(g, s, step)
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


@inlined
def _held_before(g: RunGraph, s: Sequence, step: int) -> int:
    """Return the bytes that are there before a run makes anything, of groups that are not left out."""
    op = s.items[step]
    held: int = s.memory[step] - g.workspace[op]
    for k in range(g.made_ptr[op], g.made_ptr[op + 1]):
        tensor = g.made[k]
        if g.alias[tensor] < 0 and not s.is_edited[g.group[tensor]]:
            held -= g.size[tensor]
    return held


@kernel
def delete_run(g: RunGraph, s: Sequence, step: Any) -> None:
    """Take out a run of an op that runs several times."""
    op = s.items[step]
    _leave_out(g, s, op)
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
def shift_run(g: RunGraph, s: Sequence, step: int, place: int, limit: int) -> Any:
    """Let a run stand at another place; returns by how much the bytes above a limit rise, summed over the runs."""
    # No run of its op, nor of one that reads it or that it reads or waits for, may be between the two places: so it is
    # no edit to be begun, the sequence stays valid, and no other run has other bytes.
    op, number = s.items[step], s.number[step]
    low, high = min(step, place), max(step, place) + 1
    rise = -excess_between(s, limit, low, high)
    for k in range(g.touch_ptr[op], g.touch_ptr[op + 1]):
        s.is_edited[g.touches[k]] = True
        add_group(g, s, g.touches[k], MINUS, low, high + 1)  # the run behind is looked at below
    beside = place if place < step else place + 1
    memory = g.workspace[op]
    if beside < s.length[0]:
        memory += _held_before(g, s, beside)
    else:  # at the end: what is there after the last run
        memory += bytes_at_end(g, s)
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
    for k in range(g.touch_ptr[op], g.touch_ptr[op + 1]):
        s.is_edited[g.touches[k]] = False
        add_group(g, s, g.touches[k], PLUS, low, high + 1)
    return rise + excess_between(s, limit, low, high)


@kernel
def is_read(g: RunGraph, s: Sequence, step: int) -> bool:
    """Whether a run is read, or the last of an op that makes something final."""
    op, number = s.items[step], s.number[step]
    if number + 1 < s.times[op]:
        return is_used(g, s, op, int(step) + 1, int(s.places[op, number + 1]) + 1)
    for k in range(g.made_ptr[op], g.made_ptr[op + 1]):
        if g.is_final[g.made[k]]:
            return True
    return is_used(g, s, op, int(step) + 1, int(s.length[0]))


@kernel
def is_used(g: RunGraph, s: Sequence, op: int, low: int, high: int) -> bool:
    """Whether a run from one place up to another is of an op that reads an op's output."""
    for k in range(g.user_ptr[op], g.user_ptr[op + 1]):
        user = g.users[k]
        for number in range(s.times[user]):
            if low <= s.places[user, number] < high:
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
def _leave_out(g: RunGraph, s: Sequence, op: int) -> None:
    """Take the bytes of all that an op touches out of the memory, until the edit ends."""
    count = s.is_edited.size
    for k in range(g.touch_ptr[op], g.touch_ptr[op + 1]):
        group = g.touches[k]
        if not s.is_edited[group]:
            s.is_edited[group] = True
            s.edited[s.edited[count]] = group
            s.edited[count] += 1
            add_group(g, s, group, MINUS, START, s.items.size)
