"""What schedules cost: random ones, their steps, and what is alive where while they run."""

from __future__ import annotations

import math
from dataclasses import dataclass


def needed_transfers(plain, placement):
    """Every `(tensor, target)` that a placement asks to be sent."""
    return {
        (t, placement[reader])
        for t in plain.tensors
        for reader in plain.readers[t]
        if placement[reader] != placement[t[0]] and t not in plain.everywhere
    }


def runnable(plain, placement, done):
    """Steps that can come next: an op, or a `(tensor, target)` that is still to be sent."""
    steps = []
    for op in plain.ops:
        here = placement[op]
        arrived = all(
            t[0] in done if placement[t[0]] == here or t in plain.everywhere else (t, here) in done
            for t in plain.reads[op]
        )
        if op not in done and arrived:
            steps.append(op)
    sends = needed_transfers(plain, placement) - done
    return steps + sorted((s for s in sends if s[0][0] in done), key=lambda s: (plain.index[s[0]], s[1]))


def random_steps(rng, plain, devices):
    """Draw a placement and a total order of its ops and transfers; returns both."""
    placement = rng.integers(0, devices, len(plain.ops)).tolist()
    return placement, drawn_steps(rng, plain, placement)


def drawn_steps(rng, plain, placement):
    """Draw a total order of the ops and transfers of a placement."""
    done = []
    while choices := runnable(plain, placement, set(done)):
        done.append(choices[int(rng.integers(0, len(choices)))])
    return done


def schedule_of(plain, placement, steps):
    """Return the three columns of a `Schedule`: items, sources, targets."""
    items, sources, targets = [], [], []
    for step in steps:
        if isinstance(step, tuple):
            tensor, target = step
            items.append(~plain.index[tensor])
            sources.append(placement[tensor[0]])
            targets.append(target)
        else:
            items.append(step)
            sources.append(placement[step])
            targets.append(placement[step])
    return items, sources, targets


@dataclass
class Replay:
    """What a schedule costs: per step the memory on its device and the clock after it; per device the peak."""

    step_memory: list[int]
    step_end: list[float]
    peaks: list[int]
    clocks: list[float]


def alive_on(plain, placement, done):
    """Return a function of a device: the bytes of the buffers alive there once the steps of `done` have run."""
    sends = needed_transfers(plain, placement)

    def buffer(tensor, device):
        """The tensor whose arrival on the device started the buffer that this one lives in."""
        if placement[tensor[0]] == device and tensor in plain.alias:
            return buffer(plain.alias[tensor], device)
        return tensor

    def is_needed(tensor, device):
        if any(placement[r] == device and r not in done for r in plain.readers[tensor]):
            return True
        home = placement[tensor[0]] == device
        return home and (tensor in plain.final or any(s[0] == tensor and s not in done for s in sends))

    def alive(device):
        here = [t for t in plain.tensors if (t[0] in done if placement[t[0]] == device else (t, device) in done)]
        return sum(plain.size[b] for b in {buffer(t, device) for t in here if is_needed(t, device)})

    return alive


def replay(plain, placement, steps, devices, *, bandwidth=math.inf, latency=0.0):
    """Price a schedule by working out from scratch, at every step, which buffers are alive where."""
    fixed = [sum(plain.persistent[op] for op in plain.ops if placement[op] == d) for d in range(devices)]
    clock, peak = [0.0] * devices, list(fixed)
    memory, ends = [], []
    done = set()
    alive = alive_on(plain, placement, done)

    for step in steps:
        if isinstance(step, tuple):
            tensor, device = step
            source = placement[tensor[0]]
            took = alive(device) + fixed[device] + plain.size[tensor]
            seconds = plain.size[tensor] / bandwidth
            clock[source] = clock[device] = max(clock[source], clock[device]) + latency + seconds * 1e6
        else:
            device = placement[step]
            took = alive(device) + fixed[device] + plain.own[step] + plain.workspace[step]
            clock[device] += plain.runtime[step]
        done.add(step)
        peak[device] = max(peak[device], took)
        memory.append(took)
        ends.append(clock[device])
    return Replay(memory, ends, peak, clock)


def order_peak(plain, order):
    """Peak of one device: at each op, the buffers alive before it, its new outputs and its workspace."""
    peak = 0
    for step, op in enumerate(order):
        peak = max(peak, plain.resident(order[:step]) + plain.own[op] + plain.workspace[op])
    return peak + sum(plain.persistent)


def order_step_memory(plain, order):
    """Bytes at each step of one device."""
    return [
        sum(plain.persistent) + plain.resident(order[:step]) + plain.own[op] + plain.workspace[op]
        for step, op in enumerate(order)
    ]
