"""A schedule of a PyTorch model as a device map: which device holds each module, as HuggingFace accelerate reads it."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from networkx.utils import UnionFind

from ..base.arrays import INT64_MAX
from ..base.errors import UsageError
from ..base.units import format_bytes
from ..files.atomic import check_writable, write_atomically
from ..graph.annotations import Resident
from ..graph.graph import CostGraph
from ..model.unrolled import repeated_ops
from ..model.verifier import verify
from ..problem.machine import Machine
from ..problem.residents import GraphWithHomes, holders, model_of
from ..problem.schedule import Schedule
from .importers import kind_by_name
from .options import ImportOptions
from .runtime import Note, load_runtime, read_program_schedule

PROCESSORS = ("cpu", "host")
"""Kinds of device that accelerate calls `cpu`: it keeps weights there, and sends them to where the others run."""

INPUTS = ""
"""Stands among modules for the model's inputs, and for its own parameters: accelerate has both on one device."""

Place = int | str  # a device as accelerate calls it: the number of an accelerator, or `cpu`


@dataclass(frozen=True)
class DeviceMap:
    """Modules on devices."""

    # by path of a module (or of a parameter of the model itself; empty for all), where none above it is on one device
    devices: dict[str, Place]
    # share of the forward pass' time (of its ops, where none takes any) on another device than in the schedule
    moved_share: float


def device_map(graph: CostGraph, schedule: Schedule, machine: Machine) -> DeviceMap:
    """Return the device of each module with parameters or buffers: where most of its forward pass or its bytes are.

    accelerate moves all inputs of a module that is named here to its device. So a module is on one device with all that
    is in it if it has parameters of its own, or if code of its own reads tensors from outside beside those on
    another device; if it only reads outputs of modules in it, these are on one device.
    """
    modules = _Modules(graph, schedule, accelerate_names(machine))
    while modules.join():
        pass
    devices = _merged(modules.devices)
    if modules.conflicts(devices):
        devices = modules.devices
    return DeviceMap(devices, modules.moved_share(devices))


class _Modules:
    """The modules of a model that are on one device as a whole, and which of these are on the same one."""

    def __init__(self, graph: CostGraph, schedule: Schedule, names: Mapping[int, Place]) -> None:
        self.graph = model_of(graph)
        self.notes = notes = self.graph.annotations
        self.held = {r.name: r for r in notes.residents if r.role in ("parameter", "buffer")}
        if not notes.modules or not self.held:
            raise UsageError(
                f"{graph.name}: its ops name no modules with parameters, so there is nothing to map; import a PyTorch "
                "model"
            )
        placed = zip(schedule.items.tolist(), schedule.targets.tolist(), strict=True)  # with transfers and homes
        self.placement = {item: names[device] for item, device in placed}
        phases = notes.phases or ("forward",) * self.graph.num_ops
        self.forward = [op for op in self.graph.input_order.tolist() if phases[op] in ("", "forward")]
        self.weights = self.graph.runtime if self.graph.runtime.any() else np.ones(self.graph.num_ops)
        homes = zip(notes.residents, holders(graph), strict=True) if isinstance(graph, GraphWithHomes) else ()
        self.homes = {r.name: self.placement[op] for r, op in homes if r.name in self.held and op >= 0}
        owners = {name.rpartition(".")[0] or name for name in self.held}
        self.units = {owner for owner in owners if owners.isdisjoint(_above(owner))}  # outermost ones
        forward = set(self.forward)
        # modules whose parameters are those of others, such as a head that is tied to an embedding
        readers = forward.intersection(op for resident in self.held.values() for op in resident.readers)
        around = {above for unit in self.units for above in (*_above(unit), "", unit)}
        own = {notes.modules[op] for op in readers} - around
        own = {module for module in own if _within(module, self.units) is None}
        self.units |= {module for module in own if own.isdisjoint(_above(module))}
        self.joined = UnionFind()  # what is on the same device, as what has the same weights is
        self.joined.union(INPUTS, *self.units.intersection(self.held))
        for name, resident in self.held.items():
            for op in forward.intersection(resident.readers):
                if (unit := _within(notes.modules[op], self.units)) is not None:
                    self.joined.union(unit, _within(name, self.units))

    @property
    def devices(self) -> dict[str, Place]:
        """The device of each unit."""
        times, sizes = defaultdict[str, Counter[Place]](Counter), defaultdict[str, Counter[Place]](Counter)
        for op in self.forward:
            if (unit := _within(self.notes.modules[op], self.units)) is not None:
                times[self.joined[unit]][self.placement[op]] += self.weights[op]
        for name, home in self.homes.items():
            sizes[self.joined[_within(name, self.units)]][home] += self.held[name].size
        groups, latest = dict[str, Place](), self.placement[self.forward[0]]
        for first in dict.fromkeys(map(self.joined.__getitem__, sorted(self.units))):
            latest = _most(times[first], latest)  # what never runs stays with what is named before it
            if sizes[first] and "cpu" in (home := _most(sizes[first], latest), latest):
                latest = home
            groups[first] = latest
        chosen = {unit: groups[self.joined[unit]] for unit in sorted(self.units)}
        main = _main(chosen)
        inputs = self.joined[INPUTS]
        beside = {unit for unit, device in chosen.items() if self.joined[unit] == inputs and device != "cpu"}
        return chosen | dict.fromkeys(beside.union(self.units.intersection(self.held)), main)

    def conflicts(self, devices: Mapping[str, Place]) -> list[tuple[str, set[str]]]:
        """Return each module whose own code reads from several devices, with the modules that this comes from."""
        found = list[tuple[str, set[str]]]()
        runs_on = _runs_on(devices)
        given = defaultdict[int, set[str]](set)
        for resident in self.notes.residents:
            if resident.name in self.held or resident.role == "input":
                for op in resident.readers:
                    given[op].add(_within(resident.name, devices) or INPUTS)
        pointers, tensors = self.graph.inputs
        sources = dict[int, str]()
        for op in self.forward:
            module = self.notes.modules[op]
            unit = _within(module, devices)
            if unit is None:
                read = tensors[pointers[op] : pointers[op + 1]].tolist()
                units = {sources[tensor] for tensor in read if tensor in sources} | given[op]
                if len({runs_on[other] for other in units}) > 1:
                    found.append((module, units))
                unit = min(units, default=None)
            if unit is not None:
                sources |= {t: unit for t in self.graph.outputs(op) if not self.graph.is_control[t]}
        return found

    def join(self) -> bool:
        """Have conflicting modules on one device: a module, if it reads from outside of it, or the one it reads."""
        found = self.conflicts(self.devices)
        for module, units in found:
            if module and not all(unit.startswith(f"{module}.") for unit in units):
                self.units.add(module)
            else:
                self.joined.union(*units)
        for unit in [unit for unit in self.units if not self.units.isdisjoint(_above(unit))]:
            self.units.remove(unit)
            self.joined.union(unit, _within(unit, self.units))
        return bool(found)

    def moved_share(self, devices: Mapping[str, Place]) -> float:
        """Return the share of the forward pass' time that is on another device than in the schedule."""
        runs_on, units = _runs_on(devices), {op: _within(self.notes.modules[op], devices) for op in self.forward}
        moved = [op for op, unit in units.items() if unit is not None and runs_on[unit] != self.placement[op]]
        return float(self.weights[moved].sum()) / max(float(self.weights[self.forward].sum()), 1e-300)


def _main(devices: Mapping[str, Place]) -> Place:
    """Return where accelerate puts the model's inputs, and runs the modules kept on `cpu`: the first accelerator."""
    return min((device for device in devices.values() if isinstance(device, int)), default="cpu")


def _most(votes: Mapping[Place, float], otherwise: Place) -> Place:
    """Return the choice with most votes."""
    return max(sorted(votes, key=str), key=votes.__getitem__, default=otherwise)


def _runs_on(devices: Mapping[str, Place]) -> dict[str, Place]:
    """Return where accelerate runs the modules of a map."""
    main = _main(devices)
    return {INPUTS: main, **{path: main if device == "cpu" else device for path, device in devices.items()}}


def accelerate_names(machine: Machine) -> dict[int, Place]:
    """Return accelerate's names of the devices of a machine: `cpu` (also `host`), or their number among the others."""
    accelerators = [at for at, device in enumerate(machine.devices) if device.kind not in PROCESSORS]
    return {at: accelerators.index(at) if at in accelerators else "cpu" for at in range(len(machine.devices))}


def _above(path: str) -> list[str]:
    """Return the paths of the modules around one, outermost first, without the model itself."""
    return list(accumulate(path.split(".")[:-1], "{}.{}".format))


def _within(path: str, units: Collection[str]) -> str | None:
    """Return the unit that a path is, or is in; the model itself is around all of them."""
    return next((unit for unit in ("", *_above(path), path) if unit in units), None)


def _merged(devices: dict[str, Place]) -> dict[str, Place]:
    """Name a module instead of all that is in it where that is on one device."""
    inside: dict[str, set[Place]] = defaultdict(set)
    around = {path: ["", *_above(path)] for path in devices}
    for path, device in devices.items():
        for above in around[path]:
            inside[above].add(device)
    wholes = {path: next((above for above in around[path] if len(inside[above]) == 1), path) for path in devices}
    return {wholes[path]: device for path, device in devices.items()}


def check_weights(
    output: str,
    residents: Sequence[Resident],
    limits: Sequence[int | None],
    names: Mapping[int, Place],
    devices: Mapping[str, Place],
) -> None:
    """Raise `UsageError` if the weights on a device of a map exceed its memory."""
    memory, sizes = Counter[Place](), Counter[Place]()
    for number, limit in enumerate(limits):
        memory[names[number]] += INT64_MAX if limit is None else limit
    for resident in residents:
        if resident.role in ("parameter", "buffer"):
            sizes[devices[str(_within(resident.name, devices))]] += resident.size
    for device, size in sizes.items():
        if size > memory[device]:
            raise UsageError(
                f"{output}: {format_bytes(size)} of weights would be on {device}, which has "
                f"{format_bytes(memory[device])}: a module is on one device as a whole; solve with less memory there"
            )


def check_map_output(model: str, output: str) -> None:
    """Find before the work any obstacle to writing a device map."""
    if kind_by_name(model) != "pytorch":
        raise UsageError(f"{model}: a device map is of the modules of a PyTorch model; leave out --format device-map")
    if not output.endswith(".json"):
        raise UsageError(f"{output}: a device map is written as JSON; the name must end in .json")
    check_writable(output)


def write_device_map(
    model: str, schedule: str, output: str, options: ImportOptions, note: Note, *, force: bool = False
) -> DeviceMap:
    """Write which device holds each module of a PyTorch model by a schedule, as accelerate's `device_map`."""
    check_map_output(model, output)
    graph = load_runtime(model, options, note).graph("roofline", lambda text: None)
    loaded = read_program_schedule(schedule, graph, force=force)
    verify(loaded.problem, loaded.schedule, enforce_limit=False)
    runs = loaded.schedule.op_order()
    if again := repeated_ops(graph, runs[runs < graph.num_ops].tolist()):
        raise UsageError(
            f"{schedule}: op {graph.op_label(again[0])} runs again in this schedule, which a device map cannot say; "
            "apply it without --format device-map"
        )
    problem, names = loaded.problem, accelerate_names(loaded.problem.machine)
    found = device_map(problem.graph, loaded.schedule, problem.machine)
    check_weights(output, graph.annotations.residents, problem.memory_limits, names, found.devices)
    held = zip(problem.graph.annotations.residents, holders(problem.graph), strict=True)
    units = [(of.size, _within(of.name, found.devices), op) for of, op in held if of.role != "input" and op >= 0]
    placement = loaded.schedule.placement(problem.graph).tolist()
    apart = [size for size, unit, op in units if unit is not None and found.devices[unit] != names[placement[op]]]
    if apart:
        note(
            f"{output}: {len(apart):,} weights and states of the optimizer ({format_bytes(sum(apart))}) have their "
            "home on another device than their module; a map keeps them with it, where states may exceed a memory limit"
        )
    if found.moved_share:
        note(
            f"{output}: {100 * found.moved_share:.1f}% of the forward pass' time is on another device than in the "
            "schedule, since a module is on one device as a whole"
        )
    write_atomically(output, json.dumps(found.devices, indent=1) + "\n")
    return found
