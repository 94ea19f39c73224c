"""Random machines, graphs with homes for them, and random schedules; every plan of a small one."""

from __future__ import annotations

import itertools

import numpy as np
from schedopt.core.graph.annotations import Annotations, Resident
from schedopt.core.graph.builder import GraphBuilder
from schedopt.core.model.verifier import verify
from schedopt.core.problem.machine import Device, Machine
from schedopt.core.problem.schedule import Schedule


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
            is_final=bool(rng.random() < 0.2),
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
    placement = np.zeros(graph.num_ops, int)
    for op in range(graph.num_ops):
        first = rules.group[op]
        placement[op] = rng.choice(np.flatnonzero(rules.allowed[op])) if first == op else placement[first]
    return Schedule.from_steps(*random_steps(rng, problem, placement))


def sends_of(problem, placement):
    """The transfers that a placement needs, as `(tensor, target)`, by sets."""
    graph = problem.graph
    held = getattr(graph, "held", ())
    own = graph.num_tensors - len(held)
    free = {own + n for n, resident in enumerate(held) if problem.replicate and not resident.writers}
    return {
        (int(tensor), int(placement[op]))
        for op in range(graph.num_ops)
        for tensor in graph.read_tensor[graph.read_ptr[op] : graph.read_ptr[op + 1]]
        if placement[graph.tensor_producer[tensor]] != placement[op] and int(tensor) not in free
    }


def ready_steps(problem, placement, sends, done, sent):
    """What can be the next step: ops whose inputs are on their device, transfers of what is made."""
    graph = problem.graph
    steps = []
    for op in range(graph.num_ops):
        if op in done:
            continue
        reads = graph.read_tensor[graph.read_ptr[op] : graph.read_ptr[op + 1]].tolist()
        makers = [int(graph.tensor_producer[tensor]) for tensor in reads]
        if all(maker in done for maker in makers) and all(
            (tensor, int(placement[op])) not in sends or (tensor, int(placement[op])) in sent for tensor in reads
        ):
            steps.append(op)
    for tensor, target in sorted(sends - sent):
        if int(graph.tensor_producer[tensor]) in done:
            steps.append((tensor, target))
    return steps


def random_steps(rng, problem, placement):
    """Draw an order of steps as columns of a schedule."""
    sends = sends_of(problem, placement)
    done, sent, columns = set(), set(), ([], [], [])
    while len(done) < problem.graph.num_ops or len(sent) < len(sends):
        ready = ready_steps(problem, placement, sends, done, sent)
        step = ready[int(rng.integers(len(ready)))]
        append_step(problem, placement, columns, step)
        (sent if isinstance(step, tuple) else done).add(step)
    return columns


def append_step(problem, placement, columns, step):
    """Add a step to the columns of a schedule."""
    if isinstance(step, tuple):
        tensor, target = step
        source = placement[problem.graph.tensor_producer[tensor]]
        values = (~tensor, int(source), target)
    else:
        values = (step, int(placement[step]), int(placement[step]))
    for column, value in zip(columns, values, strict=True):
        column.append(value)


def least_makespan(problem):
    """The least makespan of every placement and every order of ops and transfers, by trying them all."""
    graph, rules = problem.graph, problem.rules
    firsts = [op for op in range(graph.num_ops) if rules.group[op] == op]
    best = [np.inf]

    def place(at, placement):
        if at == len(firsts):
            full = [placement[rules.group[op]] for op in range(graph.num_ops)]
            _try_orders(problem, full, sends_of(problem, full), best)
            return
        for device in np.flatnonzero(rules.allowed[firsts[at]]):
            place(at + 1, {**placement, firsts[at]: int(device)})

    place(0, {})
    return best[0]


def least_fitness(problem):
    """The least `(excess, value)` of every placement and every order of ops and transfers, by verifying them all."""
    rules, ops = problem.rules, problem.graph.num_ops
    own, best = ops - len(getattr(problem.graph, "held", ())), (np.inf, np.inf)
    firsts = [op for op in range(ops) if rules.group[op] == op]

    def orders(placement, sends, done, sent, columns):
        ready = ready_steps(problem, placement, sends, done, sent)
        if not ready:
            yield columns
        for step in [step for step in ready if not isinstance(step, tuple) and step >= own][:1] or ready:
            following = tuple([*column] for column in columns)
            append_step(problem, placement, following, step)
            transfers = {step} if isinstance(step, tuple) else set()
            yield from orders(placement, sends, done | ({step} - transfers), sent | transfers, following)

    for devices in itertools.product(*(np.flatnonzero(rules.allowed[first]).tolist() for first in firsts)):
        chosen = dict(zip(firsts, devices, strict=True))
        placement = [chosen[int(rules.group[op])] for op in range(ops)]
        sends = sends_of(problem, placement)
        if all(problem.hardware.has_link[placement[problem.graph.tensor_producer[t]], to] for t, to in sends):
            for columns in orders(placement, sends, frozenset(), frozenset(), ([], [], [])):
                totals = verify(problem, Schedule.from_steps(*columns), enforce_limit=False)
                best = min(best, problem.fitness(totals.peak_per_device, totals.runtime))
    return best


def _try_orders(problem, placement, sends, best):
    """Try all orders for one placement; a branch ends where it is no better than the best known."""
    graph, machine, times = problem.graph, problem.hardware, problem.rules.times
    own = graph.num_ops - len(getattr(graph, "held", ()))
    everywhere = {
        graph.num_tensors - len(graph.held) + n
        for n, resident in enumerate(getattr(graph, "held", ()))
        if problem.replicate and not resident.writers
    }

    def go(done, sent, clock, link, there):
        if max(clock.values()) >= best[0]:
            return
        ready = ready_steps(problem, placement, sends, done, sent)
        if not ready:
            best[0] = max([*clock.values(), *there.values()])
            return
        homes = [step for step in ready if not isinstance(step, tuple) and step >= own]
        for step in homes[:1] or ready:
            new_clock, new_link, new_there = dict(clock), dict(link), dict(there)
            if isinstance(step, tuple):
                tensor, target = step
                source = placement[graph.tensor_producer[tensor]]
                if machine.bandwidth[source][target] == 0:
                    continue
                takes = machine.latency[source][target]
                takes += int(graph.tensor_size[tensor]) * (1e6 / machine.bandwidth[source][target])
                start = max(there[tensor, source], clock[target])
                if machine.transfers == "blocking":
                    start = max(start, clock[source])
                    new_clock[source] = new_clock[target] = start + takes
                elif machine.contention:
                    start = max(start, link.get((source, target), 0.0))
                    new_link[source, target] = start + takes
                new_there[tensor, target] = start + takes
                go(done, sent | {step}, new_clock, new_link, new_there)
                continue
            device, end = placement[step], 0.0
            reads = graph.read_tensor[graph.read_ptr[step] : graph.read_ptr[step + 1]].tolist()
            if step < own:
                arrived = [there[t, device] for t in reads if t not in everywhere]
                end = max([clock[device], *arrived]) + float(times[step, device])
                new_clock[device] = end
            for tensor in graph.outputs(step):
                new_there[tensor, device] = end
            go(done | {step}, sent, new_clock, new_link, new_there)

    go(frozenset(), frozenset(), dict.fromkeys(range(problem.devices), 0.0), {}, {})
