"""How a front of peak memory against time is looked for."""

from __future__ import annotations

from dataclasses import dataclass

from ...base.errors import UsageError
from ...graph.graph import CostGraph
from ...problem.machine import MAX_DEVICES, Machine
from ...problem.problem import Problem
from ...search.problem_settings import ProblemSettings

DEFAULT_POINTS = 10


@dataclass(frozen=True)
class SweepSettings:
    """How many limits are swept, on which devices, and the budget of each search.

    Parameters
    ----------
    points
        How many points are looked for, the ends included.
    devices, bandwidth, latency
        As in `Problem`; on one device ops may run again, on several they may not.
    machine, replicate, pins_from_graph
        As in `ProblemSettings`; on a machine no op runs again.
    evaluations, time_limit
        Budget of each search, schedules priced and seconds; by default ten seconds.
    seed
        Of every random choice.

    Raises
    ------
    UsageError
        If there are fewer than two points, or what is between devices is given for one.
    """

    points: int = DEFAULT_POINTS
    devices: int = 1
    bandwidth: float | None = None
    latency: float = 0.0
    evaluations: int | None = None
    time_limit: float | None = None
    seed: int = 0
    machine: Machine | None = None
    replicate: bool = False
    pins_from_graph: bool = False

    def __post_init__(self) -> None:
        if self.points < 2:
            raise UsageError(f"a front has at least 2 points, not {self.points}")
        if not 1 <= self.devices <= MAX_DEVICES:
            raise UsageError(f"devices must be from 1 to {MAX_DEVICES}, not {self.devices}")
        if self.machine is not None and (self.bandwidth is not None or self.latency):
            raise UsageError("a machine says its own bandwidths and latencies; leave bandwidth and latency out")
        if self.devices == 1 and (self.bandwidth is not None or self.latency):
            raise UsageError("bandwidth and latency are of several devices; give --devices, too")
        for name in ("evaluations", "time_limit"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name.replace('_', ' ')} must be above 0, not {value}")

    def problem(self, graph: CostGraph) -> Problem:
        """Return what is scheduled, without a limit.

        Raises
        ------
        UsageError
            If time cannot be traded for memory: several devices, and nothing that takes time.
        """
        if self.devices > 1 and not graph.runtime.any():
            raise UsageError(
                f"{graph.name}: no op has a runtime, so that on {self.devices} devices there is no time to trade; "
                "on one device every run counts alike"
            )
        if self.machine is None and self.devices == 1:
            return Problem(graph, recompute=True)
        settings = ProblemSettings(
            devices=self.devices,
            bandwidth=self.bandwidth,
            latency=self.latency,
            machine=self.machine,
            replicate=self.replicate,
            pins_from_graph=self.pins_from_graph,
        )
        return settings.problem(graph)
