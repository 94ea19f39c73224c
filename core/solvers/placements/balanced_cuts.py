"""Placements that send little and share every window of time out evenly: starts where transfers take time.

A placement is priced by what it sends and by how evenly the ops that are due about the same time are shared out, which
takes a thousandth of the time that running an order takes.
"""

from __future__ import annotations

import numpy as np

from ...base.arrays import IndexArray
from ...bounds.bounds import earliest_finish
from ...kernels.graph_arrays import GraphArrays
from ...kernels.placements.balanced_cuts import anneal_cuts, new_cuts
from ...search.search import Search
from .cooling import Cooling
from .lazy_keys import bottom_levels

HOT, COLD = 1.0, 0.02
"""First and last temperature, against the mean runtime."""


class BalancedCuts:
    """Draws placements of a problem.

    Parameters
    ----------
    search
        The problem, its budget and its random numbers; all ops moved once on average count as one evaluation.
    arrays
        The problem's graph.
    """

    def __init__(self, search: Search, arrays: GraphArrays) -> None:
        self.search, self.arrays = search, arrays
        problem = search.problem
        graph = problem.graph
        self.devices, self.ops = problem.devices, graph.num_ops
        self.sending = np.array(problem.latency + graph.tensor_size * problem.microseconds_per_byte, np.float64)
        place = np.argsort(graph.input_order)
        self.by_start = np.lexsort((place, earliest_finish(graph) - graph.runtime)).astype(np.int32)
        self.by_level = np.lexsort((place, -bottom_levels(graph)))

    def placement(self, ops_per_window: int, share: float) -> IndexArray:
        """Return the device of each op, shape `(ops,)`, int32; from a random placement on.

        Parameters
        ----------
        ops_per_window
            How many ops stand in a window: those that follow each other by their earliest start.
        share
            Of the budget that is left.
        """
        search, cooling = self.search, Cooling(self.search, share)
        first = search.rng.integers(0, self.devices, self.ops).astype(np.int32)
        cuts = new_cuts(self.arrays, first, self._windows(ops_per_window), self.sending, self.devices)
        mean = max(float(self.arrays.runtime.mean()), 1e-300)
        while not search.must_stop() and (spent := cooling.progress()) < 1.0:
            sweeps = cooling.moves(self.ops)
            draws = search.rng.random((sweeps * self.ops, 3))
            anneal_cuts(self.arrays, cuts, mean * HOT * (COLD / HOT) ** spent, draws)
            search.evaluations += sweeps
        return cuts.placement

    def _windows(self, ops_per_window: int) -> IndexArray:
        """Return the window of each op, shape `(ops,)`: of equal work, along the earliest starts."""
        count = max(1, self.ops // ops_per_window)
        runtime = self.arrays.runtime[self.by_start]
        middle = np.cumsum(runtime) - runtime / 2
        windows = np.empty(self.ops, np.int32)
        windows[self.by_start] = np.minimum(count - 1, count * middle / max(float(runtime.sum()), 1e-300))
        return windows
