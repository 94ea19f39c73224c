"""Chromosomes of one key per op: decoded to sequences, priced, and annealed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cost_model import MachineArrays, State, Steps
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..metropolis import Walk, bar_of, seed_of, uniform
from .lazy_decoder import Lazy, decode_for_makespan
from .memory_greedy import decode_for_peak
from .random_keys import Prices
from .sequences import Objective, note_best, run_sequence

LEAST_MOVED = 0.02
"""The least share of the keys, on average, that a move changes, unless that is less than one."""


@inlined
def _decode(g: GraphArrays, s: State, z: Lazy, keys: Any, aim: Objective, m: MachineArrays) -> None:
    """Turn keys into a sequence, in `z.order` and `s.placement`: by memory if the peak counts, else by time."""
    if aim.is_peak:
        decode_for_peak(g, s, z, keys)
    else:
        decode_for_makespan(g, s, z, keys, m)


@kernel
def price_keys(g: GraphArrays, s: State, z: Lazy, keys: Any, aim: Objective, m: MachineArrays, prices: Prices) -> None:
    """Decode and run each row of `keys`; write its peak (0 without memory accounting) and makespan."""
    nothing = Steps(z.order[:0], z.order[:0])
    for at in range(keys.shape[0]):
        _decode(g, s, z, keys[at], aim, m)
        _, _, excess, peak, runtime = run_sequence(g, s, z.due, z.order, aim, m, np.inf, nothing)
        prices.excesses[at] = excess
        prices.peaks[at] = peak
        prices.runtimes[at] = runtime


@inlined
def _copy(keys: Any, to: Any) -> None:
    """Copy keys."""
    for at in range(keys.size):
        to[at] = keys[at]


@inlined
def _change(keys: Any, draws: Any, ops: int) -> None:
    """Add a number within 0.1 or 0.5 to the keys of one op, and of a share of all others drawn for the move."""
    seed, share = seed_of(draws[0]), max(LEAST_MOVED, 1.0 / ops) ** draws[1]
    reach = 0.2 if draws[3] < 0.5 else 1.0
    one = int(draws[0] * ops)
    for op in range(ops):
        drawn = uniform(seed, op)
        if drawn < share:
            keys[op] += reach * (drawn / share - 0.5)
        elif op == one:
            keys[op] += reach * (draws[2] - 0.5)


@kernel
def anneal_keys(
    g: GraphArrays,
    s: State,
    z: Lazy,
    keys: Any,
    before: Any,
    aim: Objective,
    m: MachineArrays,
    energy: float,
    walk: Walk,
) -> float:
    """Anneal over keys, 5 draws a move; returns what the present `keys` cost then. `before` is scratch of their shape.

    A move adds a number within 0.1 or 0.5 to the keys of some ops, from one or one in 50 to all, or in one move of 20
    redraws the patience, if transfers cost anything.
    """
    ops, draws = g.runtime.size, walk.draws
    nothing = Steps(z.order[:0], z.order[:0])
    _copy(keys, before)
    for move in range(draws.shape[0]):
        if z.costs and draws[move, 3] < 0.05:
            keys[ops] = draws[move, 2]
        else:
            _change(keys, draws[move], ops)
        bar = bar_of(energy, walk.temperature, draws[move, 4])
        _decode(g, s, z, keys, aim, m)
        _, new, excess, peak, runtime = run_sequence(g, s, z.due, z.order, aim, m, bar, nothing)
        if new > bar:
            _copy(before, keys)
            continue
        energy = new
        _copy(keys, before)
        note_best(walk, aim, excess, peak, runtime, z.order, s.placement)
    return energy
