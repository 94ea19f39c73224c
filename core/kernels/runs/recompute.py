"""Annealing of sequences with repeated runs (Kirkpatrick, Gelatt and Vecchi 1983)."""

from __future__ import annotations

import numpy as np

from ..jit import kernel
from ..metropolis import tolerated
from .run_bytes import Sequence, excess_of
from .run_edits import begin, delete_run, finish, is_read, shift_run, undo
from .run_moves import Aim, Annealing, delete, draw, draw_move, insert_chain
from .runs import RunGraph
from .tensor_groups import Groups

INSERT, DELETE = 0.4, 0.55  # moves that insert a chain, and with those that delete a run, as shares of all


@kernel
def anneal_runs(g: RunGraph, groups: Groups, s: Sequence, a: Annealing, aim: Aim, tries: int) -> int:
    """Try moves from the current sequence; returns how many were priced."""
    priced = 0
    for _ in range(tries):
        kind = draw(a)
        if kind >= DELETE:
            step, place = draw_move(g, s, a, aim.moves_first)
            if step != place:
                priced += 1
                rise = shift_run(g, groups, s, step, place, aim.limit)
                if not _is_accepted(s, a, aim, a.values[0] + rise, a.values[1]):
                    shift_run(g, groups, s, place, step, aim.limit)
            continue
        begin(s)
        changed = insert_chain(g, groups, s, a, aim) if kind < INSERT else delete(g, groups, s, a)
        if changed == 0:
            continue
        priced += 1
        if (
            changed < 0
            or not _prune(g, groups, s, a, aim.moves_first)
            or not finish(g, groups, s)
            or not _is_accepted(s, a, aim, float(excess_of(s, aim.limit)), _microseconds(g, s))
        ):
            undo(s)
    return priced


@kernel
def _is_accepted(s: Sequence, a: Annealing, aim: Aim, excess: float, microseconds: float) -> bool:
    """Whether the sequence as it is now is gone on from, which is then known by its excess and its microseconds."""
    rise = (excess - a.values[0]) * aim.weight
    rise += max(microseconds, aim.allowed) - max(a.values[1], aim.allowed)
    if rise > 0.0 and rise >= tolerated(aim.temperature, draw(a)):
        return False
    a.values[0] = excess
    a.values[1] = microseconds
    _keep(s, a, aim.allowed)
    return True


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
            delete_run(g, groups, s, np.int64(step))
            for k in range(g.pred_ptr[op], g.pred_ptr[op + 1]):
                if s.times[g.preds[k]] > 1 and count < a.chain.size - 1:
                    a.chain[count] = g.preds[k]
                    count += 1
    a.chain[count] = -1
    return True
