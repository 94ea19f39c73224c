"""What a program really took in one order, beside what the cost model says of that order."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..costs.simulator import simulate
from ..graph import CostGraph
from ..problem import Problem
from ..schedule import Schedule

PROGRAM_ORDER = "program order"


@dataclass(frozen=True)
class Measurement:
    """The runs of a program in one order, each in a process of its own.

    Parameters
    ----------
    order
        `program order`, or the schedule's file.
    predicted_peak
        Bytes: the peak of this order by the cost model, with measured costs.
    measured_peaks
        Bytes, one per run: what the caller holds (parameters, buffers, inputs) and the most that the allocator held
        beside it.
    microseconds
        Time of one warm run, in each process.
    is_equal
        Whether all outputs and all that is updated in place are bitwise those of program order, in every run.
    """

    order: str
    predicted_peak: int
    measured_peaks: tuple[int, ...]
    microseconds: tuple[float, ...]
    is_equal: bool

    @property
    def measured_peak(self) -> int:
        """The largest peak of all runs, bytes."""
        return max(self.measured_peaks)

    @property
    def error(self) -> float:
        """How far the predicted peak is from the measured one, relative to that."""
        return self.predicted_peak / self.measured_peak - 1 if self.measured_peak else 0.0

    @property
    def median_microseconds(self) -> float:
        """Median time of a run."""
        return statistics.median(self.microseconds)

    @property
    def spread_microseconds(self) -> float:
        """Slowest less fastest run."""
        return max(self.microseconds) - min(self.microseconds)


def measurements(
    graph: CostGraph,
    orders: Mapping[str, Sequence[int]],
    runs: Sequence[Mapping[str, Mapping[str, Any]]],
    *,
    unpredicted: int = 0,
    unmeasured: int = 0,
) -> list[Measurement]:
    """Return a row per order.

    Parameters
    ----------
    graph
        What the cost model says, with measured costs.
    orders
        Of the graph's ops, program order among them.
    runs
        In each, what the process of an order reports: `peak` in bytes, `microseconds` and `digests` of the results.
    unpredicted, unmeasured
        Bytes held throughout that the graph, or the processes' peaks, leave out.
    """
    expected = runs[0][PROGRAM_ORDER]["digests"]
    return [
        Measurement(
            order=label,
            predicted_peak=unpredicted + simulate(Problem(graph), Schedule.single_device(np.array(order))).peak,
            measured_peaks=tuple(unmeasured + run[label]["peak"] for run in runs),
            microseconds=tuple(run[label]["microseconds"] for run in runs),
            is_equal=all(run[label]["digests"] == expected for run in runs),
        )
        for label, order in orders.items()
    ]
