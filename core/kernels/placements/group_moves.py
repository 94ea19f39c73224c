"""Which ops go to another device together: by the rules of a problem, or because they exchange much."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, IndexArray, csr
from ..jit import inlined


class Groups(NamedTuple):
    """Groups of ops that go to another device together, each a stretch of `ops`: where it begins, and its end."""

    ops: IndexArray
    first: IndexArray
    last: IndexArray


NO_GROUPS = Groups(*np.empty((3, 0), np.int32))


class Places(NamedTuple):
    """Where ops may be, and which move together."""

    group: IndexArray  # per op the first of those that the rules keep on one device
    # CSR: that op -> all of them, and the devices on which they may be
    member_ptr: IndexArray
    members: IndexArray
    device_ptr: IndexArray
    devices: IndexArray
    allowed: BoolArray  # shape `(ops, devices)`: the same once more
    groups: Groups  # moved together though they need not be on one device, in a `share` of the moves of sequences
    share: float
    changed: IndexArray  # scratch, shape `(2 * ops,)`: ops that a move has changed, and the devices that they had
    before: IndexArray


def places_of(group: IndexArray, allowed: BoolArray, groups: Groups = NO_GROUPS, share: float = 0.1) -> Places:
    """Return where ops may be, given the first op of each one's group, and what moves together besides."""
    ops = len(group)
    first, device = np.nonzero(allowed & (group == np.arange(ops))[:, None])
    members = csr(group, np.arange(ops), ops)
    return Places(group, *members, *csr(first, device, ops), allowed, groups, share, *np.empty((2, 2 * ops), np.int32))


@inlined
def drawn_group(places: Places, draws: Any) -> int:
    """Return the group that a row of six draws moves, by its last; -1 if it moves an op, as rows of five do."""
    group = -1
    if draws.size > 5 and draws[5] < places.share:
        group = int(draws[5] / places.share * places.groups.first.size)
    return group


@inlined
def drawn_device(places: Places, op: int, before: int, draw: float) -> Any:
    """Return a device other than the one before, or the next one where the op may be; the one before if it is alone."""
    devices = places.allowed.shape[1]
    device = (before + 1 + int(draw * (devices - 1))) % devices
    while device != before and not places.allowed[op, device]:
        device = device + 1 if device + 1 < devices else 0
    return device


@inlined
def place_together(places: Places, op: int, device: int, placement: Any) -> None:
    """Give a device to an op and to all that the rules keep with it."""
    first = places.group[op]
    for at in range(places.member_ptr[first], places.member_ptr[first + 1]):
        placement[places.members[at]] = device


@inlined
def put(places: Places, op: int, device: int, placement: Any, changes: int) -> int:
    """Give a device to an op and to all that is with it, if they may be there; returns how many have changed so far."""
    if placement[op] != device and places.allowed[op, device]:
        first = places.group[op]
        for at in range(places.member_ptr[first], places.member_ptr[first + 1]):
            member = places.members[at]
            places.changed[changes] = member
            places.before[changes] = placement[member]
            placement[member] = device
            changes += 1
    return changes


@inlined
def swap(places: Places, op: int, other: int, placement: Any) -> int:
    """Give two ops each other's device, if they may be there; returns how many have changed."""
    changes, device = 0, placement[op]
    if places.allowed[op, placement[other]] and places.allowed[other, device]:
        changes = put(places, op, placement[other], placement, 0)
        changes = put(places, other, device, placement, changes)
    return changes


@inlined
def put_group(places: Places, first: int, last: int, device: int, placement: Any) -> int:
    """Give a device to the ops of a stretch of the groups; returns how many have changed."""
    changes = 0
    for at in range(first, last):
        changes = put(places, places.groups.ops[at], device, placement, changes)
    return changes


@inlined
def put_back(places: Places, changes: int, placement: Any) -> None:
    """Give the ops that a move has changed the devices that they had."""
    for at in range(changes - 1, -1, -1):
        placement[places.changed[at]] = places.before[at]
