"""A schedule of a PyTorch model as a device map: which device holds each module, as HuggingFace accelerate reads it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from ..base.errors import UsageError
from ..files.atomic import check_writable, write_atomically
from ..graph.graph import CostGraph
from ..model.unrolled import repeated_ops
from ..model.verifier import verify
from ..problem.machine import Machine
from ..problem.residents import holders
from ..problem.schedule import Schedule
from .importers import kind_by_name
from .options import ImportOptions
from .runtime import Note, load_runtime, read_program_schedule

PROCESSORS = ("cpu", "host")
"""Kinds of device that accelerate calls `cpu`."""


@dataclass(frozen=True)
class DeviceMap:
    """Modules on devices."""

    # by path of a module (or of a parameter of the model itself; empty for all), where none above it is on one device
    devices: dict[str, int | str]
    # share of the forward pass' time (of its ops, where none takes any) on another device than in the schedule
    moved_share: float


def device_map(graph: CostGraph, schedule: Schedule) -> DeviceMap:
    """Return the device of each module with parameters or buffers: where most of its forward pass runs.

    A module is on one device as a whole with the modules in it if it has parameters of its own, as what runs it moves
    all of its inputs there. The backward pass follows the forward pass.
    """
    notes = graph.annotations
    held = [resident.name for resident in notes.residents if resident.role in ("parameter", "buffer")]
    if not notes.modules or not held:
        raise UsageError(
            f"{graph.name}: its ops name no modules with parameters, which a device map is of; import a PyTorch model"
        )
    placement = dict(zip(schedule.items.tolist(), schedule.targets.tolist(), strict=True))  # transfers and homes, too
    weights = graph.runtime if graph.runtime.any() else np.ones(graph.num_ops)
    phases = notes.phases or ("forward",) * graph.num_ops
    forward = [op for op in range(graph.num_ops) if phases[op] in ("", "forward")]
    owners = {name.rpartition(".")[0] or name for name in held}
    units = {owner for owner in owners if owners.isdisjoint(_above(owner))}  # outermost ones
    units |= _borrowers(graph, units, set(forward))
    unit_of = {op: unit for op in forward if (unit := _within(notes.modules[op], units)) is not None}
    times: dict[str, dict[int, float]] = {unit: defaultdict(float) for unit in units}
    for op, unit in unit_of.items():
        times[unit][placement[op]] += float(weights[op])
    for resident in notes.residents:
        if resident.name in units and resident.name in held:  # of the model itself: where it is read
            for op in set(resident.readers).intersection(forward):
                times[resident.name][placement[op]] += float(weights[op])
    chosen: dict[str, int] = {}
    for unit in sorted(units):
        before = next(reversed(chosen.values()), 0)  # what never runs stays with what is named before it
        chosen[unit] = max(sorted(times[unit]), key=times[unit].__getitem__) if times[unit] else before
    moved = sum(float(weights[op]) for op, unit in unit_of.items() if chosen[unit] != placement[op])
    return DeviceMap(dict(_merged(chosen)), moved / max(float(weights[forward].sum()), 1e-300))


def accelerate_names(machine: Machine) -> dict[int | str, int | str]:
    """Return what accelerate calls the devices of a machine file: `cpu`, or their number among those that are none.

    Devices of kind `cpu` and `host` are the former. Equal devices are accelerators, and keep their numbers.
    """
    accelerators = [at for at, device in enumerate(machine.devices) if device.kind not in PROCESSORS]
    return {at: accelerators.index(at) if at in accelerators else "cpu" for at in range(len(machine.devices))}


def _borrowers(graph: CostGraph, units: set[str], forward: set[int]) -> set[str]:
    """Return the modules whose parameters are those of others, such as a head that is tied to an embedding."""
    notes, found = graph.annotations, set[str]()
    for resident in notes.residents:
        if resident.role in ("parameter", "buffer"):
            found |= {notes.modules[op] for op in forward.intersection(resident.readers)}
    around = {above for unit in units for above in (*_above(unit), "", unit)}
    own = {module for module in found - around if _within(module, units) is None}
    return {module for module in own if own.isdisjoint(_above(module))}


def _above(path: str) -> list[str]:
    """Return the paths of the modules around one, outermost first, without the model itself."""
    return list(accumulate(path.split(".")[:-1], "{}.{}".format))


def _within(module: str, units: set[str]) -> str | None:
    """Return the unit that a module is, or is in."""
    return next((path for path in (*_above(module), module) if path in units), None)


def _merged(devices: dict[str, int]) -> dict[str, int]:
    """Name a module instead of all that is in it where that is on one device."""
    if len(set(devices.values())) == 1:
        return {"": next(iter(devices.values()))}
    inside: dict[str, set[int]] = defaultdict(set)
    for path, device in devices.items():
        for above in _above(path):
            inside[above].add(device)
    wholes = {path: next((above for above in _above(path) if len(inside[above]) == 1), path) for path in devices}
    return {wholes[path]: device for path, device in devices.items()}


def _states_apart(graph: CostGraph, schedule: Schedule, devices: Mapping[str, int | str]) -> int:
    """Return how many states of the optimizer have their home elsewhere than the module whose weights they are for."""
    placement, apart = schedule.placement(graph), 0
    for resident, op in zip(graph.annotations.residents, holders(graph), strict=True):
        given = [devices[path] for path in (*_above(resident.name), "") if path in devices]
        apart += resident.role == "state" and op >= 0 and given[:1] not in ([], [int(placement[op])])
    return apart


def check_map_output(model: str, output: str) -> None:
    """Find before the work what would keep a device map from being written."""
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
    found = device_map(graph, loaded.schedule)
    if apart := _states_apart(loaded.problem.graph, loaded.schedule, found.devices):
        note(
            f"{output}: {apart:,} states of the optimizer have their home on another device than the map gives their "
            "module, which a device map cannot say: beside their weights they may exceed a memory limit"
        )
    names = accelerate_names(loaded.problem.machine)
    found = replace(found, devices={path: names.get(device, device) for path, device in found.devices.items()})
    if found.moved_share:
        note(
            f"{output}: {100 * found.moved_share:.1f}% of the forward pass' time is on another device than in the "
            "schedule, since a module is on one device as a whole"
        )
    write_atomically(output, json.dumps(found.devices, indent=1) + "\n")
    return found
