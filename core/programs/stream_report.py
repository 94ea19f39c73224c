"""What a plan of several streams really took, beside what was predicted of it."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from ..base.units import format_microseconds
from ..graph.graph import CostGraph
from .stream_plans import Spans, StreamPlan
from .time_difference import TimeDifference, time_difference

_BUSY = 0.05


@dataclass(frozen=True, eq=False)
class StreamRow:
    """The runs of a program in one plan, or in one of the ways that plans are compared with.

    Parameters
    ----------
    label
        The schedule's file, or what the other way is called.
    microseconds
        Median time of the runs in each process.
    runs, waits
        Microseconds of each run, a row per process, and how long its threads waited for a core in each.
    is_equal
        Whether all outputs are bitwise those of the program on one stream, in every run.
    plan
        The streams; None where there is none.
    predicted
        Microseconds by the times of the ops on one stream; None where there is no plan.
    spans, predicted_spans
        When each op ran in the run of median length that was profiled, and when it should have; None without a plan.
    """

    label: str
    microseconds: tuple[float, ...]
    runs: tuple[tuple[float, ...], ...]
    waits: tuple[tuple[float, ...], ...]
    is_equal: bool
    plan: StreamPlan | None = None
    predicted: float | None = None
    spans: Spans | None = None
    predicted_spans: Spans | None = None

    @property
    def median_microseconds(self) -> float:
        """Median of the processes' medians."""
        return statistics.median(self.microseconds)

    @property
    def error(self) -> float | None:
        """How far the predicted makespan is from the measured one, relative to that; None without a prediction."""
        return None if self.predicted is None else self.predicted / self.median_microseconds - 1

    def time_against(self, other: StreamRow) -> TimeDifference:
        """Return how much longer this takes than another that ran in the same processes."""
        return time_difference(other.microseconds, self.microseconds)


@dataclass(frozen=True, eq=False)
class StreamReport:
    """What `measure` finds of plans of several streams.

    Parameters
    ----------
    graph
        The program's.
    rows
        One stream in program order, the runtime's own ways to use as many threads, then the plans.
    hand_over
        Microseconds from the end of an op to the start of its reader on another stream, beyond what lies between two
        ops of one stream.
    waited
        The share of their time in which threads were ready to run, and waited for a core.
    cores
        On which they could run.
    """

    graph: CostGraph
    rows: tuple[StreamRow, ...]
    hand_over: float
    waited: float
    cores: int


def latency_text(hand_over: float) -> str:
    """Return microseconds as `--latency` takes them: whole ones, rounded up."""
    return f"{math.ceil(hand_over)}us"


def stream_sentences(report: StreamReport) -> list[str]:
    """Say what a hand-over takes, how much faster the plans are, and whether the machine was too busy to tell."""
    one, rivals = report.rows[0], report.rows[1:]
    said = [f"Time of {row.label} against one stream: {row.time_against(one)}." for row in rivals]
    for row in rivals:
        if row.plan is not None and row.plan.planned is not None and row.plan.count > 1:
            planned = format_microseconds(row.plan.planned)
            count = row.plan.hand_overs(report.graph)
            crossing = "1 result crosses" if count == 1 else f"{count:,} results cross"
            said.append(f"{row.label} was planned to take {planned}; {crossing} streams.")
    said.append(
        f"A hand-over between streams takes {format_microseconds(report.hand_over)} here: "
        f"solve with --latency {latency_text(report.hand_over)} counts it."
    )
    if report.waited > _BUSY:
        said.append(_waiting(report, max(row.plan.count for row in rivals if row.plan is not None)))
    return said


def _waiting(report: StreamReport, streams: int) -> str:
    waited = f"hreads waited for a core in {100 * report.waited:.0f}% of their time"
    if report.cores > streams:
        return f"The machine is busy: t{waited}, so that these times say little of an idle one."
    return (
        f"T{waited}: {streams} streams and the thread that calls them want {streams + 1} cores, and here are "
        f"{report.cores}."
    )
