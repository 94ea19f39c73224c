"""Random cases and their schedules, and their files as docs/concepts/formats.md has them."""

from __future__ import annotations

import hashlib
import json
import struct
from itertools import islice
from math import inf

from model import Case, Device, Machine, Op, Resident, World

SIZES = (0, 1, 3, 8, 8, 16, 40, 100)
TIMES = (0.0, 1.0, 1.0, 2.0, 3.0, 5.0, 0.5, 2.25)  # no sum is rounded, and many events coincide
LINKS = ((0.0, 1e6), (0.0, 4e6), (1.0, 8e6), (2.0, 5e5), (3.0, inf), (0.0, inf))


def a_case(rng, count: int, residents: int, devices: int, once: bool = False) -> Case:
    """Draw a graph, in topological order, on a machine."""
    ops, times = [], TIMES[: rng.choice((6, 8))]  # of which the first six are whole
    for at in range(count):
        made = [(maker, port) for maker, op in enumerate(ops) for port in range(len(op.sizes))]
        inputs = rng.sample(made, min(len(made), rng.choice((0, 1, 1, 2, 2, 3))))
        inputs += inputs[:1] if rng.random() < 0.1 else []
        control = [maker for maker in range(at) if rng.random() < 0.4 / count]
        sizes = [rng.choice(SIZES) for _ in range(rng.choice((0, 1, 1, 1, 1, 2)))]
        views = [rng.randrange(len(inputs)) if inputs and rng.random() < 0.15 else -1 for _ in sizes]
        name, flags = rng.choice((*["op"] * 4, "part/")), (rng.random() < 0.15, once and rng.random() < 0.15)
        costs = rng.choice(times), rng.choice((0, 0, 0, 8, 30)), rng.choice((0, 0, 0, 16, 40))
        ops.append(Op(f"{name}{at}", inputs, control, sizes, views, [0] * len(sizes), *flags, *costs))
    task, replicate = rng.choice(("memory", "runtime")), devices > 1 and rng.random() < 0.3
    case = Case(ops, [], a_machine(rng, devices), task, replicate=replicate)
    for number in range(residents):
        _add_resident(rng, case, f"w{number}" if rng.random() < 0.9 else "op0")
    for op in ops:
        for port, viewed in enumerate(op.views):
            if viewed >= 0 and rng.random() < 0.5:  # some views begin later than what they view, and end within it
                base, place = ops[op.inputs[viewed][0]], op.inputs[viewed][1]
                op.shifts[port] = rng.randint(0, max(0, base.sizes[place] - op.sizes[port]) * (base.views[place] < 0))
    return case


def _add_resident(rng, case: Case, name: str) -> None:
    """Give some ops a resident, in half of the cases with ops that write it."""
    ops = case.ops
    users = sorted(rng.sample(range(len(ops)), min(len(ops), rng.choice((1, 2, 2, 3, 4)))))
    writers = [op for op in users if rng.random() < 0.5] if rng.random() < 0.5 else []
    for writer in writers:
        if rng.random() < 0.8 and not any(maker == writer for op in ops for maker, _ in op.inputs):
            op = ops[writer]  # its one output stands for what it wrote, and other users come before or after it
            op.sizes, op.views, op.shifts, op.final = [0], [-1], [0], rng.random() < 0.05
            for other in users:
                if other < writer and rng.random() < 0.8 and other not in op.control:
                    op.control.append(other)
                if other > writer and rng.random() < 0.7:
                    ops[other].inputs.append((writer, 0))
    readers = [op for op in users if op not in writers or rng.random() < 0.5]
    case.residents.append(Resident(name, rng.choice((8, 16, 40, 100, 1)), rng.choice(users), readers, writers))
    ops[case.residents[-1].op].persistent += case.residents[-1].size


def a_machine(rng, devices: int) -> Machine:
    """Draw a machine: equal devices, or a file of different ones."""
    pairs, link = [(a, b) for a in range(devices) for b in range(devices) if a != b], rng.choice(LINKS)
    if rng.random() < 0.25:
        return Machine([Device(f"device {d}") for d in range(devices)], dict.fromkeys(pairs, link), is_file=False)
    kinds = rng.choice((("gpu",), ("gpu", "cpu"), ("gpu", "cpu", "npu")))
    speeds = (1.0,) if len(kinds) == 1 else (1.0, 1.0, 2.0, 0.5, 4.0, 0.0)
    found = [Device(f"d{at}", rng.choice(kinds), None, rng.choice(speeds)) for at in range(devices)]
    links = {pair: link if rng.random() < 0.5 else rng.choice(LINKS) for pair in pairs if rng.random() < 0.9}
    return Machine(found, links, rng.random() < 0.6, rng.random() < 0.6)


def bind(rng, case: Case) -> None:
    """Give a machine pins, groups and op times, of which some contradict each other."""
    machine, names = case.machine, [op.name for op in case.ops]
    names += [resident.name for resident in case.residents if len(machine.devices) > 1]
    patterns = [*names, *names, "op*", "op[0-2]", "*", "part/*", "op?", "none"]
    places = [device.name for device in machine.devices] + [device.kind for device in machine.devices]
    for _ in range(rng.choice((0, 0, 1, 2))):
        machine.pins[rng.choice(patterns)] = rng.choice(places)
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        machine.together.append(rng.choices(patterns, k=rng.choice((1, 2, 2, 3))))
    if rng.random() < 0.3:
        kinds = sorted({device.kind for device in machine.devices})
        for op in case.ops[rng.random() < 0.1 :]:
            machine.op_times[op.name] = {kind: rng.choice((*TIMES, None)) for kind in kinds if rng.random() < 0.8}


def plans(rng, world: World, each: int = 20, tries: int = 300):
    """Yield schedules: some orders of every placement that is drawn, all of small cases."""
    seen = set()
    for _ in range(tries):
        place = {op: where for ops, may in world.choices for where in [rng.choice(may)] for op in ops}
        sent, key = world.transfers(place), tuple(sorted(place.items()))
        if key not in seen and all((a, b) in world.machine.links for _, a, b in sent):
            seen.add(key)
            yield from islice(_orders(rng, world, place, sent), each)


def _orders(rng, world: World, place: dict, sent: list):
    """Yield the orders of all steps of a placement, each once."""
    steps = {("op", op): {"op": world.names[op], "device": device} for op, device in place.items()}
    steps |= {(tensor, to): {"tensor": world.name(tensor), "from": at, "to": to} for tensor, at, to in sent}
    waits = {node: {("op", node[0][0])} if node[0] != "op" else set() for node in steps}
    for op, tensors in enumerate(world.reads):
        for tensor in tensors:
            is_here = place[tensor[0]] == place[op] or world.is_replicated(tensor)
            waits["op", op].add(("op", tensor[0]) if is_here else (tensor, place[op]))

    def go(done):
        ready = [node for node, needed in waits.items() if node not in done and needed <= {*done}]
        if not ready:
            yield [steps[node] for node in done]
        for node in rng.sample(ready, len(ready)):
            yield from go([*done, node])

    homes = [("op", home) for home in range(world.own, len(world.names))]
    yield from go([] if rng.random() < 0.1 else homes)  # some homes are as free as any step


def graph_text(case: Case) -> str:
    """Return a graph as CostGraphDef, with what its fields cannot hold in the remarks."""
    ops, lines = case.ops, []
    for at, op in enumerate(ops):
        lines.append(f"node {{ name: {json.dumps(op.name)} id: {at} compute_cost: {round(op.runtime)}")
        lines += [f"input_info {{ preceding_node: {maker} preceding_port: {port} }}" for maker, port in op.inputs]
        lines += [f"control_input: {maker}" for maker in op.control]
        outputs = zip(op.sizes, op.views, strict=True)
        lines += [f"output_info {{ size: {size} alias_input_port: {viewed} }}" for size, viewed in outputs]
        lines.append(f"temporary_memory_size: {op.workspace} persistent_memory_size: {op.persistent}")
        lines.append(f"is_final: {str(op.final).lower()} }}")
    held = struct.pack(f"<{len(ops)}q", *(op.persistent for op in ops))
    names = json.dumps([op.name for op in ops]).encode()
    names, held = (hashlib.sha256(data).hexdigest()[:16] for data in (names, held))
    remarks = {"version": 1, "ops": names, "runtimes": [op.runtime for op in ops]}
    remarks["once"] = [at for at, op in enumerate(ops) if op.once]
    remarks["views"] = [[at, port, by] for at, op in enumerate(ops) for port, by in enumerate(op.shifts) if by]
    tensors = [[r.name, "parameter", r.size, r.op, r.readers, r.writers] for r in case.residents]
    remarks["residents"] = {"persistent": held, "tensors": tensors}
    lines.append(f"cost {{ dimension: {json.dumps('schedopt/graph ' + json.dumps(remarks))} }}")
    return "\n".join(lines)


def document_of(case: Case) -> dict:
    """Return the fields of a schedule file that say what it is for."""
    machine, names = case.machine, [device.name for device in case.machine.devices]
    found = {"format": 3, "task": case.task, "memory_limit": case.memory_limit, "replicate": case.replicate}
    found |= {"recompute": case.recompute, "runtime_limit_us": case.runtime_limit}
    if not machine.is_file:
        latency, bandwidth = next(iter(machine.links.values()), (0.0, inf))
        finite = None if bandwidth == inf else bandwidth
        return found | {"devices": len(names), "latency_us": latency, "bandwidth": finite}
    devices = [{name: value for name, value in vars(d).items() if value is not None} for d in machine.devices]
    said = {name: getattr(machine, name) for name in ("pins", "together", "op_times") if getattr(machine, name)}
    said |= {"transfers": "beside" if machine.beside else "blocking", "contention": machine.contention, "links": []}
    for (a, b), (latency, bandwidth) in machine.links.items():
        finite = {} if bandwidth == inf else {"bandwidth": bandwidth}
        said["links"].append({"from": names[a], "to": names[b], "latency": latency, **finite})
    return found | {"machine": {"devices": devices, **said}}
