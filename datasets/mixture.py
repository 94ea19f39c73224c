"""Mixtures: the weights of a random choice."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..core.base.arrays import FloatArray
from ..core.base.errors import UsageError


def check_weights(name: str, weights: Sequence[float]) -> None:
    """Raise UsageError unless weights are finite, none is negative, and not all are 0."""
    if not (all(0 <= weight < math.inf for weight in weights) and sum(weights) > 0):
        raise UsageError(f"{name} must be at least 0 and not all 0, not {tuple(weights)}")


def normalized(weights: Sequence[float]) -> FloatArray:
    """Return the weights as probabilities."""
    return np.array(weights, np.float64) / sum(weights)
