"""Peak memory on one device, from above and below at once: beams in both directions, and proofs that cut them."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from .. import parameters as base
from ..bounds import min_cut_bound
from ..buffers import Buffers
from ..relations import Relations
from ..search import Search
from ..windows import window_of
from .approximate_dp import beam_search, run_beam

FIRST_BEAMS = (1, 10, 100)
LARGEST_BEAM = 1_000_000
LARGEST_RELATED = 10_000
CLOSE = 1e-4
PROOF_ARCS = 100_000_000
SMALLEST_WINDOW, LARGEST_WINDOW = 20, 160
WINDOW_BEAMS = (8, 16, 32, 64)
Parameters = base.Parameters


def solve(search: Search, parameters: Parameters) -> None:
    """Improve the incumbent and the bound in turns until they meet or the budget ends.

    Narrow beams go backward from the end of the order, which decides the hump of layered graphs first. Then
    each round does three things. It tries to prove a target halfway between bound and incumbent impossible
    (see `Relations`). It sends wider beams through the graph tightened by what any better order must obey: a
    beam that cuts no state and finds nothing proves the incumbent optimal. And it reorders stretches of the
    incumbent around its peak, each by a narrow beam (large neighbourhood search).
    """
    graph = search.problem.graph
    if search.best is None:
        search.offer_order(graph.input_order)
    _raise_min_cut(search)
    for size in FIRST_BEAMS:
        _run_beams(search, [size, size], 0, graph.buffers, is_backward=True)
    rounds = _Rounds(search) if graph.num_ops <= LARGEST_RELATED else None
    effort = 4 * FIRST_BEAMS[-1]
    sizes = [effort, effort]
    while not search.must_stop():
        for is_backward in (False, True):
            if not search.must_stop():
                buffers = graph.buffers if rounds is None else rounds.tightened()
                _run_beams(search, sizes, effort, buffers, is_backward)
        if min(sizes) == LARGEST_BEAM:
            return
        if rounds is not None:
            rounds.prove()
        _reorder_windows(search, effort / 8)
        effort *= 2


def _raise_min_cut(search: Search) -> None:
    assert search.best is not None and search.best_simulation is not None
    bound = min_cut_bound(
        search.problem.graph,
        search.best.op_order(),
        search.best_simulation.step_memory,
        int(search.lower_bound),
        stop=search.must_stop,
        seconds_left=search.seconds_left,
    )
    search.raise_lower_bound(bound)


def _run_beams(search: Search, sizes: list[int], effort: float, buffers: Buffers, is_backward: bool) -> None:
    """Run beams of one direction until they have cost `effort` evaluations; one that dies doubles the next."""
    until = search.evaluations + effort
    while not search.must_stop():
        size = sizes[is_backward]
        result = beam_search(search, size, cutoff=int(search.best_value), buffers=buffers, is_backward=is_backward)
        if result.order is not None:
            search.offer_order(result.order)
        else:
            sizes[is_backward] = min(2 * size, LARGEST_BEAM)
        if result.is_exact:
            search.raise_lower_bound(search.best_value)
        if search.evaluations >= until or size == LARGEST_BEAM:
            return


def _reorder_windows(search: Search, evaluations: float) -> None:
    """Replace stretches of the incumbent that hold large steps, as long as their own peak does not rise."""
    assert search.best is not None and search.best_simulation is not None
    graph, rng = search.problem.graph, search.rng
    persistent = int(graph.persistent.sum())
    order, memory = search.best.op_order(), search.best_simulation.step_memory
    place = np.argsort(order)
    until = search.evaluations + evaluations
    while search.evaluations < until and not search.must_stop():
        large = memory >= search.best_value - rng.random() * (search.best_value - search.lower_bound)
        centre = int(rng.choice(np.flatnonzero(large)))
        steps = int(rng.integers(SMALLEST_WINDOW, LARGEST_WINDOW + 1))
        first = max(0, centre - int(rng.integers(0, steps)))
        last = min(graph.num_ops, first + steps)
        window, throughout = window_of(graph.buffers, order, place, first, last)
        is_backward = bool(rng.integers(0, 2))
        limit = int(memory[first:last].max()) - persistent - throughout + 1
        chosen, is_complete, _ = run_beam(search, window, int(rng.choice(WINDOW_BEAMS)), limit, is_backward)
        if not is_complete or search.evaluations_left < 1:
            return
        if chosen is None:
            continue
        inside = (chosen[::-1] if is_backward else chosen)[1:] - 1
        order = order.copy()
        order[first:last] = order[first:last][inside]
        place = np.argsort(order)
        memory = search.offer_order(order).step_memory


class _Rounds:
    """Proofs with a growing allowance of work, and the graph tightened below the incumbent."""

    def __init__(self, search: Search) -> None:
        self.search = search
        assert search.best is not None and search.best_simulation is not None
        order, memory = search.best.op_order(), search.best_simulation.step_memory
        self.relations = Relations(search.problem.graph, order, memory)
        self.allowance = max(1, PROOF_ARCS // len(self.relations.network.heads))
        self.unproven = int(search.best_value)
        self._tightened: tuple[float, Buffers] | None = None

    def prove(self) -> None:
        """Bisect between the bound and what could not be proven impossible, within the allowance of work."""
        search, stop = self.search, self._stop()
        while not stop():
            bound = int(search.lower_bound)
            self.unproven = min(self.unproven, int(search.best_value))
            if self.unproven <= bound * (1 + CLOSE):  # all below has been tried: next time with more work
                self.unproven = int(search.best_value)
                self.allowance *= 2
                return
            target = (bound + self.unproven) // 2
            if self.relations.tighten(target, stop) == "impossible":
                search.raise_lower_bound(target + 1)
            else:
                self.unproven = target

    def tightened(self) -> Buffers:
        """Return the buffers with what any order better than the incumbent obeys."""
        value = self.search.best_value
        if self._tightened is None or self._tightened[0] != value:
            if self.relations.tighten(int(value) - 1, self._stop()) == "impossible":
                self.search.raise_lower_bound(value)
            self._tightened = (value, self.relations.buffers_with_relations())
        return self._tightened[1]

    def _stop(self) -> Callable[[], bool]:
        """Stop when a share of the time left or the allowance is used; with evaluations alone it is repeatable."""
        most_flows = self.relations.flows + self.allowance
        latest = time.monotonic() + 0.3 * self.search.seconds_left()
        return lambda: self.relations.flows >= most_flows or time.monotonic() >= latest or self.search.must_stop()
