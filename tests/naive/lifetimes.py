"""Twin of the peak by lifetimes."""

from __future__ import annotations

from .costs import alive_on, needed_transfers


def sent_after(plain, order, placement, late):
    """Map every transfer to the place of the order after which it is sent."""
    place = {op: at for at, op in enumerate(order)}
    after = {}
    for t, target in needed_transfers(plain, placement):
        home = placement[t[0]]
        earliest = max(place[op] for op in {t[0]} | {r for r in plain.readers[t] if placement[r] == home})
        latest = min(place[r] for r in plain.readers[t] if placement[r] == target) - 1
        after[t, target] = latest if late[plain.index[t], target] or latest < earliest else earliest
    return after


def lifetimes_cost(plain, order, placement, late, devices, scale):
    """Penalties and peak of a sequence: at each place, what is alive on the op's device and where bytes came."""
    after = sent_after(plain, order, placement, late)
    fixed = [sum(plain.persistent[op] for op in plain.ops if placement[op] == d) for d in range(devices)]
    base, size, _ = scale
    before, penalty, peak = [0] * devices, 0.0, 0
    for at, op in enumerate(order):
        done = set(order[:at]) | {send for send, place in after.items() if place < at}
        alive = alive_on(plain, placement, done)
        for device in range(devices):
            runs = placement[op] == device
            now = alive(device) + (plain.own[op] if runs else 0)
            if runs or now > before[device]:
                took = now + fixed[device] + (plain.workspace[op] if runs else 0)
                penalty += (max(0.0, took - base) / (size - base)) ** 16
                peak = max(peak, took)
            before[device] = now
    return penalty, peak
