"""Annealing of sequences with repeated runs: insert a chain of runs, delete one, move one.

Kirkpatrick, Gelatt and Vecchi 1983. The moves are in `run_moves`, what they cost in `run_edits`.
"""

from __future__ import annotations

import math

from ..jit import kernel
from .run_edits import Sequence, begin, delete_run, excess_of, finish, is_read, undo
from .run_moves import Aim, Annealing, delete, draw, insert_chain, move
from .runs import RunGraph
from .tensor_groups import Groups

INSERT, DELETE = 0.4, 0.55
"""Moves that insert a chain, and with those that delete a run, as shares of all."""


@kernel
def anneal_runs(g: RunGraph, groups: Groups, s: Sequence, a: Annealing, aim: Aim, tries: int) -> int:
    """Try moves from the current sequence; returns how many were priced.

    Parameters
    ----------
    g, groups, s, a
        The graph, its groups, the current sequence, and the search.
    aim
        What is to be lowered.
    tries
        How many moves to try.
    """
    priced = 0
    for _ in range(tries):
        kind = draw(a)
        begin(s)
        if kind < INSERT:
            changed = insert_chain(g, groups, s, a, aim)
        elif kind < DELETE:
            changed = delete(g, groups, s, a)
        else:
            changed = move(g, groups, s, a, aim.moves_first)
        if changed == 0:
            continue
        priced += 1
        is_accepted = False
        if changed > 0 and _prune(g, groups, s, a, aim.moves_first) and finish(g, groups, s):
            excess = float(excess_of(s, aim.limit))
            microseconds = a.values[1] if kind >= DELETE else _microseconds(g, s)
            rise = (excess - a.values[0]) * aim.weight
            rise += max(microseconds, aim.allowed) - max(a.values[1], aim.allowed)
            if rise <= 0.0 or draw(a) < math.exp(-rise / aim.temperature):
                a.values[0] = excess
                a.values[1] = microseconds
                _keep(s, a, aim.allowed)
                is_accepted = True
        if not is_accepted:
            undo(s)
    return priced


@kernel
def _microseconds(g: RunGraph, s: Sequence) -> float:
    total = 0.0
    for step in range(s.length[0]):
        total += g.runtime[s.items[step]]
    return total


@kernel
def _keep(s: Sequence, a: Annealing, allowed: float) -> None:
    """Remember a sequence that is the best so far: one that keeps the limit, or comes nearer to it than all others."""
    microseconds = max(a.values[1], allowed)
    if a.values[0] < a.values[3] or (a.values[0] == a.values[3] and microseconds < a.values[2]):
        a.values[3] = a.values[0]
        a.values[2] = microseconds
        a.best_length[0] = s.length[0]
        for step in range(s.length[0]):
            a.best[step] = s.items[step]


@kernel
def _prune(g: RunGraph, groups: Groups, s: Sequence, a: Annealing, moves_first: bool) -> bool:
    """Take out runs of the ops in `chain` that nothing needs, and of what only they read; False if that cannot be."""
    count = 0
    while a.chain[count] >= 0:
        count += 1
    at = 0
    while at < count:
        op = a.chain[at]
        at += 1
        number = 0
        while number < s.times[op]:
            step = s.places[op, number]
            if s.times[op] == 1 or is_read(g, groups, s, step):
                number += 1
                continue
            if number == 0 and not moves_first:
                return False
            delete_run(g, groups, s, step)
            for k in range(g.pred_ptr[op], g.pred_ptr[op + 1]):
                if s.times[g.preds[k]] > 1 and count < a.chain.size - 1:
                    a.chain[count] = g.preds[k]
                    count += 1
    a.chain[count] = -1
    return True
