"""List schedulers that look at all ready ops at each step: Min-Min, Max-Min and Sufferage, as starts of a search.

Maheswaran et al. 1999, with the insertion of HEFT. They look at all ready ops for each op that they place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...base.arrays import FloatArray
from ...bounds.machine_bounds import EdgeCosts
from ...problem.problem import Problem
from ...problem.residents import first_home
from .insertion import InsertionSchedule

MOST_OPS = 100
"""Ops up to which these take no more than about a tenth of a second."""


def _least(ends: FloatArray) -> float:
    return -float(ends.min())


def _most(ends: FloatArray) -> float:
    return float(ends.min())


def _sufferage(ends: FloatArray) -> float:
    """Return by how much an op ends later on its second best device."""
    finite = np.sort(ends[np.isfinite(ends)])
    return float(finite[1] - finite[0]) if len(finite) > 1 else np.inf


Rule = Callable[[FloatArray], float]
RULES: tuple[Rule, ...] = (_least, _most, _sufferage)


def place_ready_ops(
    problem: Problem, edges: EdgeCosts, rule: Callable[[FloatArray], float]
) -> InsertionSchedule | None:
    """Place ops until all are: of those that are ready the one that the rule values most, where it ends first."""
    own = first_home(problem.graph)
    waiting, leaving = np.bincount(edges.targets, minlength=own), edges.grouped(edges.sources, own)
    made = InsertionSchedule(problem, edges)
    ready = [op for op in range(own) if not waiting[op]]
    while ready:
        starts, ends = zip(*(made.earliest(op) for op in ready), strict=True)
        at = max(range(len(ready)), key=lambda n: (rule(ends[n]), -ready[n]))
        device = int(ends[at].argmin())
        if not np.isfinite(ends[at][device]):
            return None
        op = ready.pop(at)
        made.put(op, device, float(starts[at][device]))
        for e in leaving[op]:
            target = int(edges.targets[e])
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return made
