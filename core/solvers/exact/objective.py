"""The objectives of the CP-SAT model: a function each builds all of it, and says what the solver's numbers mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...problem.problem import Problem
from ...search.plans import may_exceed
from ...search.search import Search
from .constraints import add_time_constraints, bytes_throughout, most_bytes
from .variables import Variables

Minimised = tuple[Variables, Callable[[float], float]]


def knows_memory(problem: Problem) -> bool:
    """Whether the memory of the devices follows from the order of the steps on each: no transfer runs beside ops."""
    return problem.devices == 1 or not problem.hardware.is_beside


def minimised_peak(search: Search) -> Minimised:
    """Minimise the peak of the fullest device, down to what is known to be the least, within limits that differ."""
    assert search.best_simulation is not None
    v = Variables(search, counts_time=False)
    add_time_constraints(v)
    held = most_bytes(v)
    low = min(int(search.lower_bound) // v.units.bytes, v.most)
    peak = v.number(max(0, low), v.most, search.best_simulation.peak // v.units.bytes)
    for most in held:
        v.model.add(most <= peak)
    if len({*search.problem.memory_limits}) > 1:
        _keep_limits(v, held)
    v.model.minimize(peak)
    return v, lambda least: math.ceil(least - 1e-6) * v.units.bytes


def minimised_excess(search: Search) -> Minimised:
    """Minimise by how much the device that exceeds its memory limit most does so."""
    v = Variables(search, counts_time=False)
    add_time_constraints(v)
    excess = v.number(0, v.most, search.best_fitness[0] // v.units.bytes)
    _keep_limits(v, most_bytes(v), excess)
    v.model.minimize(excess)
    return v, lambda least: math.ceil(least - 1e-6) * v.units.bytes


def minimised_makespan(search: Search) -> Minimised:
    """Minimise the end of the last op, no later than in the hint if that is feasible; what is sent is read later."""
    v = Variables(search, counts_time=True)
    steps_of_device = add_time_constraints(v)
    if knows_memory(search.problem) and may_exceed(search.problem):
        _keep_limits(v, most_bytes(v))
    else:
        _keep_limits(v, [bytes_throughout(v, device) for device in v.devices])
    low = max(0, math.floor(search.lower_bound / v.units.microseconds * (1 - 1e-12)) * v.units.steps)
    high = v.units.horizon if search.best_fitness[0] else max(low, v.hint.makespan)
    makespan = v.number(min(low, high), high, v.hint.makespan)
    for steps in steps_of_device.values():  # all that a device does fits in, which helps the solver's bound
        v.model.add(sum(duration * literal for literal, _, duration in steps) <= makespan)
    for step in v.ops:
        v.model.add(makespan >= step.end)
    v.model.minimize(makespan)
    return v, lambda least: math.ceil(least - 1e-6) // v.units.steps * v.units.microseconds


def _keep_limits(v: Variables, held: list[Any], excess: Any = 0) -> None:
    """Keep what each device holds within its limit, or exceed it by no more."""
    for most, limit in zip(held, v.problem.memory_limits, strict=True):
        if limit is not None:
            v.model.add(most <= min(limit // v.units.bytes, v.most) + excess)
