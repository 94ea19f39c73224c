"""Twin of the annealing of placements alone: each placement priced from nothing, by sets."""

import math

from .costs import needed_transfers


def cut_cost(plain, placement, window, sending, devices):
    """What is sent, and the work of the fullest device of each window, summed."""
    sent = sum(sending[plain.index[tensor]] for tensor, _ in needed_transfers(plain, placement))
    load = {}
    for op in plain.ops:
        load.setdefault(window[op], [0.0] * devices)[placement[op]] += plain.runtime[op]
    return sent + sum(map(max, load.values()))


def anneal_cuts(plain, placement, window, sending, devices, temperature, draws):
    """Move an op per row of draws; return the last placement."""
    placement = list(placement)
    for which, where, draw in draws:
        op = int(which * len(placement))
        moved = list(placement)
        moved[op] = (placement[op] + 1 + int(where * (devices - 1))) % devices
        worse = cut_cost(plain, moved, window, sending, devices) - cut_cost(plain, placement, window, sending, devices)
        if worse <= 0 or worse < -temperature * math.log(draw):
            placement = moved
    return placement
