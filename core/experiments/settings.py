"""What all runs of a comparison share."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.errors import UsageError
from ..search.problem_settings import ProblemSettings


@dataclass(frozen=True)
class Settings(ProblemSettings):
    """The problem of each graph, the budget of each run, and the seeds.

    Parameters
    ----------
    task, devices, memory_limit, bandwidth, latency, memory_limit_share, recompute, max_overhead
        As in `ProblemSettings`.
    evaluations, time_limit
        Budget of each run, schedules priced and seconds; by default the method's own.
    seed, seeds
        The first seed, and how many.

    Raises
    ------
    UsageError
        If a share, a budget or the number of seeds is not positive, or there are two limits.
    """

    evaluations: int | None = None
    time_limit: float | None = None
    seed: int = 0
    seeds: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("evaluations", "time_limit", "seeds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name.replace('_', ' ')} must be above 0, not {value}")
