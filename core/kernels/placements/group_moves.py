"""Groups of ops that go to another device together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import IndexArray
from ..jit import inlined

SHARE = 0.1
"""Of the moves of sequences, if there are groups."""


class Groups(NamedTuple):
    """Groups of ops that go to another device together.

    Parameters
    ----------
    ops
        Shape `(ops,)`: the ops, such that each group is a stretch.
    first, last
        Shape `(groups,)`: where a group begins, and the place after its end; empty arrays ask for no such moves.
    """

    ops: IndexArray
    first: IndexArray
    last: IndexArray


class GroupMoves(NamedTuple):
    """Groups, and scratch of shape `(ops,)` for the devices that the ops of one of them had before a move."""

    groups: Groups
    before: IndexArray


def no_groups() -> Groups:
    """Return what makes no moves of groups."""
    empty = np.empty(0, np.int32)
    return Groups(empty, empty, empty)


def moves_of(groups: Groups) -> GroupMoves:
    """Allocate the scratch."""
    return GroupMoves(groups, np.empty(len(groups.ops), np.int32))


NO_MOVES = moves_of(no_groups())


@inlined
def drawn_group(moves: GroupMoves, draws: Any) -> int:
    """Return the group that a row of six draws moves, by its last; -1 if it moves an op, as rows of five do."""
    group = -1
    if draws.size > 5 and draws[5] < SHARE:
        group = int(draws[5] / SHARE * moves.groups.first.size)
    return group


@inlined
def put_group(moves: GroupMoves, group: int, device: int, placement: Any) -> bool:
    """Give the ops of a group a device, and note which they had; returns whether one of them had another."""
    changed = False
    for at in range(moves.groups.first[group], moves.groups.last[group]):
        op = moves.groups.ops[at]
        moves.before[at] = placement[op]
        changed = changed or placement[op] != device
        placement[op] = device
    return changed


@inlined
def put_back(moves: GroupMoves, group: int, placement: Any) -> None:
    """Give the ops of a group the devices that they had."""
    for at in range(moves.groups.first[group], moves.groups.last[group]):
        placement[moves.groups.ops[at]] = moves.before[at]
