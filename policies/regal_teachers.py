"""Teachers: rules whose choices REGAL's network can be taught to imitate before it learns from rewards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .multigraph import SearchedGraph
from .regal_actions import ActionParameters, beta_parameters, crossover_bias

Teacher = Callable[[SearchedGraph, ActionParameters, np.random.Generator], NDArray[np.int64]]
"""From what the network sees, what it chooses, and random numbers to actions, shape `(ops, heads)`."""


def uniform(searched: SearchedGraph, parameters: ActionParameters, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return, for every op, the choices nearest to those of plain BRKGA: Beta(1, 1) and a crossover bias of 0.7.

    The mean comes first, the smaller of two as near as each other, so that no device is preferred; then the variance.
    """
    chosen: list[int] = []
    for head in parameters.heads(searched.problem.devices):
        k = head.choices
        levels = np.arange(k)
        if head.what == "bias":
            distance = np.abs(crossover_bias(levels, k) - 0.7)
        elif head.what == "mean":
            distance = np.abs((levels + 1) / (k + 1) - 1 / 2)
        else:
            alpha, beta = beta_parameters(np.full(k, chosen[-1]), levels, k)
            total = alpha + beta
            distance = np.abs(alpha * beta / (total**2 * (total + 1)) - 1 / 12)
        chosen.append(int(np.argmin(np.round(distance, 12))))
    return np.tile(np.array(chosen, np.int64), (searched.problem.graph.num_ops, 1))


TEACHERS: dict[str, Teacher] = {"uniform": uniform}
