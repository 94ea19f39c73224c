"""Twins of sequences on several devices and of the decoders that make them."""

from __future__ import annotations

import math

from .costs import replay


def sequence_steps(plain, order, placement, together):
    """Steps of a sequence: before each op, what it lacks, in the order of its inputs.

    Together: each time an input is lacking, also all else due between the two devices, the newest first (by
    the op that made it, of one op its later tensor, of one tensor the reader met last), first towards the op.
    """
    steps, sent = [], set()
    for at, op in enumerate(order):
        here = placement[op]
        for t in plain.inputs[op]:
            source = placement[t[0]]
            if source == here or (t, here) in sent:
                continue
            batch = [(t, here)]
            if together:
                batch = []
                for maker_on, target in ((source, here), (here, source)):
                    for maker in reversed(order[:at]):
                        for made in reversed(plain.outputs[maker]):
                            wanted = any(placement[r] == target for r in plain.readers[made])
                            if placement[maker] == maker_on and wanted and (made, target) not in sent:
                                batch.append((made, target))
            sent.update(batch)
            steps.extend(batch)
        steps.append(op)
    return steps


def arrange(plain, keys, devices, *, bandwidth=math.inf, latency=0.0):
    """Order and placement of the lazy decoder for the makespan."""
    *urgency, patience = keys
    clock, parked = [0.0] * devices, set()
    order, placement, sent = [], {}, set()
    met = {}  # pair of devices -> how many ops had been taken

    def lacks(op, device):
        """Inputs that would have to be sent."""
        return [t for t in plain.inputs[op] if placement[t[0]] != device and (t, device) not in sent]

    def is_new(tensor, device):
        """Whether it was made after the devices last met."""
        return order.index(tensor[0]) >= met.get(frozenset((placement[tensor[0]], device)), 0)

    def is_local(op, device):
        return not any(is_new(t, device) for t in lacks(op, device))

    def cost(tensor):
        return latency + plain.size[tensor] / bandwidth * 1e6

    local = {}  # ready op -> devices; what was local stays so

    def look():
        for op in plain.ready(order):
            local.setdefault(op, set()).update(d for d in range(devices) if is_local(op, d))

    look()
    while len(order) < len(plain.ops):
        ready = sorted(plain.ready(order), key=lambda op: (-urgency[op], op))
        free = [d for d in range(devices) if d not in parked]
        device = min(free or range(devices), key=lambda d: (clock[d], d))
        here = [op for op in ready if device in local[op]]
        if here:
            chosen = here[0]
        else:
            chosen, least = None, math.inf
            for op in ready:
                missing = lacks(op, device)
                paid = sum(cost(t) for t in missing)
                waits = [clock[placement[t[0]]] for t in missing if is_new(t, device)]
                start = max([clock[device], *waits]) + paid
                elsewhere = math.inf
                if free and paid > 0:
                    for d in local[op]:
                        others = sum(plain.runtime[v] for v in ready if d in local[v]) - plain.runtime[op]
                        elsewhere = min(elsewhere, clock[d] + patience * others)
                if start < least and start <= elsewhere:
                    chosen, least = op, start
            if chosen is None:
                parked.add(device)
                continue
            news = [t for t in lacks(chosen, device) if is_new(t, device)]
            for t in news:
                pair = frozenset((placement[t[0]], device))
                if is_new(t, device):
                    for d in pair:
                        clock[d] = max(clock[e] for e in pair)
                    met[pair] = len(order)
            look()
        for t in lacks(chosen, device):
            sent.add((t, device))
            clock[placement[t[0]]] += cost(t)
            clock[device] += cost(t)
        clock[device] += plain.runtime[chosen]
        placement[chosen] = device
        order.append(chosen)
        parked.clear()
        look()
    return order, [placement[op] for op in plain.ops]


def spread(plain, keys, devices):
    """Order and placement of the memory-aware greedy decoder."""
    *urgency, noise = keys
    largest = max(plain.size.values(), default=0)
    order, placement, peak = [], {}, 0
    copies = {t: set() for t in plain.tensors}
    arrived = []  # ready ops, in the order they became so

    def left(tensor):
        return plain.readers[tensor] - set(order)

    def own_size(tensor):
        return 0 if tensor in plain.alias else plain.size[tensor]

    def resident(device):
        kept = [t for t in plain.tensors if t[0] in placement and (left(t) or t in plain.final)]
        fixed = sum(plain.persistent[op] for op in order if placement[op] == device)
        return fixed + sum(own_size(t) for t in kept if device in copies[t])

    def look(ops):
        arrived.extend(op for op in ops if op not in arrived and op in plain.ready(order))

    look(plain.ops)
    while arrived:
        best = None
        for at, op in enumerate(arrived):
            made = plain.own[op] + plain.persistent[op]
            freed = sum(own_size(t) for t in plain.reads[op] if left(t) == {op} and t not in plain.final)
            for device in range(devices):
                brought = sum(plain.size[t] for t in plain.reads[op] if device not in copies[t])
                reached = max(peak, resident(device) + brought + made + plain.workspace[op])
                rank = (reached, brought + made - freed - noise * urgency[op] * largest, at, device)
                best = min(best or rank, rank)
        peak, _, at, device = best
        op = arrived.pop(at)
        for t in plain.reads[op]:
            copies[t].add(device)
        for t in plain.outputs[op]:
            copies[t] = {device}
        order.append(op)
        placement[op] = device
        readers = [v for t in plain.outputs[op] for v in sorted(plain.readers[t])]
        look(v for at, v in enumerate(readers) if v not in readers[at + 1 :])
    return order, [placement[op] for op in plain.ops]


def sequence_cost(plain, order, placement, devices, aim, *, bandwidth=math.inf, latency=0.0):
    """What annealing minimises, the peak and the makespan of a sequence."""
    steps = sequence_steps(plain, order, placement, aim.together)
    return steps_cost(replay(plain, placement, steps, devices, bandwidth=bandwidth, latency=latency), aim)


def steps_cost(run, aim):
    """What annealing minimises, the peak and the makespan of steps that were replayed."""
    if aim.is_peak:
        penalty = sum((m / aim.size[0]) ** 16 for m in run.step_memory)
    else:
        over = [m / aim.size[0] - 1 for m in run.step_memory if m > aim.size[0] and aim.memory]
        penalty = sum((part + 0.001) * aim.weight for part in over)
    return penalty + aim.scale * max(run.clocks), max(run.peaks), max(run.clocks)
