"""Measurements of a program in one order, next to the cost model, and the time between two orders beyond noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.units import format_bytes, format_microseconds
from ..problem.problem import RUNTIME_TOLERANCE

CONFIDENCE = 0.95


@dataclass(frozen=True)
class TimeDifference:
    """How much longer one order takes than another, as shares: 0.1 is 10% longer."""

    change: float  # geometric mean of the rounds
    # 95% interval; None with a single round, which tells nothing of noise
    low: float | None = None
    high: float | None = None

    @property
    def is_noise(self) -> bool:
        """Whether the rounds do not tell the two apart."""
        return self.low is None or self.high is None or self.low <= 0 <= self.high

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{_percent(self.change)} in one round, which tells nothing of noise"
        interval = f"95% interval {_percent(self.low)} to {_percent(self.high)}"
        if self.is_noise:
            return f"no difference beyond noise ({interval})"  # the medians beside it may differ the other way
        return f"{abs(100 * self.change):.0f}% {'slower' if self.change > 0 else 'faster'} ({interval})"


def time_difference(before: Sequence[float], after: Sequence[float]) -> TimeDifference:
    """Compare the times of two orders in the same rounds, microseconds: Student's paired t-test of their log ratios.

    What slows a whole round, as other work on the machine does, cancels out.
    """
    ratios = [math.log(two / one) for one, two in zip(before, after, strict=False)]
    mean = statistics.fmean(ratios)
    if len(ratios) < 2:
        return TimeDifference(math.expm1(mean))
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(ratios) - 1, (1 + CONFIDENCE) / 2))
    half = quantile * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return TimeDifference(math.expm1(mean), math.expm1(mean - half), math.expm1(mean + half))


def _percent(share: float) -> str:
    return f"{100 * share:+.0f}%"


PROGRAM_ORDER = "program order"
_NOTED_FAULTS = 0.1

OnRun = Callable[[int, int, str], None]
"""Told before each run: its number, how many there are, and the order that runs."""


@dataclass(frozen=True)
class Measurement:
    """The runs of a program in one order, each in a process of its own."""

    order: str  # `program order`, or the schedule's file
    predicted_peak: int  # bytes, by the cost model with measured costs
    # bytes, one per process: held by the caller (parameters, buffers, inputs), and most held by the allocator
    measured_peaks: tuple[int, ...]
    microseconds: tuple[float, ...]  # median of the warm runs, one per process
    # outputs, and all that is updated in place, are bitwise those of program order in every run
    is_equal: bool
    runs: tuple[tuple[float, ...], ...] = ()  # microseconds of each warm run, a row per process
    page_faults: tuple[float, ...] = ()  # per run, one per process
    # as `microseconds`, with freed memory kept; see `time_runs`
    kept_microseconds: tuple[float, ...] = ()
    predicted_microseconds: float = 0.0  # of all ops, each as often as it runs
    memory_limit: int | None = None  # bytes
    own_peak: int | None = None  # of program order where that is a trace: bytes of a call of the model itself

    @property
    def measured_peak(self) -> int:
        """The largest peak of all runs, bytes."""
        return max(self.measured_peaks)

    @property
    def keeps_limit(self) -> bool | None:
        """Whether the memory limit was kept in every run; None where there is none."""
        return None if self.memory_limit is None else self.measured_peak <= self.memory_limit

    @property
    def error(self) -> float:
        """How far the predicted peak is from the measured one, relative to that."""
        return self.predicted_peak / self.measured_peak - 1 if self.measured_peak else 0.0

    @property
    def median_microseconds(self) -> float:
        """Median time of a run."""
        return statistics.median(self.microseconds)

    def time_against(self, other: Measurement) -> TimeDifference:
        """Return how much longer this order takes than another that ran in the same rounds."""
        return time_difference(other.microseconds, self.microseconds)


def time_sentences(row: Measurement, first: Measurement) -> list[str]:
    """Say whether an order takes more time than program order or less, and whether that is the work or the memory."""
    if row.runs and row.runs == first.runs:
        return [f"{row.order} is program order, and has not run apart."]
    said = [f"Time of {row.order}: {row.time_against(first)}."]
    if row.predicted_microseconds > first.predicted_microseconds * (1 + RUNTIME_TOLERANCE):
        added = 100 * (row.predicted_microseconds / first.predicted_microseconds - 1)
        took = format_microseconds(row.predicted_microseconds)
        before = format_microseconds(first.predicted_microseconds)
        said.append(f"Predicted: +{added:.2f}%, as some ops run again: {took} for all, {before} in program order.")
    if all(one.kept_microseconds in ((), one.microseconds) for one in (row, first)):
        return said
    faults, others = statistics.median(row.page_faults), statistics.median(first.page_faults)
    if abs(faults - others) > _NOTED_FAULTS * max(faults, others):
        kept = time_difference(first.kept_microseconds, row.kept_microseconds)
        said.append(f"It has {faults:,.0f} page faults a run, not {others:,.0f}: freed memory is given back.")
        said.append(f"If it is kept: {kept}.")
    return said


def limit_sentences(row: Measurement) -> list[str]:
    """Say whether an order kept its memory limit in every run; nothing where it has none."""
    if row.memory_limit is None:
        return []
    limit = format_bytes(row.memory_limit)
    if row.keeps_limit:
        return [f"Memory limit of {row.order}: {limit}, kept in every run."]
    excess = format_bytes(row.measured_peak - row.memory_limit)
    runs = f"{sum(peak > row.memory_limit for peak in row.measured_peaks)} of {len(row.measured_peaks)} runs"
    return [f"Memory limit of {row.order}: {limit}, exceeded by up to {excess} in {runs}."]


def run_rounds(
    run: Callable[[str], Mapping[str, Any]], orders: Sequence[str], repeats: int, on_run: OnRun
) -> dict[str, list[Mapping[str, Any]]]:
    """Run the orders in turn, round after round, each round beginning with another one; return the reports of each.

    Ctrl-C ends it with the runs that are done, if program order is among them.
    """
    reports: dict[str, list[Mapping[str, Any]]] = {order: [] for order in orders}
    number, total = 0, repeats * len(orders)
    try:
        for beginning in range(repeats):
            shift = beginning % len(orders)
            for order in (*orders[shift:], *orders[:shift]):
                number += 1
                on_run(number, total, order)
                reports[order].append(run(order))
    except KeyboardInterrupt:
        if not reports[orders[0]]:
            raise
    return reports


def measurement(
    order: str, predicted: tuple[int, float], reports: Sequence[Mapping[str, Any]], held: int, expected: Sequence[str]
) -> Measurement:
    """Return the row of an order that ran.

    `predicted` are bytes and microseconds, `expected` the digests in program order; peaks leave out `held` bytes.
    """
    per_process: dict[str, Any] = {
        name: tuple(report[name] for report in reports) for name in ("microseconds", "page_faults", "kept_microseconds")
    }
    return Measurement(
        order=order,
        predicted_peak=held + predicted[0],
        predicted_microseconds=predicted[1],
        measured_peaks=tuple(held + report["peak"] for report in reports),
        is_equal=all(report["digests"] == expected for report in reports),
        runs=tuple(tuple(report["runs"]) for report in reports),
        **per_process,
    )
