"""BRKGA on random keys: decoding and pricing chromosomes, and crossover (REGAL 3.2, A.5)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, IndexArray, IntArray
from .. import cost_model
from ..cost_model import MachineArrays, Scratch, State, Steps, TimedSteps
from ..graph_arrays import GraphArrays, most_transfers
from ..heap import larger_first, pop, push
from ..jit import inlined, kernel

_LARGEST_ITEM = np.int64(2**31 - 1)
_PRIORITY_STEPS = np.float64(2**32)


@inlined
def _key(priority: float, item: int) -> Any:
    """Pack a priority in [0, 1] and an item into one number: higher priority first, then the smaller item."""
    steps = np.int64(min(np.float64(priority) * _PRIORITY_STEPS, _PRIORITY_STEPS - 1.0))
    return (steps << 31) | (_LARGEST_ITEM - item)


class Queue(NamedTuple):
    """Where the ops may be, as in `PlacementRules`, and the decoder's scratch."""

    allowed: BoolArray
    group: IndexArray
    fixed_op: int  # stays on device 0, -1 for none
    state: State
    heap: IntArray
    scratch: Scratch  # for transfers beside work alone
    steps: TimedSteps


def new_queue(g: GraphArrays, m: MachineArrays, allowed: BoolArray, group: Any, fixed_op: int, memory: bool) -> Queue:
    """Allocate the scratch."""
    devices = m.times.shape[1]
    timed = devices if m.beside else 1
    return Queue(
        allowed,
        group,
        fixed_op,
        state=cost_model.new_state(g, devices, memory and not m.beside),
        heap=np.empty(len(g.runtime) + most_transfers(g, devices), np.int64),
        scratch=cost_model.new_scratch(g, timed),
        steps=cost_model.new_timed_steps(g, timed),
    )


@inlined
def _place(q: Queue, genes: Any) -> None:
    """Put each op where it may be and its group's affinity is largest, the first of equals."""
    placement, devices = q.state.placement, q.state.clock.size
    for op in range(placement.size):
        first, best = q.group[op] * devices, -1
        for device in range(devices):
            better = (best < 0) | (genes[first + device] > genes[first + max(best, 0)])
            best = device if q.allowed[op, device] & better else best
        placement[op] = best
    if q.fixed_op >= 0:
        placement[q.fixed_op] = 0


@kernel
def decode(g: GraphArrays, m: MachineArrays, q: Queue, genes: Any, memory: bool, steps: Any) -> tuple[int, bool]:
    """Run the schedule that a chromosome encodes: always the ready op or transfer of highest priority."""
    # Returns the number of steps, which are written if they are asked for, and whether all transfers have a link.
    s, heap = q.state, q.heap
    ops, devices = g.runtime.size, s.clock.size
    priorities = ops * devices
    transfers = priorities + ops
    _place(q, genes)
    cost_model.start(g, m, s, memory)
    size = 0
    for op in range(ops):
        if s.pending[op] == 0:
            size = push(heap, size, _key(genes[priorities + op], op), genes, larger_first)
    step, linked = 0, True
    while size > 0:
        item = _LARGEST_ITEM - (heap[0] & _LARGEST_ITEM)
        size = pop(heap, size, genes, larger_first)
        if item < ops:
            step = cost_model.write_step(steps, step, item, s.placement[item])
            ready, due = cost_model.step_op(g, m, s, item, memory)
            for at in range(due):
                cell = s.transfers[at]
                size = push(heap, size, _key(genes[transfers + cell], ops + cell), genes, larger_first)
        else:
            tensor, target = divmod(item - ops, devices)
            step = cost_model.write_step(steps, step, ~tensor, target)
            linked = linked and m.latency[s.placement[g.producer[tensor]], target] < np.inf
            ready = cost_model.step_transfer(g, m, s, tensor, target, memory)
        for at in range(ready):
            size = push(heap, size, _key(genes[priorities + s.ready[at]], s.ready[at]), genes, larger_first)
    return step, linked


@inlined
def _time(g: GraphArrays, m: MachineArrays, q: Queue, count: int, memory: bool) -> float:
    """Return the makespan of decoded steps whose transfers run beside ops; fills the peaks."""
    z, steps = q.scratch, TimedSteps(q.steps.items[:count], q.steps.targets[:count], q.steps.start, q.steps.end)
    for op in range(z.placement.size):
        z.placement[op] = q.state.placement[op]
    cost_model.run_steps(g, m, z, steps, memory)
    runtime = 0.0
    for step in range(count):
        runtime = max(runtime, steps.end[step])
    return runtime


@kernel
def price(g: GraphArrays, m: MachineArrays, q: Queue, chromosomes: Any, memory: bool, prices: Any) -> None:
    """Decode each chromosome; write its excess and peak (0 without memory accounting) and its makespan."""
    s = q.state
    nothing = Steps(s.ready[:0], s.ready[:0])
    for at in range(chromosomes.shape[0]):
        excess, peak, runtime = 0, 0, 0.0
        if m.beside:
            count, linked = decode(g, m, q, chromosomes[at], False, q.steps)
            if linked:
                runtime = _time(g, m, q, count, memory)
        else:
            _, linked = decode(g, m, q, chromosomes[at], memory, nothing)
            for device in range(s.clock.size):
                runtime = max(runtime, s.clock[device])
        if memory and linked:
            peaks = q.scratch.peak if m.beside else s.peak
            for device in range(s.clock.size):
                peak, excess = cost_model.reached(m, peaks, device, peak, excess)
        prices[at, 0], prices[at, 1], prices[at, 2] = excess, peak, runtime if linked else np.inf


@kernel
def cross(parents: Any, elites: Any, others: Any, bias: Any, children: Any) -> None:
    """Fill `children`, which holds uniform draws: each gene from its elite parent with probability `bias`."""
    # No generator is passed in: an interrupt while numba takes one apart ends the process.
    for child in range(children.shape[0]):
        for gene in range(children.shape[1]):
            chosen = elites[child] if children[child, gene] < bias[min(gene, bias.size - 1)] else others[child]
            children[child, gene] = parents[chosen, gene]


@kernel
def look_up(tables: Any, rows: Any, draws: Any) -> None:
    """Replace draws by quantiles, linear between the `2^n + 1` of each gene's row of `tables`; -1 leaves them."""
    cells = tables.shape[1] - 1
    for at in range(draws.shape[0]):
        for gene in range(draws.shape[1]):
            if rows[gene] >= 0:
                place = draws[at, gene] * np.float32(cells)
                cell = np.int64(place)
                low = tables[rows[gene], cell]
                draws[at, gene] = low + (place - np.float32(cell)) * (tables[rows[gene], cell + 1] - low)
