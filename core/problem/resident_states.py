"""Which state of a resident each op reads: what the caller gave, or what an op that writes it in place left.

Both can be sent to readers elsewhere. The state is that of the last writer that a reader comes after. Where some writer
comes neither before nor after a reader it depends on the order, and of a writer of several residents no output is known
to be one of them; such readers stay at the home.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from ..graph.annotations import Resident
from ..graph.graph import CostGraph


class States(NamedTuple):
    """Who reads which state of a resident.

    Parameters
    ----------
    later
        By reader, the tensor of the writer that it comes after, which it reads in place of the resident.
    at_home
        Ascending: ops that only run at the home, those that write it and readers whose state is not known.
    """

    later: dict[int, int]
    at_home: tuple[int, ...]


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
    """Return the tensor that is what a writer leaves: its only one, without bytes, and all who read it are users."""
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
