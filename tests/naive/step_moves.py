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
