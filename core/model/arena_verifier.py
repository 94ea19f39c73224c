"""The independent verifier of arenas: pieces of memory with lifetimes and offsets, in plain Python."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ..base.errors import ScheduleError


@dataclass
class Piece:
    """Bytes of an arena that are needed from `start` until before `end`."""

    what: str  # what errors call it
    # start, end: steps, or any other times
    start: int
    end: int
    # offset, size: where it is claimed to be, and how many bytes it has
    offset: int
    size: int
    alignment: int  # what the offset must be a multiple of

    def need(self, step: int) -> None:
        """Keep it until the end of a step."""
        self.end = max(self.end, step + 1)


def check_arena(where: str, pieces: Sequence[Piece], arena: int) -> None:
    """Check that every piece is aligned and within its arena, and that no two share a byte while both live."""
    for piece in pieces:
        if piece.offset % piece.alignment:
            raise ScheduleError(
                f"{where}: {piece.what} has the offset {piece.offset}, which is no multiple of {piece.alignment}"
            )
        if piece.offset < 0 or piece.offset + piece.size > arena:
            raise ScheduleError(
                f"{where}: {piece.what} has the addresses {piece.offset} to {piece.offset + piece.size}, outside of "
                f"its arena of {arena} bytes"
            )
    _check_overlaps(where, [piece for piece in pieces if piece.size])


def _check_overlaps(where: str, pieces: Sequence[Piece]) -> None:
    events = [(piece.start, 1, number) for number, piece in enumerate(pieces)]
    events += [(piece.end, 0, number) for number, piece in enumerate(pieces)]
    alive: list[tuple[int, int]] = []  # offset and number, sorted; no two overlap
    for time, is_start, number in sorted(events):
        piece = pieces[number]
        at = bisect_left(alive, (piece.offset, number))
        if not is_start:
            del alive[at]
            continue
        for _, beside in alive[max(0, at - 1) : at + 1]:
            other = pieces[beside]
            if other.offset < piece.offset + piece.size and piece.offset < other.offset + other.size:
                raise ScheduleError(
                    f"{where}: at {time}, {piece.what} at {piece.offset} to {piece.offset + piece.size} overlaps "
                    f"{other.what} at {other.offset} to {other.offset + other.size}"
                )
        alive.insert(at, (piece.offset, number))


def most_alive(pieces: Sequence[Piece], unit: int) -> int:
    """Return the most bytes that live at once, each piece rounded up to a unit."""
    changes = [(piece.start, 1, -(-piece.size // unit)) for piece in pieces]
    changes += [(piece.end, 0, -(-piece.size // unit)) for piece in pieces]
    most = alive = 0
    for _, is_start, blocks in sorted(changes):
        alive += blocks if is_start else -blocks
        most = max(most, alive)
    return most * unit
