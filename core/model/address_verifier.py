"""The independent verifier of addresses, of schedules and of any pieces of memory, in plain Python."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ..base.errors import ScheduleError
from ..graph.graph import CostGraph
from ..problem.addresses import Addresses
from ..problem.problem import Problem
from ..problem.schedule import Schedule


def verify_addresses(problem: Problem, schedule: Schedule, addresses: Addresses) -> None:
    """Check the addresses of a valid schedule, as `verify` finds it."""
    name = problem.graph.name
    if len(addresses.arenas) != problem.devices or len(addresses.made) != len(schedule):
        raise ScheduleError(
            f"{name}: there are addresses for {len(addresses.arenas)} devices and {len(addresses.made)} steps, but "
            f"{problem.devices} and {len(schedule)} are needed"
        )
    for device, pieces in enumerate(_pieces(problem.graph, schedule, addresses)):
        arena, found = addresses.arenas[device], most_alive(pieces, addresses.alignment)
        check_arena(name if problem.devices == 1 else f"{name}, device {device}", pieces, arena.size)
        if arena.bound != found:
            raise ScheduleError(
                f"{name}: the arena of device {device} claims a bound of {arena.bound} bytes, but {found} live at once"
            )


def _pieces(graph: CostGraph, schedule: Schedule, addresses: Addresses) -> list[list[Piece]]:
    """Return what each device needs in its arena, with the last step that needs it."""
    reads = _data_reads(graph)
    last_run = {item: step for step, item in enumerate(schedule.items.tolist())}
    held: list[dict[int, tuple[Piece, int]]] = [{} for _ in addresses.arenas]  # tensor -> its piece, its own offset
    pieces: list[list[Piece]] = [[] for _ in addresses.arenas]

    def start(what: str, device: int, step: int, offset: int, size: int) -> Piece:
        piece = Piece(what, step, step + 1, offset, size, addresses.alignment)
        pieces[device].append(piece)
        return piece

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


def _check_view(graph: CostGraph, tensor: int, base: int, offset: int, held: tuple[Piece, int]) -> None:
    """Compare the offset of a view with that of what it is a view of, and with the bytes that both share."""
    piece, at = held
    op = int(graph.tensor_producer[tensor])
    wanted = at + graph.annotations.view_offsets.get((op, tensor - int(graph.output_ptr[op])), 0)
    if offset != wanted or not piece.offset <= offset <= piece.offset + piece.size:
        raise ScheduleError(
            f"{graph.name}: '{graph.tensor_name(tensor)}' has the offset {offset}, but as a view of "
            f"'{graph.tensor_name(base)}' it has {wanted}, within {piece.offset} to {piece.offset + piece.size}"
        )


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
