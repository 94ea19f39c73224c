"""Twins of the kernels of BRKGA: decoding, crossover and quantiles."""

from __future__ import annotations

import numpy as np

from .costs import runnable


def decode(plain, genes, devices, fixed_op):
    """Placement and steps of a chromosome (REGAL A.5): always the ready op or transfer of highest priority.

    Of equal priorities ops come before transfers, then the smaller index, then the smaller device.
    """
    ops = len(plain.ops)
    affinity = [list(genes[op * devices : (op + 1) * devices]) for op in plain.ops]
    placement = [row.index(max(row)) for row in affinity]
    placement[fixed_op] = 0

    def urgency(step):
        if isinstance(step, tuple):
            cell = plain.index[step[0]] * devices + step[1]
            return -genes[ops * (devices + 1) + cell], ops + cell
        return -genes[ops * devices + step], step

    done = []
    while choices := runnable(plain, placement, set(done)):
        done.append(min(choices, key=urgency))
    return placement, done


def crossover(draws, parents, elites, others, bias):
    """Each gene from the elite parent where its draw is below the bias, else from the other parent."""
    return [
        [
            parents[elites[child]][gene] if draw < bias[gene] else parents[others[child]][gene]
            for gene, draw in enumerate(row)
        ]
        for child, row in enumerate(draws)
    ]


def looked_up(draws, tables, rows):
    """Each draw as the quantile of its gene's table: linear between the entries, which are at equal steps."""
    found = [list(row) for row in draws]
    for row in found:
        for gene, draw in enumerate(row):
            if rows[gene] >= 0:
                table = tables[rows[gene]]
                row[gene] = float(np.interp(draw, np.linspace(0, 1, len(table)), table))
    return found


def as_floats(values):
    """Return plain floats of an array of any float type."""
    return np.asarray(values, np.float64).tolist()
