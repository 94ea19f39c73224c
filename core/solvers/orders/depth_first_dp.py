"""Depth-first dynamic programming over executed-op sets (Topoformer C.3), peak memory on one device."""

from dataclasses import dataclass

import numpy as np

from ...kernels.orders.depth_first import FINISHED, IMPROVED, new_search, search_on
from ...search import parameters as base
from ...search.parameters import parameter
from ...search.search import Search

UNLIMITED = 2**62
FIRST_CHUNK = 2_000
LARGEST_CHUNK = 200_000


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """Room for state collapsing; a full table forgets sets, which costs time but never the optimum."""

    table: int = parameter(8_000_000, "executed-op sets remembered, 8 bytes each", low=1, high=10**10)


def solve(search: Search, parameters: Parameters) -> None:
    """Offer each better order as it is found; when the search ends, the last is optimal, and the bound says so."""
    # The next op is picked at random: the ready ops from a random one on, a random stride apart, which needs no list. A
    # branch is cut if its peak reaches the best known or its set was closed before. Beyond the paper, a set is closed
    # once all that follows it was searched in vain while the peak on the way to it was below the best: what follows
    # reaches the best by itself. Each set followed counts 1 / ops evaluations.
    graph = search.problem.graph
    persistent = int(graph.persistent.sum())
    zobrist = search.rng.integers(1, 2**64, graph.num_ops, dtype=np.uint64)
    salt = search.rng.integers(1, 2**64, dtype=np.uint64)
    state = new_search(graph.buffers, parameters.table, salt)
    best = UNLIMITED if search.best is None else int(search.best_value) - persistent
    chunk = FIRST_CHUNK
    while not search.exhausted():
        outcome, _, followed = search_on(graph.buffers, state, zobrist, salt, best, chunk)
        search.spend(followed / graph.num_ops)
        if outcome == IMPROVED:
            best = search.offer_order(state.path.copy()).peak - persistent
        elif outcome == FINISHED:
            search.raise_lower_bound(search.best_value)
            return
        chunk = min(2 * chunk, LARGEST_CHUNK)
