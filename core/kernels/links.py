"""The devices as the kernels take them, and what a transfer between two of them costs."""

from __future__ import annotations

from typing import NamedTuple

from ..problem.problem import Problem


class Links(NamedTuple):
    """Identical devices, any two of them linked alike.

    Parameters
    ----------
    devices
        How many there are.
    latency
        Microseconds that every transfer takes.
    microseconds_per_byte
        What every byte of it takes besides.
    """

    devices: int
    latency: float
    microseconds_per_byte: float


def links_of(problem: Problem) -> Links:
    """Return the links of a problem."""
    return Links(problem.devices, float(problem.latency), float(problem.microseconds_per_byte))
