"""The independent verifier of schedules that run ops several times, on one device, in plain Python.

It shares no code with the kernels, nor with the unrolled graphs on which these price such a schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..base.errors import ScheduleError
from ..graph.graph import CostGraph


@dataclass
class _Memory:
    """Bytes that one run of an op took, shared by the views that later runs made of them."""

    size: int
    taken: int
    needed: int
    is_kept: bool = False
    tensors: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Replayed:
    """What the replay of an order found.

    Parameters
    ----------
    memory
        Per run the bytes held while it runs, its workspace included.
    freed
        Per run the tensors whose bytes are gone after it, of whichever run made them.
    """

    memory: list[int]
    freed: list[set[int]]


def replay_runs(graph: CostGraph, order: list[int]) -> Replayed:
    """Replay runs of ops, each of which makes its outputs anew; a reader reads the latest run before it.

    Parameters
    ----------
    graph
        What is run; its `runs_once` says which ops may not run again.
    order
        Shape `(runs,)`: ops.

    Raises
    ------
    ScheduleError
        Naming the first op that never runs, runs again although it may not, runs without an input, or runs again
        after one that waits for it.
    """
    names = graph.op_names
    runs_of: dict[int, list[int]] = {}
    for run, op in enumerate(order):
        if not 0 <= op < len(names):
            raise ScheduleError(f"{graph.name}: the schedule names item {op}, which the graph does not have")
        runs_of.setdefault(op, []).append(run)
    for op, name in enumerate(names):
        if op not in runs_of:
            raise ScheduleError(f"{graph.name}: op '{name}' never runs")
        if len(runs_of[op]) > 1 and graph.runs_once[op]:
            raise ScheduleError(f"{graph.name}: op '{name}' runs twice, but may only run once")
    memories = _lifetimes(graph, order, runs_of)
    held = sum(int(size) for size in graph.persistent)
    taken: dict[int, list[_Memory]] = {}
    dropped: dict[int, list[_Memory]] = {}
    for memory in memories:
        taken.setdefault(memory.taken, []).append(memory)
        if not memory.is_kept:
            dropped.setdefault(memory.needed, []).append(memory)
    steps, freed = [], []
    for run, op in enumerate(order):
        held += sum(memory.size for memory in taken.get(run, ()))
        steps.append(held + int(graph.workspace[op]))
        gone = dropped.get(run, [])
        held -= sum(memory.size for memory in gone)
        freed.append({tensor for memory in gone for tensor in memory.tensors})
    return Replayed(steps, freed)


def _lifetimes(graph: CostGraph, order: list[int], runs_of: dict[int, list[int]]) -> list[_Memory]:
    """Return every piece of memory that the runs take, with the run that needs it last."""
    reads = [set() for _ in graph.op_names]  # type: list[set[int]]
    at = graph.read_ptr.tolist()
    for op in range(len(graph.op_names)):
        reads[op].update(graph.read_tensor[at[op] : at[op + 1]].tolist())
    maker = graph.tensor_producer.tolist()
    waiting: dict[int, set[int]] = {}
    for op, tensors in enumerate(reads):
        for tensor in tensors:
            if graph.is_control[tensor]:
                waiting.setdefault(maker[tensor], set()).add(op)
    memories: list[_Memory] = []
    current: dict[int, _Memory] = {}  # tensor -> where its latest run put it
    done: set[int] = set()
    for run, op in enumerate(order):
        late = waiting.get(op, set()) & done
        if late:
            raise ScheduleError(
                f"{graph.name}: op '{graph.op_names[op]}' runs again after op '{graph.op_names[min(late)]}', "
                "which may only run after it"
            )
        for tensor in reads[op]:
            if maker[tensor] not in done:
                raise ScheduleError(
                    f"{graph.name}: op '{graph.op_names[op]}' runs before its input '{graph.tensor_name(tensor)}'"
                )
            if not graph.is_control[tensor]:
                current[tensor].needed = run
        for tensor in graph.outputs(op):
            if graph.is_control[tensor]:
                continue
            base = int(graph.alias_of[tensor])
            if base >= 0:
                memory = current[base]
            else:
                memory = _Memory(int(graph.tensor_size[tensor]), run, run)
                memories.append(memory)
            memory.needed = run
            memory.tensors.add(tensor)
            memory.is_kept |= bool(graph.is_final[tensor]) and runs_of[op][-1] == run
            current[tensor] = memory
        done.add(op)
    return memories
