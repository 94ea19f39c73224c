"""What `next_moves.py` draws moves by: what is known of an op and a device in a plan, and rules and networks on it.

Where it has no weights, the annealing of sequences draws an op uniformly, and with probability 1/2 another device for
it. Here each pair of an op and a device has a weight, anew after every few calls of the kernel: its own device stands
for another place in the order. The kernel is that of `schedopt`, whose draws are rewritten before it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from schedopt.core.kernels.jit import inlined, kernel
from schedopt.core.solvers.placements import makespan_annealing
from schedopt.core.solvers.placements.move_draws import rewrite

NAMES = (
    "own",
    "runtime",
    "slack",
    "critical",
    "place",
    "reads",
    "readers",
    "room",
    "waited",
    "met",
    "sends",
    "receives",
    "sent less",
    "read there",
    "readers there",
    "load",
    "ahead",
)
"""Of each op and device: whether it is the op's own; the op's runtime; how long it may be late, and whether not at all;
its place; how many ops it reads and read it; how many places it may have; how long its device waited, and sent, right
before it; what its transfers out and in take; how much less is sent if it goes to the device; the share of what it
reads and of its readers there, less that on its own; how much more its own device works than this one around its place,
and how far its clock is ahead of this one's."""
AROUND = 20
"""Places before and after an op in which loads are compared."""
REFRESHED = 5
"""Calls of the kernel, of 200 moves each on a graph of 1,000 ops, that share a table of weights."""
FLOOR = 0.2
"""Of the moves: drawn as ever, so that none is excluded."""


class Scratch(NamedTuple):
    """What `describe` writes.

    Parameters
    ----------
    rows
        Shape `(ops * devices, len(NAMES))`, float32.
    event, cost
        Shape `(ops * (devices + 1),)`: ops run, and pairs of devices that meet as -1 - pair, and what either takes.
    late
        Shape `(ops,)`: how long each may be late.
    work
        Shape `(ops + 1, devices)`: what each device has done before each place.
    clock, met, due
        Shapes `(devices,)` and twice `(devices, devices)`.
    """

    rows: Any
    event: Any
    cost: Any
    late: Any
    work: Any
    clock: Any
    met: Any
    due: Any


def new_scratch(ops: int, devices: int) -> Scratch:
    """Allocate."""
    events, square = ops * (devices + 1), (devices, devices)
    rows = np.zeros((ops * devices, len(NAMES)), np.float32)
    late, work = np.zeros(ops), np.zeros((ops + 1, devices))
    return Scratch(
        rows, np.zeros(events, np.int64), np.zeros(events), late, work, np.zeros(devices), *np.zeros((2, *square))
    )


@inlined
def _log(value: float) -> float:
    """Return a logarithm that keeps the sign and is 0 at 0."""
    return np.log1p(value) if value >= 0.0 else -np.log1p(-value)


@inlined
def _sending(g: Any, links: Any, tensor: int) -> float:
    return links.latency + g.tensor_size[tensor] * links.microseconds_per_byte


@inlined
def _count_readers(g: Any, placement: Any, tensor: int, device: int) -> int:
    """Return how many ops on a device read a tensor."""
    count = 0
    for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
        if placement[g.consumers[at]] == device:
            count += 1
    return count


@kernel
def _run(g: Any, w: Any, order: Any, position: Any, placement: Any, links: Any, x: Scratch, mean: float) -> int:
    """Run the sequence as the annealing does; write its events and what depends on the time; return their number."""
    devices, wide = links.devices, x.rows.shape[1]
    x.clock[:] = 0.0
    x.met[:] = 0.0
    x.due[:] = 0.0
    events = 0
    for at in range(order.size):
        op = order[at]
        device = placement[op]
        waited, spent = 0.0, 0.0
        for i in range(w.before_ptr[op], w.before_ptr[op + 1]):
            maker = w.before[i]
            source = placement[maker]
            low, high = min(source, device), max(source, device)
            if source != device and x.met[low, high] <= position[maker]:
                waited += max(0.0, x.clock[source] - x.clock[device])
                spent += x.due[low, high]
                x.clock[device] = max(x.clock[source], x.clock[device]) + x.due[low, high]
                x.clock[source] = x.clock[device]
                x.event[events], x.cost[events] = -1 - (low * devices + high), x.due[low, high]
                events += 1
                x.met[low, high], x.due[low, high] = at, 0.0
        for other in range(devices):
            row = x.rows[op * devices + other]
            row[8], row[9] = _log(waited / mean), _log(spent / mean)
            row[wide - 1] = _log((x.clock[device] - x.clock[other]) / mean)
            x.work[at + 1, other] = x.work[at, other]
        x.work[at + 1, device] += g.runtime[op]
        x.clock[device] += g.runtime[op]
        x.event[events], x.cost[events] = op, g.runtime[op]
        x.late[op] = x.clock[device]
        events += 1
        sent = 0.0
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            for other in range(devices):
                if other != device and _count_readers(g, placement, tensor, other):
                    low, high = min(other, device), max(other, device)
                    x.due[low, high] += _sending(g, links, tensor)
                    sent += _sending(g, links, tensor)
        for other in range(devices):
            x.rows[op * devices + other, 10] = _log(sent / mean)
    return events


@kernel
def _find_slack(placement: Any, links: Any, x: Scratch, events: int) -> float:
    """Replace each op's end by how long it may be late; return the makespan."""
    makespan = 0.0
    for device in range(links.devices):
        makespan = max(makespan, x.clock[device])
    x.clock[:] = makespan
    for number in range(events - 1, -1, -1):
        event, cost = x.event[number], x.cost[number]
        if event >= 0:
            x.late[event] = x.clock[placement[event]] - x.late[event]
            x.clock[placement[event]] -= cost
        else:
            low, high = divmod(-1 - event, links.devices)
            x.clock[low] = min(x.clock[low], x.clock[high]) - cost
            x.clock[high] = x.clock[low]
    return makespan


@kernel
def _compare_devices(g: Any, w: Any, place: int, op: int, placement: Any, links: Any, x: Scratch, mean: float) -> None:
    """Write what an op would send and receive, and whom it would meet, on each device."""
    devices, here = links.devices, placement[op]
    first, last = max(0, place - AROUND), min(len(placement), place + AROUND + 1)
    total = 1e-300
    for device in range(devices):
        total += x.work[last, device] - x.work[first, device]
    reads, readers = w.before_ptr[op + 1] - w.before_ptr[op], w.after_ptr[op + 1] - w.after_ptr[op]
    for there in range(devices):
        less, received, makers, users = 0.0, 0.0, 0.0, 0.0
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            home, sending = placement[g.producer[tensor]], _sending(g, links, tensor)
            if here != home:
                received += sending
                if there != here and _count_readers(g, placement, tensor, here) == 1:
                    less += sending
            if there != here and there != home and _count_readers(g, placement, tensor, there) == 0:
                less -= sending
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            if there != here and _count_readers(g, placement, tensor, there):
                less += _sending(g, links, tensor)
            if there != here and _count_readers(g, placement, tensor, here):
                less -= _sending(g, links, tensor)
        for at in range(w.before_ptr[op], w.before_ptr[op + 1]):
            makers += (placement[w.before[at]] == there) - np.float64(placement[w.before[at]] == here)
        for at in range(w.after_ptr[op], w.after_ptr[op + 1]):
            users += (placement[w.after[at]] == there) - np.float64(placement[w.after[at]] == here)
        row = x.rows[op * devices + there]
        row[0] = there == here
        row[11], row[12] = _log(received / mean), _log(less / mean)
        row[13], row[14] = makers / max(1, reads), users / max(1, readers)
        mine, other = x.work[last, here] - x.work[first, here], x.work[last, there] - x.work[first, there]
        row[15] = (mine - other) / total


@kernel
def describe(g: Any, w: Any, order: Any, position: Any, placement: Any, links: Any, x: Scratch) -> float:
    """Fill `x.rows` for a sequence; returns its makespan in microseconds."""
    ops, devices = order.size, links.devices
    mean = max(w.work / ops, 1e-300)
    makespan = _find_slack(placement, links, x, _run(g, w, order, position, placement, links, x, mean))
    for op in range(ops):
        first, last = 0, ops - 1
        for at in range(w.before_ptr[op], w.before_ptr[op + 1]):
            first = max(first, position[w.before[at]] + 1)
        for at in range(w.after_ptr[op], w.after_ptr[op + 1]):
            last = min(last, position[w.after[at]] - 1)
        _compare_devices(g, w, position[op], op, placement, links, x, mean)
        for device in range(devices):
            row = x.rows[op * devices + device]
            row[1] = _log(g.runtime[op] / mean)
            row[2] = x.late[op] / max(makespan, 1e-300)
            row[3] = x.late[op] <= 1e-9 * makespan
            row[4] = position[op] / ops
            row[5] = _log(np.float64(w.before_ptr[op + 1] - w.before_ptr[op]))
            row[6] = _log(np.float64(w.after_ptr[op + 1] - w.after_ptr[op]))
            row[7] = (last - first) / ops
    return makespan


Choice = Callable[[Any, Any], Any]
"""From the rows of a plan, shape `(ops, devices, len(NAMES))`, and its placement to weights, `(ops, devices)`."""


def usual(ops: int, placement: Any, devices: int) -> Any:
    """Return the weights of moves as the annealing draws them, shape `(ops, devices)`, 1 in all."""
    weights = np.full((ops, devices), 0.5 / ops / (devices - 1))
    weights[np.arange(ops), placement] = 0.5 / ops
    return weights


class Uniform:
    """Stands for the weights that `schedopt` has: leaves the draws as they are."""

    def __init__(self, *given: Any) -> None:
        pass

    def rewrite(self, draws: Any) -> None:
        """Do nothing."""


class Drawn:
    """The kernel of the annealing, with ops and devices drawn by a choice."""

    def __init__(self, choice: Choice) -> None:
        self.choice, self.kernel = choice, makespan_annealing.anneal_sequence
        self.calls, self.sums, self.placement, self.scratch = 0, None, None, None

    def __call__(
        self, g: Any, s: Any, scratch: Any, order: Any, position: Any, aim: Any, links: Any, walk: Any
    ) -> float:
        """Rewrite the draws of a walk, then anneal."""
        if self.calls % REFRESHED == 0:
            ops, devices = len(order), links.devices
            if self.scratch is None or len(self.scratch.rows) != ops * devices:
                self.scratch = new_scratch(ops, devices)
            self.placement = s.placement.copy()
            describe(g, scratch[1].waits, order, position, s.placement, links, self.scratch)
            chosen = self.choice(self.scratch.rows.reshape(ops, devices, -1), s.placement)
            base = usual(ops, s.placement, devices)
            chosen = base * chosen
            total = chosen.sum()
            weights = FLOOR * base + (1 - FLOOR) * (chosen / total if total > 0 else base)
            self.sums = weights.ravel().cumsum()
        self.calls += 1
        rewrite(walk.draws, self.sums, self.placement, links.devices)
        return self.kernel(g, s, scratch, order, position, aim, links, walk)


def critical(rows: Any, placement: Any) -> Any:
    """Choose ops that may not be late."""
    return rows[:, :, NAMES.index("critical")]


def crossing(rows: Any, placement: Any) -> Any:
    """Choose ops that send or receive."""
    return (rows[:, :, NAMES.index("sends")] + rows[:, :, NAMES.index("receives")] > 0).astype(float)


def sent_less(rows: Any, placement: Any) -> Any:
    """Choose devices as `schedopt` does: four times as often where as much as the mean runtime is not sent any more."""
    return np.exp(2 * rows[:, :, NAMES.index("sent less")])


RULES: dict[str, Choice] = {"critical": critical, "crossing": crossing, "sent-less": sent_less}


class Network:
    """Weights by a network of one hidden layer, trained to tell moves that improve a plan."""

    def __init__(self, file: Path) -> None:
        with np.load(file) as kept:
            self.mean, self.scale, *self.layers = (kept[name] for name in ("mean", "scale", "w1", "b1", "w2", "b2"))

    def __call__(self, rows: Any, placement: Any) -> Any:
        """Return the probability, as the network has it, that a move improves the plan."""
        first, bias, second, last = self.layers
        hidden = np.maximum((rows.reshape(-1, rows.shape[-1]) - self.mean) * self.scale @ first + bias, 0.0)
        logits = (hidden @ second)[:, 0] + last[0]
        return (1.0 / (1.0 + np.exp(-np.clip(logits, -30, 30)))).reshape(rows.shape[:2]).astype(np.float64)
