"""Twins of moves of single steps: lists of ops and transfers, mended as they are run."""

from __future__ import annotations

from .costs import replay
from .sequences import steps_cost


def mended(plain, steps, placement):
    """Leave out the transfers that nobody needs or that cannot be made yet, and send what an op lacks before it."""
    done, sent = [], set()

    def send(tensor, target):
        wanted = any(placement[reader] == target for reader in plain.readers[tensor])
        if tensor[0] in done and wanted and placement[tensor[0]] != target and (tensor, target) not in sent:
            sent.add((tensor, target))
            done.append((tensor, target))

    for step in steps:
        if isinstance(step, tuple):
            send(*step)
            continue
        for tensor in plain.inputs[step]:
            send(tensor, placement[step])
        done.append(step)
    return done


def plan_cost(plain, steps, placement, devices, aim, **costs):
    """What annealing minimises, the peak and the makespan of a list of steps."""
    run = replay(plain, placement, steps, devices, **costs)
    return steps_cost(run, aim)


def moved(steps, here, before):
    """Take a step out of a list, and put it before the one at another place."""
    step = steps[here]
    rest = [other for at, other in enumerate(steps) if at != here]
    return [*rest[: before - (before > here)], step, *rest[before - (before > here) :]]


def anneal_steps(plain, walk, steps, placement, devices, temperature, draws, groups):
    """Another device for an op or a group, two ops' devices swapped, a step elsewhere; returns the last plan."""
    ops = len(placement)

    def op_moved(op, draw):
        first = max((steps.index(v) + 1 for v in plain.before[op]), default=0)
        last = min((steps.index(v) for v in plain.after[op]), default=len(steps))
        return moved(steps, steps.index(op), first + int(draw * (last - first + 1)))

    for which, kind, what, where, chance, also in draws:
        op, new, placed = int(which * ops), steps, list(placement)
        kind = kind if devices > 1 else 1.0
        if kind < 0.4:
            placed[op] = (placed[op] + 1 + int(what * (devices - 1))) % devices
            new = op_moved(op, where) if also < 0.6 else steps
        elif kind < 0.52:
            other = int(what * ops)
            placed[op], placed[other] = placed[other], placed[op]
            new = op_moved(op, where) if also < 0.5 else steps
        elif kind < 0.62 and groups:
            for member in groups[int(which * len(groups))]:
                placed[member] = int(what * devices)
        elif kind < 0.8 and len(steps) > ops:
            here = int(what * len(steps))
            while not isinstance(steps[here], tuple):
                here = (here + 1) % len(steps)
            tensor, target = steps[here]
            first = steps.index(tensor[0]) + 1
            last = min(steps.index(v) for v in plain.readers[tensor] if placement[v] == target)
            new = moved(steps, here, first + int(where * (last - first + 1)))
        else:
            new = op_moved(op, where)
        new = mended(plain, new, placed)
        if walk.accepts(new, placed, temperature, chance):
            steps, placement = new, placed
    return steps, placement
