"""Orders of a graph's ops, drawn at random, and schedule files of them."""

import json

import numpy as np
from schedopt import Problem


def random_order(graph, seed):
    """Return a topological order; `seed` may be a generator."""
    random, (pointers, before) = np.random.default_rng(seed), graph.predecessors
    waiting = {op: set(before[pointers[op] : pointers[op + 1]].tolist()) for op in range(graph.num_ops)}
    order = []
    while waiting:
        order.append(int(random.choice([op for op, others in waiting.items() if not others])))
        del waiting[order[-1]]
        for others in waiting.values():
            others.discard(order[-1])
    return order


def write_schedule(path, graph, order, devices=1):
    """Write a schedule by hand; what several ops read from outside is at home on device 0."""
    steps = [{"op": name, "device": 0} for name in Problem(graph, devices=devices).graph.op_names[graph.num_ops :]]
    steps += [{"op": graph.op_names[op], "device": position % devices} for position, op in enumerate(order)]
    document = {
        **{"task": "memory", "devices": devices, "memory_limit": None, "bandwidth": None, "latency_us": 0.0},
        **{"peak_memory_per_device": [0] * devices, "status": "feasible", "runtime_us": 0.0, "steps": steps},
    }
    path.write_text(json.dumps(document))
    return str(path)
