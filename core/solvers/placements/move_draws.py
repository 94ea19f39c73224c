"""Which op moves next: more often what sends less, where transfers take time, or what fills the fullest places."""

from __future__ import annotations

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray
from ...graph.graph import CostGraph
from ...kernels.cost_model import MachineArrays
from ...kernels.graph_arrays import GraphArrays
from ...kernels.placements.balanced_cuts import Cuts, weigh_moves
from ...kernels.placements.incremental_peak import Lifetimes, Sequence

SHARE_AS_EVER = 0.2
"""Of the moves: drawn uniformly, so that none is excluded."""

SHORTEST = 1e-9
"""Of the longest transfer: shorter mean runtimes count as this, as weights have to be finite."""


class MoveDraws:
    """Rewrites the draws of an annealing of sequences, so that moves which send less are drawn more often.

    The weights of all moves are found anew once as many moves were drawn as there are ops.
    """

    def __init__(self, arrays: GraphArrays, machine: MachineArrays, allowed: BoolArray, placement: IndexArray) -> None:
        self.arrays, self.machine, self.allowed, self.placement = arrays, machine, allowed, placement
        ops, self.devices = machine.times.shape
        readers = np.zeros((len(arrays.tensor_size), self.devices), np.int32)
        self.cuts = Cuts(placement, readers, np.empty((0, self.devices)), np.empty(0, np.int32))
        longest = machine.latency.max() + arrays.tensor_size.max(initial=0) * machine.per_byte.max()
        self.mean = max(float(arrays.runtime.mean()), SHORTEST * float(longest), 1e-300)
        self.weights, self.sums = np.empty((ops, self.devices)), np.empty(0)
        self.drawn = ops

    def rewrite(self, draws: FloatArray) -> None:
        """Let rows of uniform draws, as `anneal_sequence` takes them, stand for ops and devices drawn by weight."""
        if self.drawn >= len(self.placement):
            self._weigh()
            self.drawn = 0
        self.drawn += len(draws)
        rewrite(draws, self.sums, self.placement, self.devices)

    def _weigh(self) -> None:
        """Find the sums of the weights: in all, half of those of a uniform draw are for an op's own device."""
        ops, devices = self.weights.shape
        weigh_moves(self.arrays, self.machine, self.cuts, self.mean, self.weights)
        uniform = np.where(self.allowed, 1.0 / (devices - 1), 0.0)
        uniform[np.arange(ops), self.placement] = 1.0
        self.weights *= uniform
        share = (1 - SHARE_AS_EVER) / self.weights.sum()
        self.sums = (share * self.weights + SHARE_AS_EVER / (2 * ops) * uniform).cumsum()


class PeakDraws:
    """Rewrites the draws of an annealing for the peak, so that ops which fill the fullest places are drawn more often.

    An op's weight is the square root of what the tensors that it makes or reads, its own bytes and its workspace add
    to, each with the penalties of all places where it is held: without the root few ops would have all draws. A view is
    what it is a view of, which is held as long as any of its views. The weights are found anew once as many moves were
    drawn as there are ops.
    """

    def __init__(self, graph: CostGraph, arrays: GraphArrays, lifetimes: Lifetimes, sequence: Sequence) -> None:
        self.arrays, self.penalty, self.sequence, self.root = arrays, lifetimes.present.penalty, sequence, graph.root
        self.reader = np.repeat(np.arange(len(arrays.runtime)), np.diff(arrays.input_ptr))
        self.sums, self.drawn = np.empty(0), len(arrays.runtime)

    def rewrite(self, draws: FloatArray, share: float) -> None:
        """Let the first of each row of uniform draws stand for an op, drawn by weight."""
        ops = len(self.arrays.runtime)
        if self.drawn >= ops:
            weights = self._weights()
            self.sums = (share * weights / max(float(weights.sum()), 1e-300) + (1 - share) / ops).cumsum()
            self.drawn = 0
        self.drawn += len(draws)
        op = np.searchsorted(self.sums, draws[:, 0] * self.sums[-1], side="right")
        draws[:, 0] = (np.minimum(op, ops - 1) + 0.5) / ops

    def _weights(self) -> FloatArray:
        g, place, ops = self.arrays, self.sequence.position, len(self.arrays.runtime)
        until = np.concatenate(((0.0,), self.penalty.cumsum()))
        first = place[g.producer]
        last = np.where(g.is_final, ops - 1, first)
        np.maximum.at(last, g.inputs, place[self.reader])
        np.maximum.at(last, self.root, last)
        filled = (g.tensor_size * (until[last + 1] - until[first]))[self.root]
        made = np.bincount(g.producer, filled, ops)
        read = np.bincount(self.reader, filled[g.inputs], ops)
        weights: FloatArray = np.sqrt(made + read + g.persistent * until[-1] + g.workspace * self.penalty[place])
        return weights


def rewrite(draws: FloatArray, sums: FloatArray, placement: IndexArray, devices: int) -> None:
    """Let rows of uniform draws stand for an op and a device each, drawn by weight."""
    ops = len(placement)
    cell = np.searchsorted(sums, draws[:, 0] * sums[-1], side="right")
    op, device = np.divmod(np.minimum(cell, ops * devices - 1), devices)
    away = (device - placement[op]) % devices
    draws[:, 0] = (op + 0.5) / ops
    draws[:, 1] = 0.5 * draws[:, 1] + np.where(away == 0, 0.5, 0.0)
    draws[:, 2] = np.where(away == 0, draws[:, 2], (away - 0.5) / (devices - 1))
