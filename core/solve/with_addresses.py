"""Solve a problem, and give what the schedule makes addresses."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from ..addresses.packing import DEFAULT_SECONDS
from ..base.errors import UsageError
from ..model.address_verifier import verify_addresses
from ..problem.problem import Problem
from ..report.result import Result
from ..search.method_spec import MethodSpec
from .address_choice import choose, warm_up
from .solve import solve

SEARCH_SHARE = 0.7
"""Of the time, for the search; what it leaves is there for the addresses, too."""


def solve_with_addresses(problem: Problem, spec: MethodSpec, alignment: int | None = None, **budget: Any) -> Result:
    """Solve a problem; with an alignment, find the order and the addresses of the least arena that the time allows."""
    if alignment is None:
        return solve(problem, spec, **budget)
    if not problem.is_symmetric:
        what = "weights that several devices read" if problem.hardware.is_equal else "a machine"
        raise UsageError(f"{problem.graph.name}: addresses are found for equal devices, not for {what}")
    warm_up()
    seconds = spec.time_limit or budget.pop("time_limit", None)
    evaluations = spec.evaluations or budget.get("evaluations")
    if seconds is None and evaluations is None:
        seconds = spec.method.default_seconds
    start = time.monotonic()
    searched = None if seconds is None else SEARCH_SHARE * seconds
    result = solve(problem, replace(spec, time_limit=None), time_limit=searched, **budget)
    left = DEFAULT_SECONDS if seconds is None else max(0.0, seconds - result.seconds)
    chosen = choose(
        result, alignment, time_limit=0.0 if result.status == "interrupted" else left, seed=budget.get("seed", 0)
    )
    assert chosen.addresses is not None
    verify_addresses(problem, chosen.schedule, chosen.addresses)
    return replace(chosen, seconds=time.monotonic() - start)
