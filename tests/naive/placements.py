"""Twin of the placement beam: every placement of an order's ops under a limit, by its rules for making room."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Spread:
    """Where each tensor that is still needed has copies, had copies and was made; bytes per device."""

    copies: dict
    sent: dict
    resident: list
    persistent: list
    top: list

    def copy(self):
        """Return a copy to change."""
        sets = ({t: set(d) for t, d in part.items()} for part in (self.copies, self.sent))
        return Spread(*sets, list(self.resident), list(self.persistent), list(self.top))


def placements_under(plain, order, devices, limit):
    """Try every placement of an order's ops with the beam's rules for making room; yields those that fit."""
    share = sum(plain.persistent) // devices
    viewed = set(plain.alias.values())

    def reachable_from(copies, sent, home):
        return copies | (set(range(devices)) - sent) if home in copies else copies

    def run(step, placement, state):
        if step == len(order):
            yield placement
            return
        for device in range(devices):
            successor = place(step, device, placement, state.copy())
            if successor:
                yield from run(step + 1, {**placement, order[step]: device}, successor)

    def size_on(t, device, placement):
        return 0 if t in plain.alias and placement[t[0]] == device else plain.size[t]

    def fixed(s, device, extra=0):
        return max(s.persistent[device] + extra, share)

    def can_keep(step, placement, s, t, kept):
        for reader in set(order[step:]) & plain.readers[t]:
            meets = reachable_from(kept, s.sent[t] | kept, placement[t[0]])
            for other in plain.reads[reader] - {t}:
                if other in s.copies:
                    meets = meets & reachable_from(s.copies[other], s.sent[other], placement[other[0]])
            if not meets:
                return False
        return True

    def make_room(step, device, placement, s, over):
        best = None
        for t in s.copies:
            if device not in s.copies[t] or t in viewed or t in plain.reads[order[step]]:
                continue
            is_home, size = placement[t[0]] == device, size_on(t, device, placement)
            if size == 0 or (t in plain.final and is_home):
                continue
            kept, target = s.copies[t] - {device}, None
            if not kept:
                level = {d: s.resident[d] + fixed(s, d) for d in range(devices)}
                open_to = [d for d in level if d not in s.sent[t] and level[d] + plain.size[t] <= limit]
                if not is_home or not open_to:
                    continue
                target = min(open_to, key=level.get)
                kept = {target}
            if can_keep(step, placement, s, t, kept):
                rank = target is not None, size < over, size if size >= over else -size
                if best is None or rank < best[0]:
                    best = rank, t, target, size
        if best is None:
            return 0
        _, t, target, size = best
        if target is not None:
            s.copies[t].add(target)
            s.sent[t].add(target)
            s.resident[target] += plain.size[t]
            s.top[target] = max(s.top[target], s.resident[target])
        s.copies[t].remove(device)
        s.resident[device] -= size
        return size

    def place(step, device, placement, s):
        op = order[step]
        there = {t: reachable_from(s.copies[t], s.sent[t], placement[t[0]]) for t in plain.reads[op]}
        if any(device not in where for where in there.values()):
            return None
        lacking = [t for t in plain.inputs[op] if device not in s.copies[t]]
        need = s.resident[device] + plain.workspace[op] + plain.own[op] + sum(plain.size[t] for t in lacking)
        while (over := need + fixed(s, device, plain.persistent[op]) - limit) > 0:
            freed = make_room(step, device, placement, s, over)
            if not freed:
                return None
            need -= freed
        for t in lacking:
            s.copies[t].add(device)
            s.sent[t].add(device)
            s.resident[device] += plain.size[t]
        placement = {**placement, op: device}
        for t in plain.outputs[op]:
            s.copies[t], s.sent[t] = {device}, {device}
        s.resident[device] += plain.own[op]
        s.persistent[device] += plain.persistent[op]
        s.top[device] = max(s.top[device], need)
        if any(s.top[d] + s.persistent[d] > limit for d in range(devices)):
            return None
        done = set(order[: step + 1])
        for t in list(s.copies):
            if is_done_with(t, done):
                for where in s.copies.pop(t):
                    s.resident[where] -= size_on(t, where, placement)
        return s

    def is_done_with(t, done):
        views = [view for view, base in plain.alias.items() if base == t]
        over = plain.readers[t] <= done and all(view[0] in done for view in views)
        return over and t not in plain.final and all(is_done_with(view, done) for view in views)

    yield from run(0, {}, Spread({}, {}, [0] * devices, [0] * devices, [0] * devices))
