"""Whether two orders of a program differ in time by more than noise: a paired comparison over rounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

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
    """Compare the times of two orders that ran in the same rounds.

    The logarithms of the ratios of each round are compared by Student's paired t-test: what slows a whole round, as
    other work on the machine does, cancels out. Times are microseconds, a number per round.
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
