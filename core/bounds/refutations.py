"""Which peaks no order has (one device): what must precede what, and where that says nothing, both cases in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from ..kernels.orders.order_proofs import Known, relate
from .order_proofs import Precedences

Verdict = Literal["impossible", "possible", "stopped"]
FIRST_CASES, MORE_CASES = 8, 4
SHARE_OF_GAP, FIRST_STEP = 32, 8
MOST_BYTES = 2**26  # of all cases that are put off


class Refutations:
    """Branch and bound over which of two ops comes first: below a target, by what `Precedences` says of each case."""

    def __init__(self, precedences: Precedences) -> None:
        self.precedences = precedences
        known = precedences.given()
        self._most_open = max(1, MOST_BYTES // (known.before.nbytes + known.after.nbytes))

    def refute(self, target: int, most_cases: int, stop: Callable[[], bool]) -> Verdict:
        """Try to refute a target."""
        proofs = self.precedences
        open_cases: list[tuple[Known, tuple[int, int]]] = []
        known, cases = proofs.given(), 0
        while True:
            verdict = proofs.propagate(known, target, stop)
            if verdict == "stopped":
                return "stopped"
            if verdict == "impossible":
                if not open_cases:
                    return "impossible"
                known, (first, second) = open_cases.pop()
            else:
                if cases >= most_cases or len(open_cases) >= self._most_open:
                    return "stopped"
                pair = proofs.closest_pair(known, target, stop)
                if pair is None:
                    return "possible" if _is_total(known) else "stopped"
                cases += 1
                first, second = pair
                open_cases.append((Known(*map(np.copy, known)), (second, first)))
            relate(known, first, second)

    def bounds(self, low: int, high: int, stop: Callable[[], bool]) -> Iterator[int]:
        """Yield bytes, rising, that the peak of no order is below, until nothing is left between `low` and `high`."""
        # What could not be refuted is tried again, with more cases, once the bound has come near.
        cases, step = 0, (high - low) // 2
        while low < high and not stop():
            target = min(low + step, high - 1)
            verdict = self.refute(target, cases, stop)
            if verdict == "impossible":
                low, step = target + 1, 2 * step
                yield low
            else:
                high, step = target if verdict == "possible" else high, step // 2
            if step <= (high - low) // SHARE_OF_GAP:
                cases, step = max(FIRST_CASES, MORE_CASES * cases), (high - low) // FIRST_STEP


def _is_total(known: Known) -> bool:
    """Whether every two ops are related."""
    ops = len(known.before)
    return int(np.unpackbits(known.before.view(np.uint8)).sum()) == ops * (ops - 1) // 2
