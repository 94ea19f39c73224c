"""What every best schedule obeys but need not be said: it makes the solver's bounds better, and its search smaller."""

from __future__ import annotations

from typing import Any

from .constraints import Steps
from .variables import Variables

MOST_RANKED = 200
"""Ops by which equal devices are told apart: more say little."""


def equal_devices_are_numbered_as_they_are_used(v: Variables) -> None:
    """Let an op be on a device only if one before it, in `v.ranked`, is on the device numbered one lower.

    So one op stays on device 0 (REGAL A.2).
    """
    ranked = v.ranked[:MOST_RANKED]
    for place, op in enumerate(ranked):
        for device in v.devices[1:]:
            before = [v.on[other][device - 1] for other in ranked[:place]]
            if place < device:
                v.model.add(v.on[op][device] == 0)
            elif device > 1:
                v.model.add_bool_or([~v.on[op][device], *before])


def devices_work_within(v: Variables, steps_of_device: dict[int, Steps], makespan: Any) -> None:
    """On each device: ops, what is sent there and what is sent from there, one after the other."""
    for steps in steps_of_device.values():
        v.check_time()
        v.model.add(sum(duration * literal for literal, _, duration in steps) <= makespan)
