"""A TFLite file in the order of a schedule, with the offsets of its tensors in the arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...addresses.placing import place_schedule
from ...graph.graph import CostGraph
from ...problem.schedule import Schedule
from ..runtime import problem_of
from .importer import caller_gives
from .planner import ALIGNMENT, Scratch, head_of
from .program import ONLINE, TfliteProgram, parse_program
from .writing import Edit, Run, edited


@dataclass(frozen=True)
class Planned:
    """A file in another order."""

    data: bytes
    head: int  # bytes of the arena's head
    # the file says where its tensors lie; if not, TFLM's planner finds places that take no more
    is_offline: bool


def planned(program: TfliteProgram, graph: CostGraph, order: Sequence[int], scratch: Scratch) -> Planned:
    """Return a program in an order of its graph's ops, of which some may run several times.

    An operator that runs again stands in the file once more, and writes tensors of its own; the last run writes those
    of the old file. The offsets are those of `place_schedule`, or what TFLM's planner finds by itself where that takes
    less. A file with several subgraphs gets no offsets: older versions of TFLM read them for each subgraph from the
    first one on.
    """
    steps = _Steps(program, graph, order)
    moved = {(0, at): scratch[0, run.operator] for at, run in enumerate(steps.runs) if (0, run.operator) in scratch}
    kept = {**moved, **{place: sizes for place, sizes in scratch.items() if place[0]}}
    plans = [steps.offsets(), None] if len(program.subgraphs) == 1 else [None]
    files = [edited(program, Edit(steps.runs, steps.copies, offsets=offsets)) for offsets in plans]
    heads = [head_of(parse_program(data, program.path), kept) for data in files]
    best = heads.index(min(heads))
    return Planned(files[best], heads[best], plans[best] is not None)


class _Steps:
    """The runs of operators that an order of the graph's ops is."""

    def __init__(self, program: TfliteProgram, graph: CostGraph, order: Sequence[int]) -> None:
        self._program = program
        self._graph = graph
        self._order = list(order)
        self._first = len(caller_gives(program.main)) > 0
        self.runs: list[Run] = []
        self.copies: list[tuple[int, str]] = []
        main = program.main
        last = {op: step for step, op in enumerate(self._order)}
        latest: dict[int, int] = {}
        for step, op in enumerate(self._order):
            if op < self._first:
                continue
            operator = main.operators[op - self._first]
            inputs = tuple(latest.get(tensor, tensor) for tensor in operator.inputs)
            for tensor in operator.outputs:
                if last[op] == step:
                    latest[tensor] = tensor
                    continue
                latest[tensor] = len(main.tensors) + len(self.copies)
                self.copies.append((tensor, f"{main.tensors[tensor].name} (run {step})"))
            outputs = tuple(latest[tensor] for tensor in operator.outputs)
            self.runs.append(Run(op - self._first, inputs, outputs))

    def offsets(self) -> list[int]:
        """Return the offset of each tensor of the new file; those without a place in the head have `ONLINE`."""
        problem = problem_of(self._graph, self._order)
        addresses = place_schedule(problem, Schedule.single_device(np.array(self._order)), ALIGNMENT)
        main = self._program.main
        offsets = [ONLINE] * (len(main.tensors) + len(self.copies))
        runs = iter(self.runs)
        for op, made in zip(self._order, addresses.made, strict=True):
            tensors = caller_gives(main) if op < self._first else next(runs).outputs
            for tensor, offset in zip(tensors, made, strict=True):
                offsets[tensor] = offset
        return offsets
