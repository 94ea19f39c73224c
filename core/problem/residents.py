"""Tensors with a home: tensors that the caller gives and keeps lie on one device from the first step to the last.

On one device such a tensor is so many persistent bytes. On several it has a place of its own: an op without runtime
at the end of the graph holds it, runs on its home, and every op that reads the tensor reads that of the op.

An op reads a resident in the state of the caller, or in that of an op that wrote it in place. Both can be
sent to readers elsewhere. The state is that of the last writer that a reader comes after. Where some writer comes
neither before nor after a reader it depends on the order, and of a writer of several residents no output is known to be
one of them; such readers stay at the home.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..base.arrays import BoolArray, IndexArray, IntArray, csr, frozen
from ..base.errors import GraphError
from ..graph.annotations import Resident
from ..graph.graph import CostGraph


class States(NamedTuple):
    """Who reads which state of a resident."""

    # by reader, the tensor of the writer that it comes after, which it reads in place of the resident
    later: dict[int, int]
    # ascending: ops that only run at the home, those that write it and readers whose state is not known
    at_home: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class GraphWithHomes(CostGraph):
    """A graph whose residents are held by ops of their own, after those of the model; `with_homes` makes it.

    Op `model.num_ops + n` holds resident `n` of `held`: it takes no time, its persistent bytes are the tensor's, and
    tensor `model.num_tensors + n` is read by others; that takes no further bytes where its home is. The state that a
    writer leaves of it is a view of that tensor, if anybody reads it: a copy of it takes as many bytes.
    """

    model: CostGraph = None  # type: ignore[assignment]
    held: tuple[Resident, ...] = ()
    states: tuple[States, ...] = ()
    holds_all: bool = True

    @cached_property
    def is_written(self) -> BoolArray:
        """Whether some op writes each resident in place, shape `(residents,)`."""
        return frozen([bool(resident.writers) for resident in self.held], np.bool_)

    def read_away(self, placement: IndexArray) -> IndexArray:
        """Return the residents of which some op reads any state on another device than their home."""
        pointers, readers = self.consumers
        read = np.repeat(np.arange(self.num_tensors), np.diff(pointers))
        number = self.root[read] - self.model.num_tensors
        is_away = placement[readers] != placement[self.tensor_producer[read]]
        found: IndexArray = np.unique(number[(number >= 0) & is_away])
        return found


def model_of(graph: CostGraph) -> CostGraph:
    """Return a graph without homes: the model's own."""
    return graph.model if isinstance(graph, GraphWithHomes) else graph


def first_home(graph: CostGraph) -> int:
    """Return how many ops of a graph are the model's own; those from there on hold residents."""
    return model_of(graph).num_ops


def holders(graph: CostGraph) -> list[int]:
    """Return the op among whose persistent bytes each resident of the annotations is, -1 if it is not counted."""
    held = graph.held if isinstance(graph, GraphWithHomes) else ()
    place = {id(resident): first_home(graph) + number for number, resident in enumerate(held)}
    return [place.get(id(resident), resident.op) for resident in graph.annotations.residents]


def with_homes(graph: CostGraph, *, holds_all: bool = True) -> CostGraph:
    """Return a graph in which residents have a home, which they keep if all have one; the model's own without any."""
    if isinstance(graph, GraphWithHomes) and graph.holds_all >= holds_all:
        return graph
    graph = model_of(graph)
    held = tuple(
        r for r in graph.annotations.residents if r.op >= 0 and r.size > 0 and (holds_all or len(_users(r)) > 1)
    )
    if not held:
        return graph
    ops, tensors, count = graph.num_ops, graph.num_tensors, len(held)
    sizes, states = [r.size for r in held], tuple(states_of(graph, held))
    read_ptr, read_tensor = _reads(graph, held, states)
    size, alias = graph.tensor_size.copy(), graph.alias_of.copy()
    for number, state in enumerate(states):
        left = [*state.later.values()]
        size[left], alias[left] = sizes[number], tensors + number
    blank = {name: getattr(graph, name) for name in ("runtime", "workspace", "is_final", "is_control", "runs_once")}
    known = graph.annotations
    remarks: dict[str, Any] = {
        name: (*values, *("",) * count)
        for name in ("modules", "lines", "phases", "devices")
        if (values := getattr(known, name))
    }
    free_id = int(graph.op_ids.max()) + 1
    return GraphWithHomes(
        name=graph.name,
        op_names=(*graph.op_names, *_names(graph, held)),
        op_ids=frozen(np.append(graph.op_ids, np.arange(free_id, free_id + count)), np.int64),
        persistent=frozen(np.append(_persistent_without(graph, held), sizes), np.int64),
        output_ptr=frozen(np.append(graph.output_ptr, np.arange(tensors + 1, tensors + count + 1)), np.int32),
        read_ptr=read_ptr,
        read_tensor=read_tensor,
        input_order=frozen(np.append(np.arange(ops, ops + count), graph.input_order), np.int32),
        tensor_size=frozen(np.append(size, sizes), np.int64),
        alias_of=frozen(np.append(alias, [-1] * count), np.int32),
        annotations=replace(known, **remarks),
        model=graph,
        held=held,
        states=states,
        holds_all=holds_all,
        **{name: frozen(np.append(own, np.zeros(count, own.dtype)), own.dtype) for name, own in blank.items()},
    )


def _persistent_without(graph: CostGraph, held: tuple[Resident, ...]) -> IntArray:
    """Return the persistent bytes of ops that are not those of residents."""
    persistent = graph.persistent.copy()
    np.subtract.at(persistent, [r.op for r in held], [r.size for r in held])
    if len(wrong := np.flatnonzero(persistent < 0)):
        op = int(wrong[0])
        raise GraphError(
            f"{graph.name}: residents of op {graph.op_label(op)} have {int(graph.persistent[op] - persistent[op])} "
            f"bytes, but it has {int(graph.persistent[op])} persistent bytes"
        )
    return persistent


def _users(resident: Resident) -> list[int]:
    return sorted({*resident.readers, *resident.writers, resident.op})


def _reads(graph: CostGraph, held: tuple[Resident, ...], states: tuple[States, ...]) -> tuple[Any, Any]:
    """Return the inputs of each op, with the states of residents that it reads or writes behind the rest."""
    own = np.repeat(np.arange(graph.num_ops), np.diff(graph.read_ptr)), graph.read_tensor
    more = [
        (op, state.later.get(op, graph.num_tensors + number))
        for number, (resident, state) in enumerate(zip(held, states, strict=True))
        for op in _users(resident)
    ]
    rows, columns = np.array(more, np.int64).reshape(-1, 2).T
    return csr(np.append(own[0], rows), np.append(own[1], columns), graph.num_ops + len(held))


def _names(graph: CostGraph, held: tuple[Resident, ...]) -> list[str]:
    """Return a name for each resident that nothing else has."""
    taken = set(graph.op_names)
    names = []
    for resident in held:
        name = resident.name or "resident"
        while name in taken:
            name += "'"
        taken.add(name)
        names.append(name)
    return names


def states_of(graph: CostGraph, held: tuple[Resident, ...]) -> list[States]:
    """Return who reads which state of each resident."""
    writes = Counter(op for resident in graph.annotations.residents for op in set(resident.writers))
    written = {op for resident in held for op in resident.writers}
    order = [op for op in graph.input_order.tolist() if op in written]
    bits = {op: 1 << at for at, op in enumerate(order)}
    before, after = _writers_around(graph, bits)
    pointers, reads = graph.inputs
    found = []
    for resident in held:
        left = {op: _left_by(graph, op, resident) if writes[op] == 1 else None for op in resident.writers}
        every, later, kept = sum(bits[op] for op in left), dict[int, int](), set(left)
        for reader in {*resident.readers} - kept if left else ():
            earlier = every & before[reader]
            if after[reader] & every == every:
                continue
            last = order[earlier.bit_length() - 1] if earlier else -1
            is_known = earlier | after[reader] & every == every and not earlier & ~before[last] & ~bits.get(last, 0)
            others = {state for writer, state in left.items() if writer != last}
            if (
                is_known
                and (state := left.get(last)) is not None
                and others.isdisjoint(reads[pointers[reader] : pointers[reader + 1]].tolist())
            ):
                later[reader] = state
            else:
                kept.add(reader)
        found.append(States(later, tuple(sorted(kept))))
    return found


def _left_by(graph: CostGraph, writer: int, resident: Resident) -> int | None:
    """Return the tensor that a writer leaves: its only one, without bytes, and all who read it are users."""
    made = [tensor for tensor in graph.outputs(writer) if not graph.is_control[tensor]]
    if len(made) != 1 or graph.tensor_size[made[0]] or graph.alias_of[made[0]] >= 0 or graph.is_final[made[0]]:
        return None
    pointers, consumers = graph.consumers
    readers = consumers[pointers[made[0]] : pointers[made[0] + 1]].tolist()
    return made[0] if {*readers} <= {*resident.readers, *resident.writers} else None


def _writers_around(graph: CostGraph, bits: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """Return the writers that each op comes after, and those that come after it, as sums of their bits."""
    before, after = [0] * graph.num_ops, [0] * graph.num_ops
    pointers, flat = (column.tolist() for column in graph.predecessors)
    predecessors = [flat[a:b] for a, b in pairwise(pointers)]
    order = graph.input_order.tolist() if bits else []
    for op in order:
        for earlier in predecessors[op]:
            before[op] |= before[earlier] | bits.get(earlier, 0)
    for op in reversed(order):
        for earlier in predecessors[op]:
            after[earlier] |= after[op] | bits.get(op, 0)
    return before, after
