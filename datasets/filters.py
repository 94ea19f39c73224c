"""Filters of graphs for a data set: those with room (REGAL A.1.2 and A.1.4), and one of those that are alike."""

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..core.graph.graph import CostGraph
from ..core.problem.problem import Problem, Task

FEW_EVALUATIONS, MANY_EVALUATIONS = 1_000, 10_000


def has_room(task: Task, devices: int, graph: CostGraph, rng: np.random.Generator | None = None) -> bool:
    """Whether the file's order on device 0 does not meet the lower bound that needs no search (A.1.2); as a filter."""
    from ..core.bounds.bounds import is_met, lower_bound
    from ..core.report.result import reference_value

    problem = Problem(graph, task=task, devices=devices)
    if devices == 1 and has_single_order(graph):
        return False
    return not is_met(reference_value(problem), lower_bound(problem))


def has_single_order(graph: CostGraph) -> bool:
    """Whether the ops can run in one order only: each waits for the one before it."""
    sources, targets = graph.edges
    place = np.argsort(graph.input_order)
    return int(np.sum(place[targets] - place[sources] == 1)) == graph.num_ops - 1


@dataclass(frozen=True)
class KeepImproving:
    """Keeps graphs whose makespan BRKGA improves by this fraction from 1,000 to 10,000 evaluations (A.1.4)."""

    fraction: float

    def __call__(self, graph: CostGraph, rng: np.random.Generator) -> bool:
        """Whether to keep the graph; the generator gives the seed of both searches."""
        problem = Problem(graph, task="runtime", devices=2)
        seed = int(rng.integers(2**31))
        few = plain_value(problem, FEW_EVALUATIONS, seed)
        many = plain_value(problem, MANY_EVALUATIONS, seed, enough=few * (1 - self.fraction))
        return few > 0 and (few - many) / few >= self.fraction


def plain_value(problem: Problem, evaluations: int, seed: int, enough: float = 0.0) -> float:
    """Return what BRKGA finds with its default parameters, in bytes or microseconds [o_s]; ends early at `enough`."""
    from ..core.bounds.bounds import lower_bound
    from ..core.search.search import Search
    from ..core.solvers.placements import brkga

    bound = max(lower_bound(problem), enough)
    search = Search(problem, seed=seed, max_evaluations=evaluations, lower_bound=bound)
    brkga.evolve(search, brkga.Parameters(), brkga.GeneDistribution())
    return search.best_value


Dedup = Literal["topology", "in-degrees"]
DEDUPS: tuple[Dedup, ...] = get_args(Dedup)
MAX_ROUNDS = 64

_Labels = NDArray[np.uint64]
_EDGE_SALTS = {
    "data in": 0x9E3779B97F4A7C15,
    "data out": 0xC2B2AE3D27D4EB4F,
    "control in": 0x165667B19E3779F9,
    "control out": 0xD6E8FEB86659FD93,
}


def _scramble(labels: _Labels) -> _Labels:
    """Mix the bits of each label (the finaliser of splitmix64), shape `(ops,)`."""
    mixed = labels + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _heard(near: NDArray[np.int64], far: NDArray[np.int64], count: int, salt: int) -> Callable[[_Labels], _Labels]:
    """Return the function that sums, modulo 2^64, scrambled labels at far ends of a kind of edge, seen from each op."""
    speakers = far[np.argsort(near, kind="stable")]
    pointers = np.concatenate(([0], np.cumsum(np.bincount(near, minlength=count))))

    def gather(labels: _Labels) -> _Labels:
        values = _scramble(labels[speakers] ^ np.uint64(salt))
        running = np.concatenate((np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)))
        return running[pointers[1:]] - running[pointers[:-1]]

    return gather


def topology_hash(graph: CostGraph) -> str:
    """Return 16 hex digits that depend only on which op reads from and waits for which."""
    # Weisfeiler-Lehman refinement: each label becomes a hash of itself and of the multisets of labels before and after
    # it, data and control edges apart, one edge per distinct tensor an op reads, until the number of distinct labels no
    # longer grows. Isomorphic graphs have equal hashes; different ones nearly always different ones.
    pointers, tensors = graph.inputs
    count = graph.num_ops
    readers = np.repeat(np.arange(count), np.diff(pointers))
    producers = graph.tensor_producer[tensors].astype(np.int64)
    kinds = []
    for kind, chosen in (("data", ~graph.is_control[tensors]), ("control", graph.is_control[tensors])):
        near, far = readers[chosen], producers[chosen]
        kinds.append(_heard(near, far, count, _EDGE_SALTS[f"{kind} in"]))
        kinds.append(_heard(far, near, count, _EDGE_SALTS[f"{kind} out"]))
    labels = np.zeros(count, np.uint64)
    classes = 1
    for _ in range(MAX_ROUNDS):
        gathered = _scramble(labels)
        for gather in kinds:
            gathered = _scramble(gathered + gather(labels))
        labels = gathered
        before, classes = classes, len(np.unique(labels))
        if classes == before:
            break
    return hashlib.blake2b(np.sort(labels).astype("<u8").tobytes(), digest_size=8).hexdigest()


def in_degree_sequence(graph: CostGraph) -> tuple[int, ...]:
    """Return the number of distinct ops that each op waits for, largest first (REGAL A.1.2)."""
    pointers, _ = graph.predecessors
    return tuple(np.sort(np.diff(pointers))[::-1].tolist())


def dedup_key(graph: CostGraph, dedup: Dedup, topology: str) -> Hashable:
    """Return the key that two graphs share to count as one: the topology hash, or the in-degree sequence."""
    return topology if dedup == "topology" else in_degree_sequence(graph)
