"""BRKGA on random keys: decoding and pricing chromosomes, and crossover (REGAL 3.2, A.5)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import FloatArray, IntArray
from ..cost_model import State, Steps, reset, run_op, run_transfer, write_step
from ..graph_arrays import GraphArrays
from ..heap import larger_first, pop, push
from ..jit import inlined, kernel
from ..links import Links

_LARGEST_ITEM = np.int64(2**31 - 1)
_PRIORITY_STEPS = np.float64(2**32)


@inlined
def _key(priority: float, item: int) -> Any:
    """Pack a priority in [0, 1] and an item into one number: higher priority first, then the smaller item."""
    steps = np.int64(min(np.float64(priority) * _PRIORITY_STEPS, _PRIORITY_STEPS - 1.0))
    return (steps << 31) | (_LARGEST_ITEM - item)


@inlined
def place(genes: Any, ops: int, devices: int, fixed_op: int, placement: Any) -> None:
    """Put each op on the device of its largest affinity, the first of equals, and `fixed_op`, if any, on device 0."""
    for op in range(ops):
        best = 0
        for device in range(1, devices):
            if genes[op * devices + device] > genes[op * devices + best]:
                best = device
        placement[op] = best
    if fixed_op >= 0:
        placement[fixed_op] = 0


class Prices(NamedTuple):
    """What each of several schedules costs: its peak in bytes, and its makespan in microseconds."""

    peaks: IntArray
    runtimes: FloatArray


def new_prices(count: int) -> Prices:
    """Allocate the prices of so many schedules."""
    return Prices(np.empty(count, np.int64), np.empty(count))


@kernel
def decode(
    g: GraphArrays, s: State, heap: Any, genes: Any, fixed_op: int, links: Links, memory: bool, steps: Steps
) -> int:
    """Run the schedule that a chromosome encodes: always the ready op or transfer of highest priority.

    The chromosome is `ops * devices` affinities, `ops` priorities, `tensors * devices` transfer priorities. Steps
    are written if they are asked for; returns their number.
    """
    ops, devices = g.runtime.size, links.devices
    priorities = ops * devices
    transfers = priorities + ops
    place(genes, ops, devices, fixed_op, s.placement)
    reset(g, s, memory)
    size = 0
    for op in range(ops):
        if s.pending[op] == 0:
            size = push(heap, size, _key(genes[priorities + op], op), genes, larger_first)
    step = 0
    while size > 0:
        item = _LARGEST_ITEM - (heap[0] & _LARGEST_ITEM)
        size = pop(heap, size, genes, larger_first)
        if item < ops:
            step = write_step(steps, step, item, s.placement[item])
            ready, due = run_op(g, s, item, devices, memory)
            for at in range(due):
                cell = s.transfers[at]
                size = push(heap, size, _key(genes[transfers + cell], ops + cell), genes, larger_first)
        else:
            tensor, target = divmod(item - ops, devices)
            step = write_step(steps, step, ~tensor, target)
            ready = run_transfer(g, s, tensor, target, links, memory)
        for at in range(ready):
            size = push(heap, size, _key(genes[priorities + s.ready[at]], s.ready[at]), genes, larger_first)
    return step


@kernel
def price(
    g: GraphArrays, s: State, heap: Any, chromosomes: Any, fixed_op: int, links: Links, memory: bool, prices: Prices
) -> None:
    """Decode each chromosome; write its peak (0 without memory accounting) and makespan."""
    nothing = Steps(s.ready[:0], s.ready[:0])
    for at in range(chromosomes.shape[0]):
        decode(g, s, heap, chromosomes[at], fixed_op, links, memory, nothing)
        peak, runtime = 0, 0.0
        for device in range(links.devices):
            peak = max(peak, s.peak[device])
            runtime = max(runtime, s.clock[device])
        prices.peaks[at] = peak
        prices.runtimes[at] = runtime


@kernel
def cross(parents: Any, elites: Any, others: Any, bias: Any, children: Any) -> None:
    """Fill `children`, which holds uniform draws: each gene from its elite parent with probability `bias`.

    `elites` and `others` hold the rows of `parents`, per child; `bias` has one entry per gene, or one for
    all. No generator is passed in: an interrupt while numba takes one apart ends the process.
    """
    for child in range(children.shape[0]):
        for gene in range(children.shape[1]):
            chosen = elites[child] if children[child, gene] < bias[min(gene, bias.size - 1)] else others[child]
            children[child, gene] = parents[chosen, gene]


@kernel
def look_up(tables: Any, rows: Any, draws: Any) -> None:
    """Replace uniform draws by what their quantiles are, linear between the entries of each gene's table.

    `tables` has one row per distribution, of `2^n + 1` quantiles at equal steps of probability; `rows` has one entry
    per gene, -1 to leave its draws as they are; `draws` has shape `(chromosomes, genes)`, float32, below 1.
    """
    cells = tables.shape[1] - 1
    for at in range(draws.shape[0]):
        for gene in range(draws.shape[1]):
            if rows[gene] >= 0:
                place = draws[at, gene] * np.float32(cells)
                cell = np.int64(place)
                low = tables[rows[gene], cell]
                draws[at, gene] = low + (place - np.float32(cell)) * (tables[rows[gene], cell + 1] - low)
