"""Whole numbers for a solver that knows no others: units of bytes and of microseconds."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import FloatArray, IntArray
from ...bounds.machine_bounds import possible_times
from ...problem.problem import Problem
from ...problem.residents import first_home
from ...search.search import Search

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
    """

    # bytes, microseconds: of one unit; a unit of time is infinite where only the order counts, so that every step lasts
    # 1
    bytes: int
    microseconds: float
    steps: int  # more than any schedule has without duration; 1 where only the order counts
    longest: float  # microseconds; no step of a schedule that is worth finding takes more
    horizon: int  # the latest end of any step

    def whole(self, times: FloatArray) -> list[list[int]]:
        """Return times in units, -1 for what is impossible or longer than all that is worth finding."""
        fits = np.isfinite(times) & (times <= self.longest * (1 + 1e-12))
        lasts = in_units(np.where(fits, times, 0.0), self.microseconds, self.steps)
        found: list[list[int]] = np.where(fits, lasts, -1).tolist()
        return found


def units_of(search: Search, *, counts_time: bool) -> Units:
    """Return units in which the solver can count without overflow, of time or of steps alone."""
    problem = search.problem
    copies = np.minimum(np.diff(problem.graph.consumers[0]), problem.devices - 1).astype(np.int64)
    most = problem.graph.num_ops + int(copies.sum())
    unit, steps, longest, horizon = math.inf, 1, math.inf, most + 1
    if counts_time:
        unit, steps, longest = _units_of_time(search, copies, most)
        horizon = (math.ceil(longest / unit) + 1) * steps
    return Units(byte_unit(problem, LARGEST_ENERGY // horizon), unit, steps, longest, horizon)


def _units_of_time(search: Search, copies: IntArray, most: int) -> tuple[float, int, float]:
    """Return a unit, the `steps` and the `longest` time of `Units`, for at most so many steps."""
    problem, graph, machine = search.problem, search.problem.graph, search.problem.hardware
    times = possible_times(problem)[: first_home(graph)]
    is_link = machine.has_link & ~np.eye(problem.devices, dtype=bool)
    links = np.unique(np.stack((machine.latencies, machine.microseconds_per_byte), -1)[is_link], axis=0)
    slowest, fastest = links.max(0, initial=0.0), links.min(0, initial=np.inf)
    total = float(np.where(np.isfinite(times), times, 0.0).max(1).sum())
    total += float(((slowest[0] + slowest[1] * graph.tensor_size) * copies).sum())
    if not search.best_fitness[0]:
        total = min(total, search.best_value)
    total = max(total, 1e-9)
    sizes = np.unique(graph.tensor_size)
    if len(links) * len(sizes) > MOST_TIMES:
        return total / (LARGEST_TIME // (1 + most)), 1 + most, total
    known = np.concatenate((times[times <= total], *(late + per_byte * sizes for late, per_byte in links)))
    may_be_zero = (fastest[0] == 0) & ((fastest[1] == 0) | (graph.tensor_size == 0))
    zeros = int((times == 0).any(1).sum()) + int((may_be_zero * copies).sum())
    unit, steps = time_unit(known, total, LARGEST_TIME // (1 + zeros)), 1 + zeros
    if (known[known > 0] < unit).any():
        unit, steps = time_unit(known, total, LARGEST_TIME // (1 + most)), 1 + most
    return unit, steps, total


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


def bytes_of_devices(problem: Problem, unit: int) -> int:
    """Return all sizes on all devices, at least 1, in units of so many bytes."""
    return max(1, int(_sizes(problem).sum()) * problem.devices // unit)


def byte_unit(problem: Problem, most: int) -> int:
    """Return the common divisor of all sizes, or more if their sum would still be too large."""
    divisor = int(np.gcd.reduce(_sizes(problem))) or 1
    most = min(most, LARGEST_MEMORY)
    if bytes_of_devices(problem, divisor) <= most:
        return divisor
    return -(-bytes_of_devices(problem, 1) // most)
