"""Chromosomes of one key per op: decoded to sequences, priced, and annealed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cost_model import State, Steps
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..links import Links
from .lazy_decoder import Lazy, arrange
from .memory_greedy import spread
from .random_keys import Prices
from .sequences import Aim, Walk, note_best, run_sequence


@inlined
def _decode(g: GraphArrays, s: State, z: Lazy, keys: Any, aim: Aim, links: Links) -> None:
    """Turn keys into a sequence, in `z.order` and `s.placement`: by memory if the peak counts, else by time."""
    if aim.is_peak:
        spread(g, s, z, keys, links.devices)
    else:
        arrange(g, s, z, keys, links)


@kernel
def price_keys(g: GraphArrays, s: State, z: Lazy, keys: Any, aim: Aim, links: Links, prices: Prices) -> None:
    """Decode and run each row of `keys`; write its peak (0 without memory accounting) and makespan."""
    nothing = Steps(z.order[:0], z.order[:0])
    for at in range(keys.shape[0]):
        _decode(g, s, z, keys[at], aim, links)
        _, _, peak, runtime = run_sequence(g, s, z.due, z.order, aim, links, np.inf, nothing)
        prices.peaks[at] = peak
        prices.runtimes[at] = runtime


@kernel
def anneal_keys(g: GraphArrays, s: State, z: Lazy, keys: Any, aim: Aim, links: Links, walk: Walk) -> float:
    """Anneal over keys, 6 draws a move; returns what the present `keys` cost then.

    A move adds a number within 0.1 or 0.5 to the keys of one op or two, or in one move of 20 redraws the
    patience, if transfers cost anything.
    """
    ops, draws, energy = g.runtime.size, walk.draws, walk.energy
    nothing = Steps(z.order[:0], z.order[:0])
    for move in range(draws.shape[0]):
        one = int(draws[move, 0] * ops)
        two = int(draws[move, 1] * ops) if draws[move, 4] < 0.5 else one
        reach = 0.2 if draws[move, 4] % 0.5 < 0.25 else 1.0
        if links.latency + links.microseconds_per_byte > 0.0 and draws[move, 4] < 0.05:
            one, two = ops, ops
        before_one, before_two = keys[one], keys[two]
        keys[one] = draws[move, 2] if one == ops else before_one + reach * (draws[move, 2] - 0.5)
        if two != one:
            keys[two] = before_two + reach * (draws[move, 3] - 0.5)
        bar = energy * (1.0 - draws[move, 5]) ** -walk.temperature
        _decode(g, s, z, keys, aim, links)
        _, new, peak, runtime = run_sequence(g, s, z.due, z.order, aim, links, bar, nothing)
        if new > bar:
            keys[two] = before_two
            keys[one] = before_one
            continue
        energy = new
        note_best(walk, aim, peak, runtime, z.order, s.placement)
    return energy
