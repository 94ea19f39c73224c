"""Options of a comparison and of a front."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..base.errors import UsageError
from ..base.options import fixed, option, spelled
from ..search.options import MOST_DEVICES, SEARCH_TIME, Budget, ProblemOptions, read_evaluations

if TYPE_CHECKING:
    from ..graph.graph import CostGraph
    from ..problem.problem import Problem


@dataclass(frozen=True)
class CompareOptions(Budget, ProblemOptions):
    """The problem of each graph, the budget of each run, and the seeds."""

    seeds: int = option(1, "Runs per method and graph, from --seed on", low=1)


@dataclass(frozen=True)
class GridOptions(CompareOptions):
    """The problem and the budget of each run of a grid search."""

    devices: int = option(2, "Devices", low=1, high=MOST_DEVICES, short="d")
    memory_limit: Any = fixed(None)
    recompute: bool = fixed(False)
    max_overhead: Any = fixed(None)
    machine: Any = fixed(None)
    op_times: Any = fixed(None)
    pins: Any = fixed(None)
    replicate: bool = fixed(False)
    evaluations: int = option(5000, "Budget of each run", low=1, read=read_evaluations, metavar="N")
    time_limit: None = fixed(None)
    jobs: int = fixed(1)
    seeds: int = fixed(1)


@dataclass(frozen=True)
class ParetoOptions(Budget, ProblemOptions):
    """How many points a front has, on which devices, and the budget of each search."""

    task: Any = fixed("memory")
    memory_limit: Any = fixed(None)
    recompute: bool = fixed(False)
    max_overhead: Any = fixed(None)
    devices: int = option(
        1, "1, where ops may run again, or more, where none does", low=1, high=MOST_DEVICES, short="d"
    )
    evaluations: int | None = option(
        None,
        "Budget of complete schedules priced, e.g. 5000 or 1e4",
        low=1,
        read=read_evaluations,
        metavar="N",
        shown="no limit",
    )
    time_limit: float | None = SEARCH_TIME
    points: int = option(10, "Points to look for, the ends included", low=2, short="n", json="limits")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.devices == 1 and (self.bandwidth is not None or self.latency):
            bandwidth, latency = spelled("bandwidth"), spelled("latency")
            raise UsageError(f"{bandwidth} and {latency} are of several devices; give {spelled('devices')}, too")

    def problem(self, graph: CostGraph) -> Problem:
        """Return the problem of a graph without a limit; on one device ops may run again."""
        from ..problem.problem import Problem

        if self.devices > 1 and not graph.runtime.any():
            raise UsageError(
                f"{graph.name}: no op has a runtime, so that on {self.devices} devices there is no time to trade; "
                "on one device every run counts alike"
            )
        if self.machine is None and self.devices == 1:
            return Problem(graph, recompute=True)
        return super().problem(graph)
