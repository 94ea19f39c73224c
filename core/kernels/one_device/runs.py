"""Prices of sequences that may run an op several times, on one device, and where their memory lives.

Every run makes its outputs anew; a reader reads the latest run before it. The rules are those of
`core.costs.unrolled`; here a whole sequence is priced in two passes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import BoolArray, FloatArray, IndexArray, IntArray, csr
from ...graph import CostGraph
from ..jit import kernel

INVALID = -1.0


class RunGraph(NamedTuple):
    """A graph as sequences of runs need it; control tensors are edges between ops.

    Parameters
    ----------
    read_ptr, reads
        CSR op -> the distinct tensors it reads.
    made_ptr, made
        CSR op -> the tensors it makes.
    alias, size, is_final, producer
        Per tensor: what it is a view of or -1, bytes, whether it is kept, and its op.
    pred_ptr, preds, succ_ptr, succs
        CSR op -> ops that it reads or waits for, and those that read it or wait for it.
    wait_ptr, waits, follow_ptr, follows
        CSR op -> ops that it waits for by control edges, and those that so wait for it.
    runs_once, runtime, workspace, rank
        Per op: whether it may not run again, microseconds, bytes, its place in the input order.
    persistent
        Bytes throughout.
    """

    read_ptr: IndexArray
    reads: IndexArray
    made_ptr: IndexArray
    made: IndexArray
    alias: IndexArray
    size: IntArray
    is_final: BoolArray
    producer: IndexArray
    pred_ptr: IndexArray
    preds: IndexArray
    succ_ptr: IndexArray
    succs: IndexArray
    wait_ptr: IndexArray
    waits: IndexArray
    follow_ptr: IndexArray
    follows: IndexArray
    runs_once: BoolArray
    runtime: FloatArray
    workspace: IntArray
    rank: IndexArray
    persistent: int


def run_graph(graph: CostGraph) -> RunGraph:
    """Return the arrays of a graph."""
    ops, tensors = graph.num_ops, np.arange(graph.num_tensors)
    readers = np.repeat(np.arange(ops), np.diff(graph.inputs[0]))
    is_data = ~graph.is_control[graph.inputs[1]]
    waiting, waited = readers[~is_data], graph.tensor_producer[graph.inputs[1][~is_data]]
    rank = np.empty(ops, np.int32)
    rank[graph.input_order] = np.arange(ops)
    data = tensors[~graph.is_control]
    return RunGraph(
        *csr(readers[is_data], graph.inputs[1][is_data], ops),
        *csr(graph.tensor_producer[data], data, ops),
        graph.alias_of,
        graph.tensor_size,
        graph.is_final,
        graph.tensor_producer,
        *graph.predecessors,
        *graph.successors,
        *csr(waiting, waited, ops),
        *_sorted_csr(waited, waiting, ops),
        graph.runs_once,
        graph.runtime,
        graph.workspace,
        rank,
        int(graph.persistent.sum()),
    )


def _sorted_csr(keys: Any, values: Any, count: int) -> tuple[IndexArray, IndexArray]:
    order = np.lexsort((values, keys))
    return csr(keys[order], values[order], count)


class Runs(NamedTuple):
    """A sequence of runs and, once it is priced, its memory; a pair of each, since a move is tried beside the best.

    Parameters
    ----------
    items, length
        Shapes `(2, capacity)` and `(2,)`: ops, and how many.
    times
        Shape `(2, ops)`: how often each op runs.
    memory
        Shape `(2, capacity)`: bytes that each run takes.
    used
        Shape `(2, capacity)`: how many times what a run made is read.
    buffers
        Shape `(2,)`: how many buffers there are, which the following describe.
    first, last, bytes, root
        Shapes `(2, buffer capacity)`: the run that makes a buffer, the last one that needs it, its bytes, its tensor.
    kept
        Shape `(2, buffer capacity)`: whether it stays to the end.
    use_ptr, use_tensor, use_buffer
        CSR run -> the tensors it reads, and the buffers that hold them; shapes `(2, capacity + 1)`, `(2, uses)`.
    here, run_of, done, change
        Scratch: per tensor the buffer and run that hold it; per op whether it ran; per run a change of bytes.
    """

    items: IndexArray
    length: IndexArray
    times: IndexArray
    memory: IntArray
    used: IndexArray
    buffers: IndexArray
    first: IndexArray
    last: IndexArray
    bytes: IntArray
    root: IndexArray
    kept: BoolArray
    use_ptr: IndexArray
    use_tensor: IndexArray
    use_buffer: IndexArray
    here: IndexArray
    run_of: IndexArray
    done: IndexArray
    change: IntArray


def new_runs(g: RunGraph, capacity: int) -> Runs:
    """Allocate room for sequences of at most `capacity` runs."""
    ops, tensors = g.runtime.size, g.size.size
    most_made = max(1, int(np.diff(g.made_ptr).max()))
    most_read = max(1, int(np.diff(g.read_ptr).max()))
    extra = capacity - ops
    buffers, uses = tensors + extra * most_made, g.reads.size + extra * most_read
    index = np.int32
    return Runs(
        items=np.zeros((2, capacity), index),
        length=np.zeros(2, index),
        times=np.zeros((2, ops), index),
        memory=np.zeros((2, capacity), np.int64),
        used=np.zeros((2, capacity), index),
        buffers=np.zeros(2, index),
        first=np.zeros((2, buffers), index),
        last=np.zeros((2, buffers), index),
        bytes=np.zeros((2, buffers), np.int64),
        root=np.zeros((2, buffers), index),
        kept=np.zeros((2, buffers), np.bool_),
        use_ptr=np.zeros((2, capacity + 1), index),
        use_tensor=np.zeros((2, uses), index),
        use_buffer=np.zeros((2, uses), index),
        here=np.zeros(tensors, index),
        run_of=np.zeros(tensors, index),
        done=np.zeros(ops, index),
        change=np.zeros(capacity + 1, np.int64),
    )


@kernel
def price_runs(g: RunGraph, s: Runs, at: int, limit: int) -> tuple[float, Any, float]:
    """Price sequence `at`.

    Returns
    -------
    tuple
        The bytes above the limit, summed over the runs (`INVALID` if a run comes before its inputs or after what waits
        for its op), the peak in bytes, and the microseconds.
    """
    length = s.length[at]
    for op in range(g.runtime.size):
        s.times[at, op] = 0
        s.done[op] = 0
    for tensor in range(g.size.size):
        s.here[tensor] = -1
    for step in range(length):
        s.times[at, s.items[at, step]] += 1
        s.change[step] = 0
        s.used[at, step] = 0
    s.change[length] = 0
    if not _place(g, s, at):
        return INVALID, 0, 0.0
    for buffer in range(s.buffers[at]):
        s.change[s.first[at, buffer]] += s.bytes[at, buffer]
        if not s.kept[at, buffer]:
            s.change[s.last[at, buffer] + 1] -= s.bytes[at, buffer]
    held = g.persistent
    peak = np.int64(0)
    excess = 0.0
    microseconds = 0.0
    for step in range(length):
        op = s.items[at, step]
        held += s.change[step]
        memory = held + g.workspace[op]
        s.memory[at, step] = memory
        peak = max(peak, memory)
        excess += max(0, memory - limit)
        microseconds += g.runtime[op]
    return excess, peak, microseconds


@kernel
def _place(g: RunGraph, s: Runs, at: int) -> bool:
    """Find which run makes what each run reads, and until when it is needed; whether the sequence is valid."""
    buffers = 0
    uses = 0
    for step in range(s.length[at]):
        op = s.items[at, step]
        for k in range(g.follow_ptr[op], g.follow_ptr[op + 1]):
            if s.done[g.follows[k]] > 0:
                return False
        for k in range(g.wait_ptr[op], g.wait_ptr[op + 1]):
            if s.done[g.waits[k]] == 0:
                return False
        s.use_ptr[at, step] = uses
        for k in range(g.read_ptr[op], g.read_ptr[op + 1]):
            tensor = g.reads[k]
            buffer = s.here[tensor]
            if buffer < 0:
                return False
            s.last[at, buffer] = step
            s.used[at, s.run_of[tensor]] += 1
            s.use_tensor[at, uses] = tensor
            s.use_buffer[at, uses] = buffer
            uses += 1
        s.done[op] += 1
        is_last = s.done[op] == s.times[at, op]
        for k in range(g.made_ptr[op], g.made_ptr[op + 1]):
            tensor = g.made[k]
            if g.alias[tensor] >= 0:
                buffer = s.here[g.alias[tensor]]
            else:
                buffer = buffers
                buffers += 1
                s.first[at, buffer] = step
                s.bytes[at, buffer] = g.size[tensor]
                s.root[at, buffer] = tensor
                s.kept[at, buffer] = False
            s.last[at, buffer] = step
            if g.is_final[tensor] and is_last:
                s.kept[at, buffer] = True
            s.here[tensor] = buffer
            s.run_of[tensor] = step
    s.use_ptr[at, s.length[at]] = uses
    s.buffers[at] = buffers
    return True
