"""TFLite programs: imported as graphs, planned in another order, written as files, and run by TFLM in one arena."""

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...addresses.placing import place_schedule
from ...base.errors import ProgramError, ScheduleError
from ...base.units import format_bytes
from ...files.atomic import write_atomically
from ...files.buffers_csv import header_text
from ...graph.annotations import Annotations, Resident, bytes_held
from ...graph.builder import GraphBuilder
from ...graph.graph import CostGraph
from ...problem.schedule import Schedule
from ..fresh_process import ask
from ..options import Roofline
from ..runtime import Note, Runtime, check_order, problem_of
from .interpreter import Costs, measured_costs
from .planner import ALIGNMENT, Scratch, aligned, called_head, head_of, tensor_places
from .program import ONLINE, Operator, Subgraph, TfliteProgram, load_program, parse_program
from .writing import Edit, Run, edited

INPUTS = "inputs"  # the op in which the caller writes the model's inputs, before every other
IN_PLACE = {"RESHAPE"}  # kinds whose kernel does nothing where its output lies at the address of its input
_STATEFUL = {"ASSIGN_VARIABLE", "CALL_ONCE", "READ_VARIABLE"}
_RANDOM = {"MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"}


def note_unknown(program: TfliteProgram, costs: Costs, note: Callable[[str], None]) -> None:
    """Note the uncounted memory, and the memory that cannot be known here."""
    weights = sum({t.position: t.bytes for s in program.subgraphs for t in s.tensors if t.is_constant}.values())
    if weights:
        note(f"{program.path}: {format_bytes(weights)} of weights stay in the file (flash); they are not counted")
    if costs.head is None:
        note(f"{program.path}: {costs.reason}; scratch buffers of its kernels are not known, and counted as none")
        return
    total = sum(map(sum, costs.scratch.values()))
    if total:
        kinds = sorted({program.subgraphs[s].operators[at].kind for s, at in costs.scratch})
        note(
            f"{program.path}: {format_bytes(total)} of scratch buffers in all for {', '.join(kinds)}, by the kernels "
            "here; those of another processor (CMSIS-NN, Xtensa) may ask for others"
        )
    if costs.unknown:
        note(f"{program.path}: {costs.unknown[0]} does not run alone; its scratch buffers are counted as none")
    predicted = head_of(program, costs.scratch)
    if predicted != costs.head:
        note(
            f"{program.path}: the arena's head has {costs.head:,} bytes in program order, but its tensors and scratch "
            f"buffers need {predicted:,}: the rest is unknown"
        )


def graph_of(program: TfliteProgram, costs: Costs = Costs(), roofline: Roofline = Roofline()) -> CostGraph:
    """Return a program as a computation graph, whose memory is that of TFLM's arena.

    An op that runs subgraphs has their bytes as its workspace, beside its scratch buffers. Ops that touch the same
    variables keep their order, as do custom and random ones; all these run once.
    """
    main = program.main
    builder = GraphBuilder(Path(program.path).stem, program.path)
    given = caller_gives(main)
    if first := len(given) > 0:
        sizes = [aligned(main.tensors[tensor].bytes) for tensor in given]
        builder.add_op(INPUTS, outputs=sizes, final=[tensor in main.outputs for tensor in given], once=True)
    producers = {tensor: (0, port) for port, tensor in enumerate(given)}
    residents = _variables(main, int(first))
    persistent = bytes_held(residents)
    touched_last = dict[str, int]()
    for at, (operator, name) in enumerate(zip(main.operators, program.names, strict=True)):
        arguments = list(dict.fromkeys(tensor for tensor in operator.reads if tensor in producers))
        touched = _touched(program, operator)
        waited = sorted({touched_last[what] for what in touched if what in touched_last})
        is_alone = operator.kind in IN_PLACE and len(operator.outputs) == 1 and bool(operator.reads)
        source = operator.reads[0] if is_alone else -1
        is_view = source in arguments and main.tensors[source].bytes == main.tensors[operator.outputs[0]].bytes
        moved = sum(main.tensors[tensor].bytes for tensor in dict.fromkeys((*operator.reads, *operator.outputs)))
        op = builder.add_op(
            name,
            inputs=[producers[tensor] for tensor in arguments],
            control=waited or ([0] if first and not arguments else []),
            outputs=[aligned(main.tensors[tensor].bytes) for tensor in operator.outputs],
            aliases=[arguments.index(source) if is_view else -1] * len(operator.outputs),
            final=[tensor in main.outputs for tensor in operator.outputs],
            runtime=costs.microseconds.get(at, roofline.microseconds(operator_flops(main, operator), moved)),
            # of scratch buffers, and of the subgraphs that it runs
            workspace=max((called_head(program, costs.scratch, number) for number in operator.calls), default=0)
            + sum(aligned(size) for size in costs.scratch.get((0, at), ())),
            persistent=persistent[at + first],
            once=bool(touched),
        )
        producers.update((tensor, (op, port)) for port, tensor in enumerate(operator.outputs))
        touched_last.update(dict.fromkeys(touched, op))
    return builder.build(Annotations(phases=("forward",) * (len(main.operators) + first), residents=residents))


def caller_gives(main: Subgraph) -> list[int]:
    """Return the tensors that are there before the first operator: inputs, and tensors read but never written."""
    written = {tensor for operator in main.operators for tensor in operator.outputs}
    read = (tensor for operator in main.operators for tensor in operator.reads)
    named = dict.fromkeys((*main.inputs, *read, *main.outputs))
    kept = (n for n in named if not (main.tensors[n].is_constant or main.tensors[n].is_variable or n in written))
    return [n for n in kept if main.tensors[n].bytes]


def _variables(main: Subgraph, first: int) -> tuple[Resident, ...]:
    """Return the variable tensors, each with the ops that read and write it."""
    readers: dict[int, list[int]] = {}
    for op, operator in enumerate(main.operators, first):
        for n in dict.fromkeys(operator.reads):
            if main.tensors[n].is_variable and not main.tensors[n].is_constant:
                readers.setdefault(n, []).append(op)
    found = ((f"variable {n}", main.tensors[n], tuple(ops)) for n, ops in sorted(readers.items()))
    return tuple(Resident(tensor.name or name, "buffer", tensor.bytes, ops[0], ops, ops) for name, tensor, ops in found)


def _touched(program: TfliteProgram, operator: Operator) -> list[str]:
    """Return the names of an operator's side effects beside its outputs, so that it keeps its place among others."""
    main = program.main
    touched = [f"variable {n}" for n in dict.fromkeys(operator.reads) if main.tensors[n].is_variable]
    kinds = {(operator.kind, operator.is_custom)}
    waiting, seen = list(operator.calls), set[int]()
    while waiting:
        called = waiting.pop()
        if called not in seen:
            seen.add(called)
            kinds |= {(inner.kind, inner.is_custom) for inner in program.subgraphs[called].operators}
            waiting += [n for inner in program.subgraphs[called].operators for n in inner.calls]
    changes = {
        "custom": any(is_custom for _, is_custom in kinds),
        "resources": any(kind in _STATEFUL for kind, _ in kinds),
        "random": any(kind in _RANDOM for kind, _ in kinds),
        f"operator at {operator.position}": bool(operator.intermediates),
    }
    return [*touched, *(name for name, is_changed in changes.items() if is_changed)]


def operator_flops(main: Subgraph, operator: Operator) -> int:
    """Return the arithmetic operations of an operator: two per multiply-add, else one per element."""
    shapes = [main.tensors[tensor].shape for tensor in operator.reads]
    elements = sum(math.prod(main.tensors[tensor].shape) for tensor in operator.outputs)
    kind = operator.kind
    if kind in ("CONV_2D", "FULLY_CONNECTED", "CONV_3D") and len(shapes) > 1:  # a filter's first dimension: outputs
        return 2 * elements * math.prod(shapes[1][1:])
    if kind == "DEPTHWISE_CONV_2D" and len(shapes) > 1:
        return 2 * elements * math.prod(shapes[1][1:3])
    if kind == "TRANSPOSE_CONV" and len(shapes) > 2:
        return 2 * math.prod(shapes[2]) * math.prod(shapes[1][:3])
    if kind == "BATCH_MATMUL" and shapes and shapes[0]:
        return 2 * elements * shapes[0][-1]
    if kind in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "ARG_MAX", "ARG_MIN") and shapes:
        return math.prod(shapes[0])
    return elements


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

    The offsets are those of `place_schedule`, or TFLM's planner finds them where that takes less or there are several
    subgraphs, for each of which older versions of TFLM read them from the first one on.
    """
    runs, copies = _runs(program, order)
    moved = {(0, at): scratch[0, run.operator] for at, run in enumerate(runs) if (0, run.operator) in scratch}
    kept = {**moved, **{place: sizes for place, sizes in scratch.items() if place[0]}}
    plans = [_offsets(program, graph, order, runs, len(copies)), None] if len(program.subgraphs) == 1 else [None]
    files = [edited(program, Edit(runs, copies, offsets=offsets)) for offsets in plans]
    read = [parse_program(data, program.path) for data in files]
    heads = [head_of(new, kept) for new in read]
    best = heads.index(min(heads))
    return Planned(files[best], heads[best], plans[best] is not None, tensor_places(read[best], kept))


def _runs(program: TfliteProgram, order: Sequence[int]) -> tuple[list[Run], list[tuple[int, str]]]:
    """Return the runs of operators, and the tensors that each run but an operator's last one writes in place of its."""
    main, first = program.main, len(caller_gives(program.main)) > 0
    runs, copies, latest = list[Run](), list[tuple[int, str]](), dict[int, int]()
    last = {op: step for step, op in enumerate(order)}
    for step, op in enumerate(order):
        if op < first:
            continue
        operator = main.operators[op - first]
        inputs = tuple(latest.get(tensor, tensor) for tensor in operator.inputs)
        for tensor in operator.outputs:
            latest[tensor] = tensor
            if last[op] != step:
                latest[tensor] = len(main.tensors) + len(copies)
                copies.append((tensor, f"{main.tensors[tensor].name} (run {step})"))
        runs.append(Run(op - first, inputs, tuple(latest[tensor] for tensor in operator.outputs)))
    return runs, copies


def _offsets(program: TfliteProgram, graph: CostGraph, order: Sequence[int], runs: list[Run], copies: int) -> list[int]:
    """Return the offset of each tensor of the new file; those without a place in the head have `ONLINE`."""
    made = place_schedule(problem_of(graph, order), Schedule.single_device(np.array(order)), ALIGNMENT).made
    given, left = caller_gives(program.main), iter(runs)
    offsets = [ONLINE] * (len(program.main.tensors) + copies)
    for op, places in zip(order, made, strict=True):
        for tensor, offset in zip(given if given and not op else next(left).outputs, places, strict=True):
            offsets[tensor] = offset
    return offsets


class TfliteRuntime(Runtime[Planned]):
    """A TFLite file; a version of it has its operators in another order, and the offsets of its tensors."""

    runs = "tflite.interpreter:run_file"

    def load(self, note: Note) -> None:
        """Read the file."""
        self.program = load_program(self.model)
        self._costs: dict[bool, Costs] = {}
        self._planned: dict[tuple[int, ...], Planned] = {}
        self._least = cache(lambda data: int(ask_bytes(LEAST, data, self.model)))

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
        scratch = self.found(False).scratch
        head = head_of(self.program, scratch) if order is None else self.reordered(graph, order).head
        return head, super().predicted(graph, order)[1]

    def remark(self, reports: Mapping[str, Sequence[Mapping[str, Any]]], note: Note) -> None:
        """Return the parts of the arena of each order."""
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
        """Return the least bytes of an arena in which an order starts and runs; None if the model does not run here."""
        try:
            least = None if self.found(False).head is None else self._least(self.program.data)
        except ProgramError:
            least = None
        if order is None or least is None:
            return least
        check_order(graph, order)
        return self._least(self.reordered(graph, order).data)

    def found(self, times: bool) -> Costs:
        """Return the observations of running the operators, with their times or not; they are run once."""
        if times not in self._costs:
            self._costs[times] = self._costs.get(True) or measured_costs(self.program, times)
        return self._costs[times]


def ask_bytes(function: str, data: bytes, about: str, **question: Any) -> Any:
    """Ask a function of a file's bytes in a process of its own; `about` is its name in errors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(data)
        return ask(function, {"path": str(path), **question}, about)
