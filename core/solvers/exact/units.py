"""Whole numbers for a solver that knows no others: units of bytes and of microseconds."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import FloatArray, IntArray
from ...problem.problem import Problem

LARGEST_MEMORY = 2**40
LARGEST_TIME = 2**30  # beyond 2^31 the solver was seen to prove wrong optima (OR-Tools 9.15)
LARGEST_ENERGY = 2**62  # memory times time, which the solver adds up
DENOMINATORS = (1000, 10**6)
MOST_TIMES = 20_000  # different ones for which a common unit is looked for: 0.2 s


class Units(NamedTuple):
    """How bytes and microseconds become the solver's whole numbers.

    A time is `microseconds` times whole units, rounded down, times `steps`. What then has none lasts 1, so that steps
    without duration have an order, too; no schedule has enough of them to make up one unit. What is rounded down keeps
    every bound valid; where sizes have a common divisor, and times one that is not too fine, nothing is.

    Parameters
    ----------
    bytes, microseconds
        Of one unit.
    steps
        More than any schedule has without duration; 1 where only the order matters.
    op, transfer
        Shape `(ops,)`, `(tensors,)`: durations.
    horizon
        The latest end of any step.
    """

    bytes: int
    microseconds: float
    steps: int
    op: list[int]
    transfer: list[int]
    horizon: int


def units_of(problem: Problem, task: str) -> Units:
    """Return units in which the solver can count for a task without overflow."""
    graph = problem.graph
    copies = np.minimum(np.diff(graph.consumers[0]), problem.devices - 1).astype(np.int64)
    if task == "memory":
        steps = graph.num_ops + int(copies.sum()) + 1
        op, transfer = np.ones(graph.num_ops, np.int64), np.ones(graph.num_tensors, np.int64)
        return Units(byte_unit(problem, LARGEST_ENERGY // steps), 1.0, 1, op.tolist(), transfer.tolist(), steps)
    machine = problem.hardware
    runtime: FloatArray = graph.runtime / machine.devices[0].speed
    sending: FloatArray = machine.latencies[0, -1] + graph.tensor_size * machine.microseconds_per_byte[0, -1]
    total = float(runtime.sum() + (sending * copies).sum())
    zeros = int((runtime == 0).sum() + copies[sending == 0].sum())
    times = np.concatenate((runtime, sending))
    unit, steps = unit_and_steps(times, total, zeros, graph.num_ops + int(copies.sum()))
    op, transfer = in_units(runtime, unit, steps), in_units(sending, unit, steps)
    horizon = int(op.sum() + (transfer * copies).sum())
    return Units(byte_unit(problem, LARGEST_ENERGY // horizon), unit, steps, op.tolist(), transfer.tolist(), horizon)


def unit_and_steps(times: FloatArray, total: float, zeros: int, most: int) -> tuple[float, int]:
    """Return a unit of times and the `steps` of `Units`."""
    unit, steps = time_unit(times, total, LARGEST_TIME // (1 + zeros)), 1 + zeros
    if (times[times > 0] < unit).any():
        unit, steps = time_unit(times, total, LARGEST_TIME // (1 + most)), 1 + most
    return unit, steps


def in_units(times: FloatArray, unit: float, steps: int) -> IntArray:
    """Return what steps last for the solver."""
    whole = floor_times(times / unit)
    lasts: IntArray = whole * steps + (whole == 0)
    return lasts


def floor_times(times: NDArray[Any]) -> IntArray:
    """Round down, but take a number that is whole but for its last bits as whole."""
    whole = np.rint(times)
    floored: IntArray = np.where(np.abs(times - whole) <= 1e-15 * whole, whole, np.floor(times)).astype(np.int64)
    return floored


def time_unit(times: NDArray[Any], total: float, most: int) -> float:
    """Return the largest unit in which all times are whole if their total is then `most` or less, else a fine one."""
    unit, distinct = Fraction(0), np.unique(times)
    if len(distinct) > MOST_TIMES:
        return total / most
    for time in distinct.tolist():
        fraction = _simple_fraction(time)
        if fraction is None:
            return total / most
        common = math.lcm(unit.denominator, fraction.denominator)
        parts = [value.numerator * (common // value.denominator) for value in (unit, fraction)]
        unit = Fraction(math.gcd(*parts), common)
        if unit and total / unit > most:
            return total / most
    return float(unit) or 1.0


def _simple_fraction(time: float) -> Fraction | None:
    """Return a number of few digits, or a third or a seventh of one, that a time is but for its last bits."""
    for largest in DENOMINATORS:
        fraction = Fraction(time).limit_denominator(largest)
        if abs(float(fraction) - time) <= 1e-15 * time:
            return fraction
    return None


def _sizes(problem: Problem) -> IntArray:
    graph = problem.graph
    return np.concatenate((graph.tensor_size, graph.workspace, graph.persistent))


def _common_divisor(problem: Problem) -> int:
    return int(np.gcd.reduce(_sizes(problem))) or 1


def bytes_of_devices(problem: Problem, unit: int) -> int:
    """Return all sizes on all devices, at least 1, in units of so many bytes."""
    return max(1, int(_sizes(problem).sum()) * problem.devices // unit)


def byte_unit(problem: Problem, most: int) -> int:
    """Return the common divisor of all sizes, or more if their sum would still be too large."""
    divisor = _common_divisor(problem)
    most = min(most, LARGEST_MEMORY)
    if bytes_of_devices(problem, divisor) <= most:
        return divisor
    return -(-bytes_of_devices(problem, 1) // most)
