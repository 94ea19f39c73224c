"""The independent verifier of addresses: replays a schedule in plain Python and names the first broken rule.

It shares no code with what packs, and finds by itself what lives from when to when.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ..addresses.addresses import Addresses
from ..errors import ScheduleError
from ..graph import CostGraph
from ..problem import Problem
from ..schedule import Schedule


@dataclass
class _Piece:
    """Bytes of an arena that are needed from step `first` to step `last`."""

    what: str
    device: int
    first: int
    last: int
    offset: int
    size: int

    def need(self, step: int) -> None:
        """Keep it until the end of a step."""
        self.last = max(self.last, step)


def verify_addresses(problem: Problem, schedule: Schedule, addresses: Addresses) -> None:
    """Check the addresses of a valid schedule, as `verify` finds it.

    Parameters
    ----------
    problem, schedule
        What runs where.
    addresses
        What is claimed.

    Raises
    ------
    ScheduleError
        Naming the first piece that is not aligned, leaves its arena, or overlaps another one while both live; a view
        outside of what it is a view of; an arena that is missing, or whose bound is not the most that lives at once.
    """
    name = problem.graph.name
    if len(addresses.arenas) != problem.devices or len(addresses.made) != len(schedule):
        raise ScheduleError(
            f"{name}: there are addresses for {len(addresses.arenas)} devices and {len(addresses.made)} steps, but "
            f"{problem.devices} and {len(schedule)} are needed"
        )
    pieces = _pieces(problem.graph, schedule, addresses)
    for piece in pieces:
        _check_place(name, piece, addresses)
    for device in range(problem.devices):
        own = [piece for piece in pieces if piece.device == device]
        _check_overlaps(name, own, len(schedule))
        bound, found = addresses.arenas[device].bound, _most_alive(own, addresses.alignment, len(schedule))
        if bound != found:
            raise ScheduleError(
                f"{name}: the arena of device {device} claims a bound of {bound} bytes, but {found} live at once"
            )


def _pieces(graph: CostGraph, schedule: Schedule, addresses: Addresses) -> list[_Piece]:
    """Return all that the steps need in arenas, with the last step that needs each."""
    reads = _data_reads(graph)
    last_run = {item: step for step, item in enumerate(schedule.items.tolist())}
    held: list[dict[int, tuple[_Piece, int]]] = [{} for _ in addresses.arenas]  # tensor -> its piece, its own offset
    pieces: list[_Piece] = []

    def start(what: str, device: int, step: int, offset: int, size: int) -> _Piece:
        pieces.append(_Piece(what, device, step, step, offset, size))
        return pieces[-1]

    columns = zip(schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist(), strict=True)
    for step, (item, source, target) in enumerate(columns):
        made = [tensor for tensor in ([~item] if item < 0 else graph.outputs(item)) if not graph.is_control[tensor]]
        offsets = addresses.made[step]
        if len(offsets) != len(made):
            raise ScheduleError(f"{graph.name}: step {step} makes {len(made)} tensors, but {len(offsets)} have offsets")
        for tensor in reads[item] if item >= 0 else made:
            held[source][tensor][0].need(step)
        for tensor, offset in zip(made, offsets, strict=True):
            base = int(graph.alias_of[tensor]) if item >= 0 else -1
            if base < 0:
                piece = start(f"'{graph.tensor_name(tensor)}'", target, step, offset, int(graph.tensor_size[tensor]))
            else:
                piece = held[target][base][0]
                _check_view(graph, tensor, base, offset, held[target][base])
            piece.need(step)
            if item >= 0 and graph.is_final[tensor] and last_run[item] == step:
                piece.need(len(schedule))
            held[target][tensor] = (piece, offset)
        if item >= 0 and graph.workspace[item]:
            what = f"the workspace of op '{graph.op_names[item]}'"
            start(what, target, step, int(addresses.workspace[step]), int(graph.workspace[item]))
    return pieces


def _data_reads(graph: CostGraph) -> list[set[int]]:
    """Op -> the tensors it reads, control tensors left out."""
    flat, pointers = graph.read_tensor.tolist(), graph.read_ptr.tolist()
    return [
        {tensor for tensor in flat[pointers[op] : pointers[op + 1]] if not graph.is_control[tensor]}
        for op in range(graph.num_ops)
    ]


def _check_view(graph: CostGraph, tensor: int, base: int, offset: int, held: tuple[_Piece, int]) -> None:
    """Compare the offset of a view with that of what it is a view of, and with the bytes that both share."""
    piece, at = held
    wanted = at + graph.annotations.view_offsets.get(tensor, 0)
    if offset != wanted or not piece.offset <= offset <= piece.offset + piece.size:
        raise ScheduleError(
            f"{graph.name}: '{graph.tensor_name(tensor)}' has the offset {offset}, but as a view of "
            f"'{graph.tensor_name(base)}' it has {wanted}, within {piece.offset} to {piece.offset + piece.size}"
        )


def _check_place(name: str, piece: _Piece, addresses: Addresses) -> None:
    """Check that a piece is aligned and within its arena."""
    if piece.offset % addresses.alignment:
        raise ScheduleError(
            f"{name}: {piece.what} has the offset {piece.offset}, which is no multiple of {addresses.alignment}"
        )
    arena = addresses.arenas[piece.device].size
    if piece.offset < 0 or piece.offset + piece.size > arena:
        raise ScheduleError(
            f"{name}: {piece.what} has the addresses {piece.offset} to {piece.offset + piece.size}, outside of the "
            f"arena of device {piece.device}, which has {arena} bytes"
        )


def _check_overlaps(name: str, pieces: list[_Piece], steps: int) -> None:
    """Check that no two pieces of a device that live at the same time share a byte."""
    starting: list[list[_Piece]] = [[] for _ in range(steps)]
    ending: list[list[_Piece]] = [[] for _ in range(steps + 1)]
    for piece in pieces:
        if piece.size:
            starting[piece.first].append(piece)
            ending[piece.last].append(piece)
    alive: list[tuple[int, int, _Piece]] = []  # by offset; no two overlap
    for step in range(steps):
        for piece in starting[step]:
            at = bisect_left(alive, (piece.offset, id(piece)))
            for _, _, other in alive[max(0, at - 1) : at + 1]:
                if other.offset < piece.offset + piece.size and piece.offset < other.offset + other.size:
                    raise ScheduleError(
                        f"{name}: at step {step}, {piece.what} at {piece.offset} to {piece.offset + piece.size} "
                        f"overlaps {other.what} at {other.offset} to {other.offset + other.size}"
                    )
            alive.insert(at, (piece.offset, id(piece), piece))
        for piece in ending[step]:
            del alive[bisect_left(alive, (piece.offset, id(piece)))]


def _most_alive(pieces: list[_Piece], alignment: int, steps: int) -> int:
    """Return the most bytes that live at once, each piece rounded up to the alignment."""
    change = [0] * (steps + 2)
    for piece in pieces:
        blocks = (piece.size + alignment - 1) // alignment
        change[piece.first] += blocks
        change[piece.last + 1] -= blocks
    most = alive = 0
    for blocks in change:
        alive += blocks
        most = max(most, alive)
    return most * alignment
