"""Antithetic evolution strategies: a gradient from the values of perturbed parameters alone (Salimans et al. 2017)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...core.base.arrays import FloatArray


def directions(pairs: int, size: int, rng: np.random.Generator) -> Tensor:
    """Draw the directions of the perturbations from N(0, I), shape `(pairs, size)`."""
    return torch.from_numpy(rng.standard_normal((pairs, size), dtype=np.float32))


def centred_ranks(fitness: FloatArray) -> FloatArray:
    """Return the ranks of all values, scaled to -0.5 for the smallest and 0.5 for the largest; equals share a rank."""
    values = fitness.ravel()
    below = (values[None, :] < values[:, None]).sum(1)
    equal = (values[None, :] == values[:, None]).sum(1)
    ranks: FloatArray = (below + (equal - 1) / 2) / (len(values) - 1) - 0.5
    return ranks.reshape(fitness.shape)


def estimated_gradient(fitness: FloatArray, directions: Tensor, sigma: float) -> Tensor:
    """Estimate the gradient of the expected fitness under the perturbations, shape `(size,)`."""
    # Algorithm 1 of Salimans et al., on pairs of opposite perturbations (section 2).
    halves = torch.from_numpy((fitness[0] - fitness[1]) / 2).to(directions)
    return halves @ directions / (len(directions) * sigma)
