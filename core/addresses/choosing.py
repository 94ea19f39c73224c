"""The choice of addresses, and with them of the order, on one device."""

from __future__ import annotations

from dataclasses import replace

from ..result import Result
from .placing import place_schedule


def choose(result: Result, alignment: int, time_limit: float) -> Result:
    """Return a result with addresses for its schedule, or for one whose arena is smaller."""
    addresses = place_schedule(result.problem, result.schedule, alignment, time_limit)
    return replace(result, addresses=addresses)
