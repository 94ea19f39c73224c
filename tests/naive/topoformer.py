"""Twins of Topoformer's features."""

from __future__ import annotations

import math

import numpy as np


def hops(neighbours, op):
    """Lengths of all paths from an op to one without neighbours."""
    return {0} if not neighbours[op] else {1 + length for other in neighbours[op] for length in hops(neighbours, other)}


def normalised_laplacian(plain):
    """I - D^-1/2 A D^-1/2 of the edges taken both ways, entry by entry; an op without edges has a row of zeros."""
    beside = [plain.before[op] | plain.after[op] for op in plain.ops]
    matrix = np.diag([float(bool(near)) for near in beside])
    for one in plain.ops:
        for two in beside[one]:
            matrix[one, two] = -1 / math.sqrt(len(beside[one]) * len(beside[two]))
    return matrix
