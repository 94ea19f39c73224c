"""Sequences: a placement and one total order of the ops, whose transfers are sent as late as possible.

A sequence says where every op runs and which op comes next; the transfers follow. *Just in time* sends what
an op lacks right before it. *Together* also sends all that is due between the two devices, in both
directions, whenever they synchronise anyway: fewer waits, more memory (FINDINGS, Lazy transfers).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...graph import IndexArray
from ..cost_model import State, reset, run_op, run_transfer
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel

LEAST_EXCESS = 0.001


class Due(NamedTuple):
    """Transfers not yet sent.

    `sent` has a bit per device for each tensor. What is due from one device to another is a chain, the newest
    first: `head` per pair of devices, `following` per `tensor * devices + target`, -1 at the end.
    """

    sent: Any
    head: IndexArray
    following: IndexArray


class Aim(NamedTuple):
    """What annealing minimises: `scale * makespan + sum over steps of a penalty`.

    The penalty of a step that takes `m` bytes is `(m / size) ** 16` if `is_peak`, a smooth stand-in for the
    peak. Else `size` is the memory limit: a step above it costs `m / size - 1` times the weight, and a thousandth
    of the weight besides, lest an excess of a few bytes be worth its while.
    """

    is_peak: bool
    size: float
    scale: float
    weight: float
    memory: bool
    together: bool
    limit: int


def new_due(g: GraphArrays, devices: int) -> Due:
    """Allocate the chains."""
    tensors = len(g.tensor_size)
    return Due(
        np.empty(tensors, np.uint64), np.empty(devices * devices, np.int32), np.empty(tensors * devices, np.int32)
    )


@inlined
def _penalty(aim: Aim, memory: int) -> float:
    ratio = memory / aim.size
    if aim.is_peak:
        ratio *= ratio
        ratio *= ratio
        ratio *= ratio
        return ratio * ratio
    return (ratio - 1.0 + LEAST_EXCESS) * aim.weight if ratio > 1.0 else 0.0


@kernel
def run_sequence(
    g: GraphArrays,
    s: State,
    due: Due,
    order: Any,
    aim: Aim,
    devices: int,
    latency: float,
    microseconds_per_byte: float,
    bar: float,
    items: Any,
    targets: Any,
) -> tuple[int, float, int, float]:
    """Run the ops of `order`, placed as `s` says, with their transfers.

    Steps are written to `items` and `targets` unless these are empty. Gives up as soon as the penalties
    exceed `bar`.

    Returns
    -------
    tuple
        Steps; what `aim` asks to minimise, infinite if given up; the peak in bytes (0 without memory
        accounting) and the makespan in microseconds of what was run.
    """
    record = items.size > 0
    memory = aim.memory
    reset(g, s, memory)
    due.sent[:] = 0
    if aim.together:
        due.head[:] = -1
    step, peak, penalty = 0, 0, 0.0
    for device in range(devices):
        peak = max(peak, s.peak[device])
    for op in order:
        device = s.placement[op]
        s.peak[device] = 0
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            source = s.placement[g.producer[tensor]]
            if source == device or (due.sent[tensor] >> np.uint64(device)) & np.uint64(1):
                continue
            pair, back = source * devices + device, device * devices + source
            cell = due.head[pair] if aim.together else tensor * devices + device
            if cell < 0:
                pair, back = back, -1
                cell = due.head[pair]
            while cell >= 0:
                item, target = divmod(cell, devices)
                due.sent[item] |= np.uint64(1) << np.uint64(target)
                s.peak[target] = 0
                run_transfer(g, s, item, target, devices, memory, latency, microseconds_per_byte)
                if record:
                    items[step] = ~item
                    targets[step] = target
                step += 1
                if memory:
                    peak = max(peak, s.peak[target])
                    penalty += _penalty(aim, s.peak[target])
                if not aim.together:
                    break
                cell = due.following[cell]
                if cell < 0:
                    due.head[pair] = -1
                    if back >= 0:
                        pair, back = back, -1
                        cell = due.head[pair]
        s.peak[device] = 0
        _, transfers = run_op(g, s, op, devices, memory)
        if record:
            items[step] = op
            targets[step] = device
        step += 1
        if memory:
            peak = max(peak, s.peak[device])
            penalty += _penalty(aim, s.peak[device])
            if penalty > bar:
                return step, np.inf, peak, 0.0
        if aim.together:
            for at in range(transfers):
                cell = s.transfers[at]
                pair = device * devices + cell % devices
                due.following[cell] = due.head[pair]
                due.head[pair] = cell
    runtime = 0.0
    for device in range(devices):
        runtime = max(runtime, s.clock[device])
    return step, penalty + aim.scale * runtime, peak, runtime


@inlined
def shift(order: Any, position: Any, here: int, there: int) -> None:
    """Move the op at one place to another; those between close up."""
    op = order[here]
    step = 1 if here < there else -1
    while here != there:
        order[here] = order[here + step]
        position[order[here]] = here
        here += step
    order[there] = op
    position[op] = there


@inlined
def shift_within(g: GraphArrays, order: Any, position: Any, op: int, draw: float) -> int:
    """Move an op to a place, drawn uniformly, between those that it waits for and those that wait for it."""
    first, last = 0, order.size - 1
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        first = max(first, position[g.producer[g.inputs[at]]] + 1)
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
            last = min(last, position[g.consumers[at]] - 1)
    there = first + int(draw * (last - first + 1))
    shift(order, position, position[op], there)
    return there


@kernel
def anneal_sequence(
    g: GraphArrays,
    s: State,
    due: Due,
    order: Any,
    position: Any,
    aim: Aim,
    devices: int,
    latency: float,
    microseconds_per_byte: float,
    hot: float,
    cold: float,
    draws: Any,
    energy: float,
    best: Any,
    best_order: Any,
    best_placement: Any,
    nothing: Any,
) -> float:
    """Anneal over sequences: each row of `draws` (uniform, 5 columns) is one move and one evaluation.

    A move gives an op another device (half of the time), another place between those that it waits for and
    those that wait for it, or both. It is kept if what is minimised stays under the present value times
    `u ** -temperature`; the temperature falls from `hot` to `cold` geometrically over the rows.

    `best` holds the least excess over `aim.limit` and the task's value there, updated with `best_order` and
    `best_placement`. Returns what the present sequence costs.
    """
    ops = order.size
    moves = draws.shape[0]
    for move in range(moves):
        temperature = hot * (cold / hot) ** (move / moves)
        op = int(draws[move, 0] * ops)
        before, here = s.placement[op], position[op]
        there = here
        kind = draws[move, 1] if devices > 1 else 1.0
        if kind < 0.5:
            s.placement[op] = (before + 1 + int(draws[move, 2] * (devices - 1))) % devices
        if kind >= 0.1:
            there = shift_within(g, order, position, op, draws[move, 3])
        bar = energy * (1.0 - draws[move, 4]) ** -temperature
        _, new, peak, runtime = run_sequence(
            g, s, due, order, aim, devices, latency, microseconds_per_byte, bar, nothing, nothing
        )
        if new > bar:
            s.placement[op] = before
            shift(order, position, there, here)
            continue
        energy = new
        excess = max(0, peak - aim.limit)
        value = np.float64(peak) if aim.is_peak else runtime
        if excess < best[0] or (excess == best[0] and value < best[1]):
            best[0], best[1] = excess, value
            for at in range(ops):
                best_order[at] = order[at]
                best_placement[at] = s.placement[at]
    return energy
