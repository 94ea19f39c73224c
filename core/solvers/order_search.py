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
from .approximate_dp import beam_search

FIRST_BEAMS = (1, 10, 100)
LARGEST_BEAM = 1_000_000
LARGEST_RELATED = 10_000
PROOF_ARCS = 100_000_000
Parameters = base.Parameters


def solve(search: Search, parameters: Parameters) -> None:
    """Improve the incumbent and the bound in turns until they meet or the budget ends.

    Narrow beams go backward from the end of the order, which decides the hump of layered graphs first. Then
    each round tries to prove a target halfway between bound and incumbent impossible (see `Relations`), and
    sends wider beams through the graph tightened by what any better order must obey: a beam that cuts no
    state and finds nothing proves the incumbent optimal.
    """
    graph = search.problem.graph
    if search.best is None:
        search.offer_order(graph.input_order)
    _raise_min_cut(search)
    for beam_size in FIRST_BEAMS:
        _run_beam(search, beam_size, graph.buffers, is_backward=True)
    rounds = _Rounds(search) if graph.num_ops <= LARGEST_RELATED else None
    beam_size = 4 * FIRST_BEAMS[-1]
    while not search.must_stop():
        if rounds is not None:
            rounds.prove()
        for is_backward in (True, False):
            if search.must_stop():
                return
            _run_beam(search, beam_size, rounds.tightened() if rounds else graph.buffers, is_backward)
        if beam_size == LARGEST_BEAM:
            return
        beam_size = min(2 * beam_size, LARGEST_BEAM)


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


def _run_beam(search: Search, beam_size: int, buffers: Buffers, is_backward: bool) -> None:
    if search.must_stop():
        return
    result = beam_search(search, beam_size, cutoff=int(search.best_value), buffers=buffers, is_backward=is_backward)
    if result.order is not None:
        search.offer_order(result.order)
    if result.is_exact:
        search.raise_lower_bound(search.best_value)


class _Rounds:
    """Proofs with a growing allowance of work, and the graph tightened below the incumbent."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.relations = Relations(search.problem.graph)
        self.allowance = max(1, PROOF_ARCS // len(self.relations.network.heads))
        self.unproven = int(search.best_value)
        self._tightened: tuple[float, Buffers] | None = None

    def prove(self) -> None:
        """Try to prove one target impossible, and raise the bound if that works."""
        bound = int(self.search.lower_bound)
        self.unproven = min(self.unproven, int(self.search.best_value))
        if self.unproven <= bound:  # all below has been tried: try it again with more work
            self.unproven = int(self.search.best_value)
            self.allowance *= 2
        target = (bound + self.unproven) // 2
        if self._tighten(target) == "impossible":
            self.search.raise_lower_bound(target + 1)
        else:
            self.unproven = target

    def tightened(self) -> Buffers:
        """Return the buffers with what any order better than the incumbent obeys."""
        value = self.search.best_value
        if self._tightened is None or self._tightened[0] != value:
            if self._tighten(int(value) - 1) == "impossible":
                self.search.raise_lower_bound(value)
            self._tightened = (value, self.relations.buffers_with_relations())
        return self._tightened[1]

    def _tighten(self, target: int) -> str:
        search = self.search
        assert search.best is not None and search.best_simulation is not None
        largest_first = np.argsort(-search.best_simulation.step_memory, kind="stable")
        return self.relations.tighten(target, search.best.op_order()[largest_first], self._stop())

    def _stop(self) -> Callable[[], bool]:
        """Stop when a share of the time left or the allowance is used; with evaluations alone it is repeatable."""
        most_flows = self.relations.flows + self.allowance
        latest = time.monotonic() + 0.3 * self.search.seconds_left()
        return lambda: self.relations.flows >= most_flows or time.monotonic() >= latest or self.search.must_stop()
