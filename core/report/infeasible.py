"""Proof that a memory limit is out of reach where every op runs once, and its sentence."""

from __future__ import annotations

import math
from dataclasses import replace

from ..base.units import format_bytes, written_apart
from ..bounds.bounds import lower_bound
from ..problem.problem import Problem
from ..problem.residents import model_of
from .memory_by_role import RESIDENT_ROLES, UNNAMED, resident_roles

_WEIGHTS = {RESIDENT_ROLES["parameter"], UNNAMED}


def why_none_fits(problem: Problem, proven: float) -> str:
    """Return the sentence that says why no schedule keeps the memory limits; empty where that is not proven."""
    limits = [limit for limit in problem.memory_limits if limit is not None]
    if len(limits) < problem.devices:
        none = f"no schedule of {_name(problem)} keeps the limits of all devices: a search of all ended without one"
        return none if math.isinf(proven) else ""
    most = max(limits)
    least = least_peak(problem, proven)
    kind, each = ("order", "order") if problem.devices == 1 else (f"schedule on {problem.devices} devices", "schedule")
    if least > most:
        limit, needed = written_apart(most, least)
        room = limit if problem.devices == 1 else f"{limit} each"
        where = "" if problem.devices == 1 else " on one of them"
        return f"no {kind} of {_name(problem)} fits in {room}: every {each} needs at least {needed}{where}" + _held(
            problem
        )
    if math.isinf(proven):
        return f"no {kind} of {_name(problem)} fits in {format_bytes(most)}: a search of all ended without one"
    return ""


def least_peak(problem: Problem, proven: float = 0) -> int:
    """Return what no schedule's fullest device is below, bytes; `proven` is what is proven of the task."""
    least = int(lower_bound(replace(problem, task="memory")))
    return max(least, int(proven)) if problem.task == "memory" and math.isfinite(proven) else least


def _name(problem: Problem) -> str:
    return model_of(problem.graph).name


def _held(problem: Problem) -> str:
    """Return how much of what an order needs stays throughout, as a part of a sentence."""
    resident = int(problem.graph.persistent.sum())
    if problem.devices > 1 or not resident:
        return ""
    what = "are weights" if set(resident_roles(problem.graph)) <= _WEIGHTS else "stay throughout"
    return f", of which {format_bytes(resident)} {what}"
