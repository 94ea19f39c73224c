"""Twins of the peak by lifetimes and of its annealing."""

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


def anneal_lifetimes(plain, order, placement, late, devices, scale, temperature, draws):
    """Moves that turn a transfer, or of an op to another device, another place, or both; also the least peak met."""
    energy, least = lifetimes_cost(plain, order, placement, late, devices, scale)
    for row in draws:
        op = int(row[0] * len(order))
        moved, placed, turned = list(order), list(placement), late.copy()
        other = (placement[op] + 1 + int(row[2] * (devices - 1))) % devices if devices > 1 else 0
        made = plain.outputs[op]
        if devices > 1 and row[5] < 0.1 and made:
            tensor = made[int(row[5] * 10 * len(made))]
            turned[plain.index[tensor], other] ^= True
        else:
            if devices > 1 and row[1] < 0.5:
                placed[op] = other
            if devices == 1 or row[1] >= 0.1:
                first = max((order.index(v) + 1 for v in plain.before[op]), default=0)
                last = min((order.index(v) - 1 for v in plain.after[op]), default=len(order) - 1)
                moved.remove(op)
                moved.insert(first + int(row[3] * (last - first + 1)), op)
        new, reached = lifetimes_cost(plain, moved, placed, turned, devices, scale)
        if new <= energy * (1 - row[4]) ** -temperature:
            order, placement, late, energy, least = moved, placed, turned, new, min(least, reached)
    return order, placement, late, energy, least
