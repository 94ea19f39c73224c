"""The lower bound on a makespan from when ops may start and must have ended, and the work that is then to be done."""

from __future__ import annotations

import numpy as np

from ..base.arrays import FloatArray
from ..kernels.placements.heads import between_heads_and_tails

ROUNDING = 2.5e-16
"""What the rounding of a sum may have added per term, relative."""
MOST_PAIRS = 20_000_000
"""Of heads and tails: about a tenth of a second."""


def energy_bound(head: FloatArray, tail: FloatArray, runtime: FloatArray, energy: FloatArray) -> float:
    """Return what no schedule is faster than, microseconds.

    The larger of the longest head, runtime and tail, and over pairs of a head and a tail: both, and the energy of all
    ops that have no less, which run in between (as Fernandez and Bussell 1973). Of many ops only some heads are tried.

    Parameters
    ----------
    head, tail
        Shape `(ops,)`: microseconds before which no op starts, and that follow it at least.
    runtime
        Shape `(ops,)`: microseconds that each op takes at least.
    energy
        Shape `(ops,)`: what each adds at least to the mean time, weighted in any way, that devices are busy.
    """
    by_head, by_tail = (np.argsort(times, kind="stable").astype(np.int32) for times in (head, tail))
    some = np.ascontiguousarray(by_head[:: 1 + len(head) ** 2 // MOST_PAIRS])
    work = float(between_heads_and_tails(head, tail, some, by_tail, energy))
    return max(float((head + tail + runtime).max()), work) * (1 - ROUNDING * max(2_000, len(head)))
