"""Addresses for the steps of a schedule: lifetimes per device, packed one by one; views lie within their buffer."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..base.arrays import frozen
from ..base.errors import UsageError
from ..base.units import DEFAULT_ALIGNMENT, LARGEST_ALIGNMENT
from ..graph.graph import CostGraph
from ..model.timeline import holdings_of
from ..model.unrolled import of_runs
from ..problem.problem import Problem
from ..problem.schedule import Addresses, Arena, Schedule
from .packing import DEFAULT_SECONDS, IMPROVED_SHARE, Lifetimes, Packing, Stop, never

WORKSPACE = -1


def place_schedule(
    problem: Problem, schedule: Schedule, alignment: int = DEFAULT_ALIGNMENT, time_limit: float = DEFAULT_SECONDS
) -> Addresses:
    """Give every tensor, copy and workspace of a schedule an offset in the arena of its device."""
    placer = Placer(problem, schedule, alignment, deadline=time.monotonic() + time_limit)
    placer.improve(IMPROVED_SHARE * time_limit, np.random.default_rng(0))
    placer.search_targets((1 - IMPROVED_SHARE) * time_limit)
    return placer.addresses()


class Placer:
    """Addresses in the making: the pieces of each device, and their packing."""

    def __init__(
        self, problem: Problem, schedule: Schedule, alignment: int, stop: Stop = never, deadline: float = math.inf
    ) -> None:
        if not 1 <= alignment <= LARGEST_ALIGNMENT:
            raise UsageError(f"the alignment must be from 1 to 2^31 bytes, not {alignment}")
        self.problem, self.schedule, self.alignment, self.stop = problem, schedule, alignment, stop
        self.pieces = pieces_of(problem, schedule)
        columns = (np.array(own, np.int64).reshape(-1, len(Piece._fields)).T for own in self.pieces)
        lifetimes = [Lifetimes.of(lower, upper, size, alignment) for lower, upper, size, _ in columns]
        self.packers = [Packing(own, stop, deadline) for own in lifetimes]

    @property
    def arena(self) -> int:
        """Bytes of the largest arena."""
        return max(packer.arena for packer in self.packers)

    @property
    def bound(self) -> int:
        """The most bytes alive at once on a device, each piece rounded up."""
        return max(packer.lifetimes.live for packer in self.packers)

    def improve(self, time_limit: float, rng: np.random.Generator) -> None:
        """Pack for so many seconds, or until every arena meets its bound."""
        for packer, seconds in self._shares(time_limit):
            packer.improve(seconds, rng)

    def search_targets(self, time_limit: float) -> None:
        """Search below several targets at once for so many seconds, or until every arena meets its bound."""
        for packer, seconds in self._shares(time_limit):
            packer.search_targets(seconds)

    def _shares(self, time_limit: float) -> Iterator[tuple[Packing, float]]:
        """Yield those that do not meet their bound, and an equal share of the time left."""
        deadline = time.monotonic() + time_limit
        left = [packer for packer in self.packers if not packer.is_done]
        for number, packer in enumerate(left):
            yield packer, (deadline - time.monotonic()) / (len(left) - number)

    def addresses(self) -> Addresses:
        """Return the best so far."""
        offsets: dict[tuple[int, int], int] = {}
        for own, packer in zip(self.pieces, self.packers, strict=True):
            offsets.update(zip(((p.lower, p.output) for p in own), packer.offsets.tolist(), strict=True))
        workspace = [offsets.get((step, WORKSPACE), 0) for step in range(len(self.schedule))]
        return Addresses(
            self.alignment,
            tuple(Arena(packer.arena, packer.lifetimes.live) for packer in self.packers),
            _made(self.problem.graph, self.schedule, offsets),
            frozen(workspace, np.int64),
            all(packer.is_repeatable for packer in self.packers),
        )


class Piece(NamedTuple):
    """Bytes that a device needs in its arena from a step on, until another step does not need them any more."""

    lower: int
    upper: int
    size: int
    output: int  # which of the data outputs of its step it is; `WORKSPACE` for its workspace


def pieces_of(problem: Problem, schedule: Schedule) -> list[list[Piece]]:
    """Return the pieces of each device: buffers with their views, copies sent to it, workspaces."""
    problem, schedule = of_runs(problem, schedule)  # which have their outputs in the same order
    graph, items = problem.graph, schedule.items.tolist()
    pieces: list[list[Piece]] = [[] for _ in range(problem.devices)]
    for held in holdings_of(problem, schedule):
        item = items[held.first]
        output = held.tensor - int(graph.output_ptr[item]) if item >= 0 else 0
        pieces[held.device].append(Piece(held.first, held.last + 1, held.size, output))
    for step, (item, device) in enumerate(zip(items, schedule.targets.tolist(), strict=True)):
        if item >= 0 and graph.workspace[item]:
            pieces[device].append(Piece(step, step + 1, int(graph.workspace[item]), WORKSPACE))
    return pieces


def _made(graph: CostGraph, schedule: Schedule, offsets: dict[tuple[int, int], int]) -> tuple[tuple[int, ...], ...]:
    """Return the offsets of each step's outputs: of buffers as packed, of views within them."""
    aliases, is_control, within = graph.alias_of.tolist(), graph.is_control.tolist(), graph.annotations.view_offsets
    at: list[dict[int, int]] = [{} for _ in range(int(schedule.targets.max(initial=0)) + 1)]
    made = []
    for step, (item, device) in enumerate(zip(schedule.items.tolist(), schedule.targets.tolist(), strict=True)):
        tensors = [~item] if item < 0 else graph.outputs(item)
        own = []
        for output, tensor in enumerate(tensors):
            if is_control[tensor]:
                continue
            base = aliases[tensor] if item >= 0 else -1
            if base >= 0:
                at[device][tensor] = at[device][base] + within.get((item, output), 0)
            else:
                at[device][tensor] = offsets[step, output]
            own.append(at[device][tensor])
        made.append(tuple(own))
    return tuple(made)
