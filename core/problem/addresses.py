"""The addresses of a schedule: where each step puts what it makes, in the arena of its device."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.arrays import IntArray


@dataclass(frozen=True)
class Arena:
    """What one device needs beside its persistent bytes."""

    size: int  # bytes, a multiple of the alignment
    # the most bytes alive at any step of this schedule, each piece rounded up to the alignment: no addresses for it
    # take less
    bound: int

    @property
    def is_optimal(self) -> bool:
        """Whether no addresses for this schedule take less."""
        return self.size == self.bound


@dataclass(frozen=True, eq=False)
class Addresses:
    """Offsets of everything that the steps of a schedule make; persistent bytes lie outside."""

    alignment: int  # what the offset of every buffer is a multiple of; a view lies within its buffer
    arenas: tuple[Arena, ...]  # one per device
    # per step the offsets of the data tensors that it makes, in the order of the op's outputs; of a transfer, that of
    # the copy
    made: tuple[tuple[int, ...], ...]
    workspace: IntArray  # shape `(steps,)`: the offset of the op's workspace; 0 where it has none
    is_repeatable: bool = True  # whether the same call gives the same offsets: not if time ended the packing

    @property
    def is_optimal(self) -> bool:
        """Whether every arena equals its bound."""
        return all(arena.is_optimal for arena in self.arenas)
