"""TFLite programs: planned in another order, written as TFLite files, and run by TFLM in one arena."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...addresses.placing import place_schedule
from ...base.errors import ProgramError, ScheduleError
from ...files.atomic import write_atomically
from ...files.buffers_csv import header_text
from ...graph.graph import CostGraph
from ...problem.schedule import Schedule
from ..fresh_process import ask
from ..runtime import Note, Runtime, problem_of
from .costs import Costs, measured_costs
from .importer import caller_gives, graph_of, note_unknown
from .planner import ALIGNMENT, Scratch, head_of, tensor_places
from .program import ONLINE, TfliteProgram, load_program, parse_program
from .writing import Edit, Run, edited

LEAST = "tflite.interpreter:least_arena"


@dataclass(frozen=True)
class Planned:
    """A file in another order."""

    data: bytes
    head: int  # bytes of the arena's head
    # the file says where its tensors lie; if not, TFLM's planner finds places that take no more
    is_offline: bool
    places: Sequence[tuple[str, int]] = ()  # the name and the offset of each tensor in the head


def planned(program: TfliteProgram, graph: CostGraph, order: Sequence[int], scratch: Scratch) -> Planned:
    """Return a program in an order of its graph's ops, of which some may run several times.

    An operator that runs again stands in the file once more, and writes tensors of its own; its last run writes the old
    ones. The offsets are those of `place_schedule`, or TFLM's planner finds them where that takes less or there are
    several subgraphs, for each of which older versions of TFLM read them from the first one on.
    """
    steps = _Steps(program, graph, order)
    moved = {(0, at): scratch[0, run.operator] for at, run in enumerate(steps.runs) if (0, run.operator) in scratch}
    kept = {**moved, **{place: sizes for place, sizes in scratch.items() if place[0]}}
    plans = [steps.offsets(), None] if len(program.subgraphs) == 1 else [None]
    files = [edited(program, Edit(steps.runs, steps.copies, offsets=offsets)) for offsets in plans]
    read = [parse_program(data, program.path) for data in files]
    heads = [head_of(new, kept) for new in read]
    best = heads.index(min(heads))
    return Planned(files[best], heads[best], plans[best] is not None, tensor_places(read[best], kept))


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


class TfliteRuntime(Runtime[Planned]):
    """A TFLite file; a version of it has its operators in another order, and the offsets of its tensors.

    Memory is the head of the arena, and the variable tensors in its tail, by the planner of TFLM.
    """

    runs = "tflite.interpreter:run_file"

    def load(self, note: Note) -> None:
        """Read the file."""
        self.program = load_program(self.model)
        self._costs: dict[bool, Costs] = {}
        self._planned: dict[tuple[int, ...], Planned] = {}
        self._arenas: dict[tuple[int, ...] | None, int | None] = {}

    def graph(self, costs: str, note: Note) -> CostGraph:
        """Return the program's graph; see `graph_of`."""
        found = self.found(costs == "measured")
        note_unknown(self.program, found, note)
        return graph_of(self.program, found, self.roofline)

    def reordered(self, graph: CostGraph, order: Sequence[int]) -> Planned:
        """Plan the arena of an order; each is planned once."""
        key = tuple(order)
        if key not in self._planned:
            self._planned[key] = planned(self.program, graph, key, self.found(False).scratch)
        return self._planned[key]

    def results(self, version: Planned | None) -> dict[str, str]:
        """Run the file, or a version of it, on random inputs, several times over; its arena must be the planned one."""
        data = self.program.data if version is None else version.data
        report = ask_bytes(self.runs, data, self.model, times=False)
        if version is not None and report["head"] != version.head:
            raise ScheduleError(
                f"{self.model}: the arena's head would be {report['head']:,} bytes, not {version.head:,} as planned"
            )
        outputs = len(self.program.main.outputs)
        return {f"output {at % outputs} of run {at // outputs}": found for at, found in enumerate(report["digests"])}

    def save(self, version: Planned, output: str, note: Note) -> None:
        """Write a TFLite file, or a C header of its arena, whose name ends in .h."""
        least = ask_bytes(LEAST, version.data, output)
        if output.endswith(".h"):
            sizes = {"arena": least, "head": version.head}
            write_atomically(output, header_text(Path(output).stem, sizes, version.places))
            return
        write_atomically(output, version.data)
        where = "offsets are in the file" if version.is_offline else "the runtime's own planner finds the places"
        note(f"{output}: starts and runs in an arena of {least:,} bytes; its head has {version.head:,}; {where}")

    def question(self, graph: CostGraph, order: Sequence[int] | None, file: Path) -> dict[str, Any]:
        """Write a version, or the program as its file is."""
        file.write_bytes(self.program.data if order is None else self.reordered(graph, order).data)
        return {"path": str(file), "times": True}

    def predicted(self, graph: CostGraph, order: Sequence[int] | None) -> tuple[int, float]:
        """Return the bytes of the arena's head, and microseconds."""
        return self._head(graph, order), super().predicted(graph, order)[1]

    def remark(self, reports: Mapping[str, Sequence[Mapping[str, Any]]], note: Note) -> None:
        """Say what the arena of each order is made of."""
        for label, rounds in reports.items():
            if rounds:
                head, tail, least = (rounds[0][name] for name in ("head", "tail", "arena"))
                note(
                    f"arena of {label}: starts and runs in {least:,} bytes; the head (tensors, scratch buffers) has "
                    f"{head:,}, the tail {tail:,} here, where pointers have 64 bits"
                )

    @property
    def tail(self) -> int:
        """Bytes that the runtime keeps beside tensors, on this machine; 0 where the model does not run here."""
        return self.found(False).tail or 0

    def arena(self, graph: CostGraph, order: Sequence[int] | None = None) -> int | None:
        """Return the least bytes of an arena in which the model starts and runs, in the order of the file or another.

        None if the model does not run here.
        """
        key = None if order is None else tuple(order)
        if key not in self._arenas:
            self._arenas[key] = self._least(graph, key)
        return self._arenas[key]

    def _least(self, graph: CostGraph, order: tuple[int, ...] | None) -> int | None:
        if order is not None:
            self.check(graph, order)
            version = self.reordered(graph, order)
            return None if self.arena(graph) is None else ask_bytes(LEAST, version.data, self.model)
        try:
            return None if self.found(False).head is None else ask(LEAST, {"path": self.model})
        except ProgramError:
            return None

    def found(self, times: bool) -> Costs:
        """Return what running the operators shows, with their times or not; they are run once."""
        if times not in self._costs:
            self._costs[times] = self._costs.get(True) or measured_costs(self.program, times)
        return self._costs[times]

    def _head(self, graph: CostGraph, order: Sequence[int] | None) -> int:
        return head_of(self.program, self.found(False).scratch) if order is None else self.reordered(graph, order).head


def ask_bytes(function: str, data: bytes, about: str, **question: Any) -> Any:
    """Ask a function of a file's bytes in a process of its own; `about` is what errors call it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(data)
        return ask(function, {"path": str(path), **question}, about)
