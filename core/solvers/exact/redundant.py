"""What every best schedule obeys but need not be said: it makes the solver's bounds better, and its search smaller."""

from __future__ import annotations

from typing import Any

from .variables import Variables

MOST_RANKED = 200
"""Ops by which alike devices are told apart: more say little."""


def devices_are_numbered_as_they_are_used(v: Variables) -> None:
    """Let an op be on a device only if one before it, in `v.ranked`, is on the device numbered one lower."""
    ranked = v.ranked[:MOST_RANKED]
    for place, op in enumerate(ranked):
        for device in v.devices[1:]:
            before = [v.on[other][device - 1] for other in ranked[:place]]
            if place < device:
                v.model.add(v.on[op][device] == 0)
            elif device > 1:
                v.model.add_bool_or([~v.on[op][device], *before])


def devices_work_within(v: Variables, makespan: Any) -> None:
    """On each device: ops, what is sent there and what is sent from there, one after the other."""
    for device in v.devices:
        v.check_time()
        ops = [step.duration * v.on[op][device] for op, step in enumerate(v.ops)]
        sent = [step.duration * v.busy[key, device] for key, step in v.transfers.items()]
        v.model.add(sum(ops) + sum(sent) <= makespan)
