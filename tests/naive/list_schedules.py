"""The list schedule of identical devices, and longest paths, one op at a time."""


def longest_paths(ops, runtime, before):
    """Return the longest path to each op, its own runtime included; ops come in an order, `before` has lists."""
    end = [0.0] * len(ops)
    for op in ops:
        end[op] = runtime[op] + max((end[other] for other in before[op]), default=0.0)
    return end


def list_steps(order, runtime, reads, producer, size, sending, devices):
    """Return steps `(item, source, target)`: each op on the device that is free first or holds most of what it reads.

    `reads` has lists of tensors per op; `sending` is what each tensor takes to be sent.
    """
    device, end, clock = [0] * len(runtime), [0.0] * len(runtime), [0.0] * devices
    sent, steps = set(), []

    def missing(tensors, here):
        return [t for t in tensors if device[producer[t]] != here and (t, here) not in sent]

    def start(tensors, here):
        return max([clock[here], *(end[producer[t]] + sending[t] for t in missing(tensors, here))])

    for op in order:
        held = [sum(size[t] for t in reads[op] if device[producer[t]] == here) for here in range(devices)]
        free, near = clock.index(min(clock)), held.index(max(held))
        here = free if start(reads[op], free) < start(reads[op], near) else near
        for tensor in missing(reads[op], here):
            source = device[producer[tensor]]
            sent.add((tensor, here))
            steps.append((~tensor, source, here))
            clock[source] = clock[here] = max(clock[source], clock[here]) + sending[tensor]
        steps.append((op, here, here))
        device[op], clock[here] = here, clock[here] + runtime[op]
        end[op] = clock[here]
    return steps
