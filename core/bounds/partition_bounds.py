"""The bound on a makespan from transfers of even placements (Donath and Hoffman 1973; `docs/concepts/bounds.md`)."""

import math
from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from ..base.arrays import FloatArray
from ..base.speed import seconds_for
from ..problem.problem import Problem
from ..problem.residents import model_of
from .bounds import least_times, whole_units

# Ops, and pairs of ops of one tensor: a round of the largest graph takes an eighth of a second
MOST_OPS, MOST_PAIRS = 1_500, 20_000_000
MOST_ROUNDS, MOST_WORK = 30, 4e9  # rounds that prices on ops are raised, and their number times the cube of the ops
ROUND, WORK, PAIR = 12_000.0, 0.0018, 0.12  # numbers sorted in the time of a round, of a cubed op in it, and of a pair
# Ops that take less than so much of a mean op are taken to do so, or eigenvalues would have no bound
SHARE_OF_MEAN = 0.01
FIRST_RISE, FALLS = 0.3, 0.8
HALVINGS = 40
DIGITS = 20  # binary ones of the bound, which is rounded down, so that the rounding of eigenvalues does not show
DEAREST = 1e9  # mean runtimes that a transfer may take: beyond it the rounding of eigenvalues is larger than runtimes


def partition_bound(
    problem: Problem,
    known: float,
    *,
    stop: Callable[[], bool] = lambda: False,
    has_time_for: Callable[[float], bool] = lambda seconds: True,
) -> float:
    """Return the lower bound of a makespan on devices with blocking transfers, microseconds."""
    devices, runtime, sending = least_times(problem)
    if problem.machine.is_beside:
        return known
    ops = len(runtime)
    pairs = float(((np.diff(model_of(problem.graph).consumers[0]) + 1.0) ** 2).sum())
    if not 1 < devices <= ops <= MOST_OPS or pairs > MOST_PAIRS:
        return known
    if not 0 < float(sending.max(initial=0.0)) <= DEAREST * float(runtime.mean()):
        return known
    work = float(ops) ** 3
    seconds = seconds_for(ROUND + WORK * work)
    if stop() or not has_time_for(seconds + seconds_for(PAIR * pairs)):
        return known
    cuts = _EvenCuts(problem, devices, runtime, sending)
    rounds = int(min(MOST_ROUNDS, MOST_WORK // work))
    with threadpool_limits(1, user_api="blas"):  # more threads take many times as long where other processes run
        best = cuts.best(rounds, lambda: stop() or not has_time_for(seconds))
    step = 2.0 ** (math.frexp(best)[1] - DIGITS)
    return max(known, whole_units(problem, (math.floor(best / step) - 1) * step))


class _EvenCuts:
    """Bytes that placements of a problem must send, if the work of each device is limited."""

    # Let a schedule end at m. No device works longer, and every transfer takes its time of two devices, so `devices * m
    # >= work + 2 * sent`. A tensor whose maker and readers, p ops, are on k devices is sent to k - 1 at least, and of
    # the pairs of these ops at most (k - 1) floor(p / 2) ceil(p / 2) are apart. So with weights of that reciprocal
    # times the cost of sending the tensor, twice the cost of all transfers is at least the sum over devices of `x L x`,
    # x being the device's ops as a vector of zeros and ones, and L the Laplacian of the weights. Prices p on the ops
    # change nothing: that sum is also `x (L - diag p) x`, and all prices. The vectors x are orthogonal in the inner
    # product of the runtimes, and have their loads as squared lengths; so the sum is at least that of the loads, the
    # largest first, times the smallest eigenvalues. Least of all are loads as uneven as m allows.

    def __init__(self, problem: Problem, devices: int, runtime: FloatArray, sending: FloatArray) -> None:
        graph, self.devices = model_of(problem.graph), devices
        self.work = float(runtime.sum())
        self.weight = np.maximum(runtime, SHARE_OF_MEAN * runtime.mean())
        self.lifted = float(self.weight.sum()) - self.work
        pointers, readers = graph.consumers
        tensors = np.arange(graph.num_tensors)
        rows = np.concatenate((tensors, np.repeat(tensors, np.diff(pointers))))
        shape = graph.num_tensors, graph.num_ops
        ops = csr_array((np.ones(len(rows)), (rows, np.concatenate((graph.tensor_producer, readers)))), shape=shape)
        ops.data[:] = 1.0  # an op may read a tensor twice
        count = ops.sum(axis=1)
        apart = np.floor(count / 2) * np.ceil(count / 2)
        apart[count < 2] = np.inf
        weights = (ops.T @ (ops * (sending / apart)[:, None])).toarray()
        np.fill_diagonal(weights, 0.0)
        self.laplacian = np.diag(weights.sum(axis=1)) - weights
        self.scale = 1.0 / np.sqrt(self.weight)

    def loads(self, makespan: float) -> FloatArray:
        """Return the most uneven loads within a makespan, microseconds, the largest first; shape `(devices,)`."""
        most = makespan + self.lifted
        filled: FloatArray = np.clip(self.work + self.lifted - most * np.arange(self.devices), 0.0, most)
        return filled

    def sent_at(self, makespan: float) -> float:
        """Return for how long devices send in all, microseconds, if they have no other pause."""
        return self.devices * makespan - self.work

    def best(self, rounds: int, stop: Callable[[], bool]) -> float:
        """Return the best bound of so many rounds, in each of which the prices on ops change, microseconds."""
        prices = np.zeros(len(self.weight))
        best, values, vectors = self.least(prices)
        rise = FIRST_RISE * max(self.sent_at(best), 0.0)
        for _ in range(rounds):
            if rise <= 0.0 or stop():
                break
            slope = 1.0 - (vectors**2) @ self.loads(best) / self.weight
            missing = self.sent_at(best) + rise - (self.loads(best) @ values + prices.sum())
            prices = prices + missing / max(float(slope @ slope), 1e-300) * slope
            bound, values, vectors = self.least(prices)
            if bound <= best:
                rise *= FALLS
            best = max(best, bound)
        return best

    def least(self, prices: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the bound that prices on ops give, and the eigenvalues and eigenvectors that it comes from."""
        matrix = (self.laplacian - np.diag(prices)) * self.scale[:, None] * self.scale
        values, vectors = eigh(matrix, subset_by_index=[0, self.devices - 1])
        sure = values - 1e-15 * len(matrix) * np.abs(matrix).sum(axis=1).max()
        low, high, all_prices = self.work / self.devices, self.work, float(prices.sum())
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if self.loads(middle) @ sure + all_prices > self.sent_at(middle):
                low = middle
            else:
                high = middle
        return low, values, vectors
