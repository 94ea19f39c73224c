"""The points of a front, and what is known of those that nobody can reach."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...bounds.bounds import is_met
from ...problem.problem import RUNTIME_TOLERANCE, Problem
from ...problem.residents import model_of
from ...report.result import Result


class LimitBound(NamedTuple):
    """What a memory limit costs at the least."""

    limit: int  # bytes per device
    time: float  # microseconds, or runs where every run counts alike, below which no schedule is that keeps the limit


@dataclass(frozen=True)
class FrontPoint:
    """A verified schedule that no other one found beats in both peak and time."""

    result: Result  # the schedule, and how it was found
    time: float  # what it takes: microseconds, or runs where every run counts alike
    time_bound: float  # no schedule of at most its peak takes less
    peak_bound: int  # no schedule of at most its time needs fewer bytes on the fullest device

    @property
    def peak_memory(self) -> int:
        """Bytes on the fullest device."""
        return self.result.peak_memory

    @property
    def added_runs(self) -> int:
        """Runs of ops that had run before."""
        return max(0, int((self.result.schedule.items >= 0).sum()) - self.result.problem.graph.num_ops)

    @property
    def is_optimal(self) -> bool:
        """Whether no schedule of at most its peak takes less."""
        return is_met(self.time, self.time_bound)


@dataclass(frozen=True, repr=False)
class Front:
    """What a front is made of, and how it is called."""

    problem: Problem
    points: tuple[FrontPoint, ...]
    bounds: tuple[LimitBound, ...]
    least_peak: int

    @property
    def least_time(self) -> float:
        """What no schedule takes less than, whatever its memory: microseconds, or runs."""
        return self.bounds[0].time if self.bounds else 0.0

    def title(self) -> str:
        """Return the line above the table: what graph it is, and what is traded."""
        graph, devices = self.problem.graph, self.problem.devices
        what = "recomputation on 1 device" if devices == 1 else f"makespan on {devices} devices"
        return f"{graph.name}: {model_of(graph).num_ops:,} ops, peak memory against time, {what}"


def front_points(
    problem: Problem, found: Iterable[tuple[Result, int]], bounds: Sequence[LimitBound]
) -> tuple[FrontPoint, ...]:
    """Return the results that no other one beats, from most memory to least."""
    timed = [(r.peak_memory, problem.time_of(len(r.schedule), r.runtime), bound, r) for r, bound in found]
    points: list[FrontPoint] = []
    for peak, time, bound, result in sorted(timed, key=lambda entry: entry[:2]):
        if points and time >= points[-1].time * (1 - RUNTIME_TOLERANCE):
            continue
        time_bound = max((b.time for b in bounds if b.limit >= peak), default=0.0)
        passed = (b.limit + 1 for b in bounds if b.time * (1 - RUNTIME_TOLERANCE) > time)
        points.append(FrontPoint(result, time, min(time, time_bound), min(peak, max((bound, *passed)))))
    return tuple(reversed(points))
