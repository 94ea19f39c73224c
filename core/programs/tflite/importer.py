"""A TFLite model as a computation graph, with the memory that TensorFlow Lite for Microcontrollers gives it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from ...base.units import format_bytes
from ...graph.annotations import Annotations, Resident
from ...graph.builder import GraphBuilder
from ...graph.graph import CostGraph
from ..options import Roofline
from .costs import NO_COSTS, Costs
from .planner import aligned, called_head, head_of
from .program import Operator, Subgraph, TfliteProgram

INPUTS = "inputs"
"""The op in which the caller writes the model's inputs, before every other."""

IN_PLACE = {"RESHAPE"}
"""Kinds whose kernel does nothing where its output lies at the address of its input."""

_STATEFUL = {"ASSIGN_VARIABLE", "CALL_ONCE", "READ_VARIABLE"}
_RANDOM = {"MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"}


def note_unknown(program: TfliteProgram, costs: Costs, note: Callable[[str], None]) -> None:
    """Say what is not counted, and what of a model's memory cannot be known here."""
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
            f"{program.path}: the arena's head is {costs.head:,} bytes in program order, {predicted:,} by its tensors "
            "and scratch buffers: something in it is not known here"
        )


def graph_of(program: TfliteProgram, costs: Costs = NO_COSTS, roofline: Roofline | None = None) -> CostGraph:
    """Return a program as a computation graph, whose memory is that of TFLM's arena.

    - Sizes are rounded up to 16 bytes, the arena's alignment. Weights stay in the file and take nothing.
    - The first op, `inputs`, stands for the caller, who writes all inputs; each is freed after its last reader.
    - Outputs of the model are final. Variable tensors are persistent bytes of the first op that reads them.
    - The output of an op of `IN_PLACE` is a view of its input: an offline plan puts both at one address.
    - An op that runs subgraphs has what these hold as its workspace, beside its scratch buffers.
    - Ops that touch the same variables keep their order, as do custom and random ones; all these run once.
    """
    roofline = roofline or Roofline()
    main = program.main
    builder = GraphBuilder(Path(program.path).stem, program.path)
    given = caller_gives(main)
    if first := len(given) > 0:
        sizes = [aligned(main.tensors[tensor].bytes) for tensor in given]
        builder.add_op(INPUTS, outputs=sizes, final=[tensor in main.outputs for tensor in given], once=True)
    producers = {tensor: (0, port) for port, tensor in enumerate(given)}
    residents = _variables(main, int(first))
    persistent = Counter[int]()
    for resident in residents:
        persistent[resident.op] += resident.size
    touched_last = dict[str, int]()
    for at, (operator, name) in enumerate(zip(main.operators, program.names, strict=True)):
        arguments = list(dict.fromkeys(tensor for tensor in operator.reads if tensor in producers))
        touched = _touched(program, operator)
        waited = sorted({touched_last[what] for what in touched if what in touched_last})
        view = arguments.index(operator.reads[0]) if _is_view(main, operator, arguments) else -1
        op = builder.add_op(
            name,
            inputs=[producers[tensor] for tensor in arguments],
            control=waited or ([0] if first and not arguments else []),
            outputs=[aligned(main.tensors[tensor].bytes) for tensor in operator.outputs],
            aliases=[view] * len(operator.outputs),
            final=[tensor in main.outputs for tensor in operator.outputs],
            runtime=costs.microseconds.get(at, _roofline_time(main, operator, roofline)),
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
    """Return the tensors that are there before the first operator: inputs, and what is read but never written."""
    written = {tensor for operator in main.operators for tensor in operator.outputs}
    read = (tensor for operator in main.operators for tensor in operator.reads)
    named = dict.fromkeys((*main.inputs, *read, *main.outputs))
    kept = (n for n in named if not (main.tensors[n].is_constant or main.tensors[n].is_variable or n in written))
    return [n for n in kept if main.tensors[n].bytes]


def _variables(main: Subgraph, first: int) -> tuple[Resident, ...]:
    """Return the variable tensors, each with the ops that read and write it."""
    readers: dict[int, list[int]] = {}
    for at, operator in enumerate(main.operators):
        for tensor in dict.fromkeys(operator.reads):
            if main.tensors[tensor].is_variable and not main.tensors[tensor].is_constant:
                readers.setdefault(tensor, []).append(at + first)
    found = []
    for tensor, ops in sorted(readers.items()):
        name, size = main.tensors[tensor].name or f"variable {tensor}", main.tensors[tensor].bytes
        found.append(Resident(name, "buffer", size, ops[0], tuple(ops), tuple(ops)))
    return tuple(found)


def _is_view(main: Subgraph, operator: Operator, arguments: Sequence[int]) -> bool:
    """Whether an operator's output lies where its input does."""
    if operator.kind not in IN_PLACE or len(operator.outputs) != 1 or not operator.reads:
        return False
    source, result = operator.reads[0], operator.outputs[0]
    return source in arguments and main.tensors[source].bytes == main.tensors[result].bytes


def _touched(program: TfliteProgram, operator: Operator) -> list[str]:
    """Return the names of what an operator changes beside its outputs, so that it keeps its place among others."""
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


def _roofline_time(main: Subgraph, operator: Operator, roofline: Roofline) -> float:
    """Return the time of an operator by the roofline."""
    moved = sum(main.tensors[tensor].bytes for tensor in dict.fromkeys((*operator.reads, *operator.outputs)))
    return roofline.microseconds(operator_flops(main, operator), moved)


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
