"""Placements that send little and share every window of time out evenly: starts where transfers take time.

A placement is priced by what it sends and by how evenly the ops that are due about the same time are shared out, which
takes a thousandth of the time that running an order takes.
"""

from __future__ import annotations

import numpy as np

from ...base.arrays import IndexArray
from ...bounds.bounds import earliest_finish
from ...kernels.cost_model import MachineArrays
from ...kernels.graph_arrays import GraphArrays
from ...kernels.placements.balanced_cuts import anneal_cuts, new_cuts
from ...kernels.placements.group_moves import no_groups, places_of
from ...search.plans import topological
from ...search.search import Search
from ..annealing import Annealing
from .lazy_keys import bottom_levels

HOT, COLD = 1.0, 0.02
"""First and last temperature, against the mean runtime."""


class BalancedCuts:
    """Draws placements of a problem."""

    def __init__(self, search: Search, arrays: GraphArrays, machine: MachineArrays) -> None:
        self.search, self.arrays, self.machine = search, arrays, machine
        self.rules = search.problem.rules
        self.places = places_of(self.rules.group, self.rules.allowed, no_groups())
        graph = search.problem.graph
        self.devices, self.ops = search.problem.devices, graph.num_ops
        place = np.argsort(graph.input_order)
        self.by_start = topological(graph, np.lexsort((place, earliest_finish(graph) - graph.runtime)))
        self.by_level = topological(graph, np.lexsort((place, -bottom_levels(graph))))

    def placement(self, ops_per_window: int, share: float) -> IndexArray:
        """Return the device of each op, shape `(ops,)`, int32; from a random placement on."""
        search, annealing = self.search, Annealing(self.search, share)
        first = self.rules.kept(search.rng.integers(0, self.devices, self.ops).astype(np.int32))
        cuts = new_cuts(self.arrays, self.machine, first, self._windows(ops_per_window))
        mean = max(float(self.arrays.runtime.mean()), 1e-300)
        for temperature in annealing.temperatures(HOT * mean, COLD * mean):
            sweeps = annealing.walk(temperature, (annealing.moves(self.ops), 3 * self.ops), (), self.places)
            anneal_cuts(self.arrays, self.machine, cuts, sweeps._replace(draws=sweeps.draws.reshape(-1, 3)))
            annealing.spend(sweeps)
        return self.rules.kept(cuts.placement)

    def _windows(self, ops_per_window: int) -> IndexArray:
        """Return the window of each op, shape `(ops,)`: of equal work, along the earliest starts."""
        count = max(1, self.ops // ops_per_window)
        runtime = self.arrays.runtime[self.by_start]
        middle = np.cumsum(runtime) - runtime / 2
        windows = np.empty(self.ops, np.int32)
        windows[self.by_start] = np.minimum(count - 1, count * middle / max(float(runtime.sum()), 1e-300))
        return windows
