"""Twins of the cost of placements alone, and of moves by what they send: all priced from nothing, by sets."""

from .costs import needed_transfers


def cut_cost(plain, placement, window, sending, devices):
    """What is sent, and the work of the fullest device of each window, summed."""
    load = {}
    for op in plain.ops:
        load.setdefault(window[op], [0.0] * devices)[placement[op]] += plain.runtime[op]
    return _sent(plain, placement, sending) + sum(map(max, load.values()))


def _sent(plain, placement, sending):
    return sum(sending[plain.index[tensor]] for tensor, _ in needed_transfers(plain, placement))


def move_weights(plain, placement, sending, devices, mean):
    """How much an op on each device weighs, by what is sent less then."""
    weights, before = [], _sent(plain, placement, sending)
    for op in range(len(placement)):
        row = []
        for device in range(devices):
            moved = [*placement[:op], device, *placement[op + 1 :]]
            less = (before - _sent(plain, moved, sending)) / mean
            row.append((1 + less) ** 2 if less > 0 else (1 - less) ** -2)
        weights.append(row)
    return weights
