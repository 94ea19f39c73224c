"""Random machines, graphs with homes for them, and random schedules; every plan of a small one."""

from __future__ import annotations

from itertools import product

import numpy as np
from schedopt import Device, GraphBuilder, Machine, Schedule
from schedopt.core.graph.annotations import Annotations, Resident

from .costs import drawn_steps, runnable, schedule_of
from .graphs import plain_of


def random_machine(rng, devices, *, transfers=None, contention=None, hosts=True, limits=False):
    """Draw a machine of two kinds, whose last device may compute nothing."""
    made = []
    for at in range(devices):
        is_host = hosts and at == devices - 1 and devices > 1 and rng.random() < 0.3
        speed = 0 if is_host else float(rng.choice([0.5, 1, 1, 2, 3]))
        memory = int(rng.integers(20, 200)) if limits and rng.random() < 0.7 else None
        made.append(Device(f"d{at}", str(rng.choice(["gpu", "cpu"])), memory, speed))
    bandwidth = rng.choice([np.inf, 1e6, 5e5, 2e6], (devices, devices))
    latency = rng.choice([0.0, 0.5, 3.0], (devices, devices))
    return Machine(
        tuple(made),
        bandwidth,
        latency,
        transfers or str(rng.choice(["blocking", "beside"])),
        bool(rng.random() < 0.5) if contention is None else contention,
    )


def random_graph(rng, ops, *, residents=None):
    """Draw a graph with views, control, final tensors, persistent bytes, and residents of which some are written."""
    builder = GraphBuilder("random")
    ports: list[int] = []
    for op in range(ops):
        inputs = []
        if op:
            for _ in range(int(rng.integers(0, 3))):
                maker = int(rng.integers(0, op))
                if ports[maker]:
                    inputs.append((maker, int(rng.integers(0, ports[maker]))))
        outputs = [int(size) for size in rng.integers(0, 20, int(rng.integers(1, 3)))]
        if rng.random() < 0.3:
            outputs = [0]  # as what writes in place
        aliases = [int(rng.integers(0, len(inputs))) if inputs and rng.random() < 0.2 else -1 for _ in outputs]
        builder.add_op(
            f"op{op}",
            inputs=inputs,
            control=[int(rng.integers(0, op))] if op and rng.random() < 0.15 else [],
            outputs=outputs,
            aliases=aliases,
            final=bool(rng.random() < 0.2),
            runtime=float(rng.integers(0, 8)),
            workspace=int(rng.integers(0, 6)),
            persistent=int(rng.integers(0, 5)) + 20,
        )
        ports.append(len(outputs))
    found = []
    for number in range(int(rng.integers(0, 3)) if residents is None else residents):
        users = sorted(rng.choice(ops, int(rng.integers(1, min(ops, 4) + 1)), replace=False).tolist())
        writers = (users[-1],) if rng.random() < 0.3 else ()
        size = int(rng.integers(1, 10))
        if rng.random() < 0.5:
            users, writers = _written_and_read_later(rng, builder.build(), users)
        found.append(Resident(f"w{number}", "parameter", size, users[0], tuple(users), tuple(writers)))
    return builder.build(Annotations(residents=tuple(found)))


def _written_and_read_later(rng, graph, users):
    """Draw an op whose only output has no bytes for a writer, perhaps with one that reads it, and add all readers."""
    pointers, consumers = graph.consumers
    readers = {t: consumers[pointers[t] : pointers[t + 1]].tolist() for t in range(graph.num_tensors)}
    able = [t for t in np.flatnonzero(graph.tensor_size == 0).tolist() if readers[t] and not graph.is_control[t]]
    if not able:
        return users, []
    state = int(rng.choice(able))
    writers, users = [int(graph.tensor_producer[state])], [*users, *readers[state]]
    second = int(rng.choice(readers[state]))
    tensors = [t for t in graph.outputs(second) if t in able]
    if tensors and rng.random() < 0.5:
        writers, users = [*writers, second], [*users, *(op for t in tensors for op in readers[t])]
    return sorted({*users, *writers}), sorted(writers)


def random_schedule(rng, problem):
    """Draw a placement that the rules allow, and an order of all ops and transfers."""
    graph, rules = problem.graph, problem.rules
    placement = [0] * graph.num_ops
    for op in range(graph.num_ops):
        first = rules.group[op]
        placement[op] = int(rng.choice(np.flatnonzero(rules.allowed[op]))) if first == op else placement[first]
    plain = plain_of_problem(problem)
    return Schedule.from_steps(*schedule_of(plain, placement, drawn_steps(rng, plain, placement)))


def plain_of_problem(problem):
    """Return the graph of a problem, homes included, where what is replicated is there without a transfer."""
    plain, held = plain_of(problem.graph), getattr(problem.graph, "held", ())
    of_held = plain.tensors[len(plain.tensors) - len(held) :]
    plain.everywhere = {t for t, r in zip(of_held, held, strict=True) if problem.replicate and not r.writers}
    return plain


def least_makespan(problem):
    """The least makespan of every placement and every order of ops and transfers, by trying them all."""
    plain, rules, best = plain_of_problem(problem), problem.rules, [np.inf]
    firsts = [op for op in plain.ops if rules.group[op] == op]
    for devices in product(*(np.flatnonzero(rules.allowed[op]).tolist() for op in firsts)):
        chosen = dict(zip(firsts, devices, strict=True))
        _try_orders(problem, plain, [chosen[rules.group[op]] for op in plain.ops], best)
    return best[0]


def _try_orders(problem, plain, placement, best):
    """Try all orders for one placement; a branch ends where it is no better than the best known."""
    machine, times = problem.machine, problem.rules.times
    own = len(plain.ops) - len(getattr(problem.graph, "held", ()))

    def go(done, clock, link, there):
        if max(clock.values()) >= best[0]:
            return
        ready = runnable(plain, placement, done)
        if not ready:
            best[0] = max([*clock.values(), *there.values()])
            return
        homes = [step for step in ready if not isinstance(step, tuple) and step >= own]
        for step in homes[:1] or ready:
            new_clock, new_link, new_there = dict(clock), dict(link), dict(there)
            if isinstance(step, tuple):
                tensor, target = step
                source = placement[tensor[0]]
                if machine.bandwidth[source][target] == 0:
                    continue
                takes = machine.latency[source][target] + plain.size[tensor] * 1e6 / machine.bandwidth[source][target]
                start = max(there[tensor, source], clock[target])
                if machine.transfers == "blocking":
                    start = max(start, clock[source])
                    new_clock[source] = new_clock[target] = start + takes
                elif machine.contention:
                    start = max(start, link.get((source, target), 0.0))
                    new_link[source, target] = start + takes
                new_there[tensor, target] = start + takes
            else:
                device, end = placement[step], 0.0
                if step < own:
                    arrived = [there[t, device] for t in plain.reads[step] if t not in plain.everywhere]
                    end = max([clock[device], *arrived]) + float(times[step, device])
                    new_clock[device] = end
                new_there.update({(tensor, device): end for tensor in plain.outputs[step]})
            go(done | {step}, new_clock, new_link, new_there)

    go(frozenset(), dict.fromkeys(range(problem.devices), 0.0), {}, {})
