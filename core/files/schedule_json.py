"""Schedule files: the fields of `schedule.schema.json` beside this file, explained in docs/concepts/formats.md."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from ..base.arrays import INT64_MAX, frozen
from ..base.errors import FormatError, OtherGraphError, ScheduleError, UnknownNameError, UsageError
from ..base.options import json_name
from ..base.units import LARGEST_ALIGNMENT
from ..graph.graph import CostGraph
from ..model.allocators import Allocator
from ..model.reserved import verify_reserved
from ..model.simulator import Simulation
from ..model.timeline import freed_after
from ..model.verifier import StepClaim, Totals, verify, verify_addresses
from ..problem.machine import Machine
from ..problem.problem import Problem, parameter_types
from ..problem.residents import first_home, model_of, with_homes
from ..problem.schedule import Addresses, Arena, Reserved, Schedule
from .costgraph import structure_hash
from .machine_yaml import machine_of
from .reading import parse_json, read_raw, shown

SHOWN_LETTERS = 80
_NEEDED = object()


def field_of(document: dict[str, Any], name: str, kind: Any, path: str | Path, default: Any = _NEEDED) -> Any:
    """Return a field of a document or of a step, checked for its type, or its default."""
    if name not in document:
        if default is _NEEDED:
            raise FormatError(f"{path}: not a schedule JSON: the field '{name}' is missing")
        return default
    value = document[name]
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
        raise FormatError(f"{path}: the field '{name}' has the wrong type: {shown(value)}")
    if isinstance(value, (int, float)) and not abs(value) <= INT64_MAX:
        raise FormatError(f"{path}: the field '{name}' is out of range: {shown(value)}")
    return value


def read_problem(
    document: dict[str, Any], steps: list[Any], graph: CostGraph, path: str | Path, machine: Machine | None
) -> Problem:
    """Return the problem that a document was made for, on a machine in place of what it says of devices, if given."""
    named = [step.get(key) for step in steps if isinstance(step, dict) for key in ("device", "from", "to")]
    least = 1 + max((name for name in named if type(name) is int), default=0)
    if machine is None and document.get("machine") is not None:
        machine = machine_of(document["machine"], lambda place: f"{path}: the field 'machine'")
    given = {
        name: field_of(document, json_name(name), _types_in_json(kind), path)
        for name, kind in parameter_types().items()
        if document.get(json_name(name)) is not None
    }
    if machine is not None:
        given |= {"devices": None, "bandwidth": None, "latency": None, "machine": machine}
        if machine.is_equal and len(machine.devices) > 1:
            graph = _with_named_homes(graph, {str(step.get("op")) for step in steps if isinstance(step, dict)})
    try:
        return Problem(graph, **{"devices": max(1, least), **given})
    except UsageError as error:
        said = str(error)
        raise FormatError(said if said.startswith(f"{path}:") else f"{path}: {said}") from error


def _with_named_homes(graph: CostGraph, named: Set[str]) -> CostGraph:
    """Return a graph in which all residents have homes, if steps name that of one which a single op uses."""
    homes = [set(each.op_names[first_home(each) :]) for each in (with_homes(graph), with_homes(graph, holds_all=False))]
    return with_homes(graph) if (homes[0] - homes[1]) & named else graph


def _types_in_json(kind: Any) -> Any:
    """Return the types of a problem's parameter in JSON."""
    if get_origin(kind) is Literal:
        return str
    in_json = {float: (int, float), Machine: (dict,)}
    return bool if kind is bool else tuple(each for part in get_args(kind) for each in in_json.get(part, (part,)))


FORMAT = 3
_SHOWN_DIGITS = 12
_STATUSES = ("optimal", "feasible", "infeasible", "limit-not-met", "interrupted")
_EXCEEDED = ("infeasible", "limit-not-met")
"""Statuses of schedules that are above a limit: that none keeps it is proven, or none was found."""
_REMARKS: dict[str, tuple[type, ...]] = {
    "schedopt": (str,),
    "graph": (str,),
    "method": (str,),
    "found_by": (str,),
    "seed": (int,),
    "repeatable": (bool,),
    "evaluations": (int, float),
    "seconds": (int, float),
    "imported": (dict,),
}
"""Fields that say how the schedule came about, which nothing reads or can verify."""


def steps_document(problem: Problem, schedule: Schedule, simulation: Simulation) -> list[dict[str, Any]]:
    """Return the `steps` of a schedule: what runs where, when, and which tensors it is the last to need."""
    graph = problem.graph
    remarks = {"module": graph.annotations.modules, "line": graph.annotations.lines}
    starts, ends = simulation.step_start.tolist(), simulation.step_end.tolist()
    steps: list[dict[str, Any]] = []
    columns = zip(schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist(), strict=True)
    for number, (item, source, target) in enumerate(columns):
        step: dict[str, Any]
        if item >= 0:
            origin = {name: values[item] for name, values in remarks.items() if values and values[item]}
            step = {"op": graph.op_names[item], "device": target, **origin}
        else:
            size = int(graph.tensor_size[~item])
            step = {"tensor": graph.tensor_name(~item), "from": source, "to": target, "bytes": size}
        steps.append({**step, "start_us": starts[number], "end_us": ends[number]})
    if problem.machine.is_beside:  # steps overlap: none is the last to need a tensor by its place alone
        return steps
    for step, tensors in zip(steps, freed_after(problem, schedule), strict=True):
        if tensors:
            step["frees"] = [graph.tensor_name(tensor) for tensor in tensors]
    return steps


def format_document(document: dict[str, Any]) -> str:
    """Write a schedule JSON with one step a line."""
    head = {key: value for key, value in document.items() if key != "steps"}
    lines = json.dumps(head, indent=1)[:-2]
    steps = ",\n  ".join(json.dumps(step) for step in document["steps"])
    return f'{lines},\n "steps": [\n  {steps}\n ]\n}}\n'


@dataclass(frozen=True)
class LoadedSchedule:
    """A schedule read from a file, with the problem and the claims of the file, which are None where it has none."""

    problem: Problem  # on the graph given by the caller
    schedule: Schedule
    status: str = "feasible"  # as written; `infeasible` and `limit-not-met`: the memory limit is exceeded knowingly
    # bytes, and microseconds
    peak: int | None = None
    peak_per_device: list[int] | None = None
    runtime: float | None = None
    steps: tuple[StepClaim, ...] = ()
    lower_bound: float | None = None  # bytes or microseconds, by the task
    peak_share: float | None = None  # of the memory of a device, 1 for all
    peak_share_bound: float | None = None
    addresses: Addresses | None = None
    reserved: Reserved | None = None

    def verify(self, *, enforce_limit: bool | None = None) -> Totals:
        """Replay the schedule and check all that the file claims."""
        limited = self.status not in (*_EXCEEDED, "interrupted") if enforce_limit is None else enforce_limit
        totals = verify(
            self.problem,
            self.schedule,
            peak=self.peak,
            peak_per_device=self.peak_per_device,
            peak_share=self.peak_share,
            runtime=self.runtime,
            steps=self.steps,
            enforce_limit=limited,
        )
        if self.addresses is not None:
            verify_addresses(self.problem, self.schedule, self.addresses)
        if self.reserved is not None:
            verify_reserved(self.problem, self.schedule, self.reserved)
        self._check_status(totals)
        return totals

    def _check_status(self, totals: Totals) -> None:
        """Compare the status and the lower bound with what the schedule takes."""
        name, problem = self.problem.graph.name, self.problem
        bound = self.lower_bound if self.peak_share_bound is None else self.peak_share_bound
        reserved, time = self.reserved, problem.time_of(len(self.schedule), totals.runtime)
        is_kept = problem.is_feasible([reserved.peak] if reserved else totals.peak_per_device, time)
        if self.status in _EXCEEDED:  # a bound on those that keep the limit says nothing of this one
            if is_kept:
                raise ScheduleError(f"{name}: the schedule claims to be {self.status}, but no limit is exceeded")
            return
        if self.status == "interrupted" and not is_kept:
            return
        if reserved is not None and not is_kept:
            raise ScheduleError(f"{name}: the schedule claims to be {self.status}, but reserves {reserved.peak} bytes")
        if reserved is not None and not problem.recompute:
            if self.status == "optimal" and not reserved.is_optimal:
                above = f"reserves {reserved.peak} bytes, above its bound {reserved.bound}"
                raise ScheduleError(f"{name}: the schedule claims to be optimal, but {above}")
            return
        if bound is None:
            return
        value: float = totals.peak if problem.task == "memory" else time
        is_same = value == bound if problem.task == "memory" else math.isclose(value, bound, rel_tol=1e-9, abs_tol=1e-9)
        if self.peak_share_bound is not None:
            value = max(totals.shares(problem.machine))
            is_same = math.isclose(value, bound, rel_tol=1e-12)
        if value < bound and not is_same:
            raise ScheduleError(f"{name}: the schedule claims that none is below {bound}, but has {value}")
        if self.status == "optimal" and not is_same:
            raise ScheduleError(f"{name}: the schedule claims to be optimal, but has {value}, above its bound {bound}")


def read_schedule(
    path: str | Path, graph: CostGraph, *, force: bool = False, machine: Machine | None = None
) -> LoadedSchedule:
    """Read a schedule for a graph; its `verify` judges the schedule itself.

    Parameters
    ----------
    path
        A schedule JSON, of which only `steps` is needed; or op names, one per line, in the order
        in which one device runs them, as `solve --format order` prints them; an op named twice runs twice.
    graph
        What it is a schedule of.
    force
        Whether to take a file that says that it was made for another graph.
    machine
        What it runs on, in place of what the file says; op names then run on its first device.

    Raises
    ------
    FormatError
        If the file cannot be read, or is no schedule, or of an unknown format.
    OtherGraphError
        If it was made for another graph; `UnknownNameError` if it names ops or tensors that the graph does not have.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("one")
    >>> op = builder.add_op("op", outputs=[1024], runtime=2.0)
    >>> schedopt.solve(builder.build(), "input").save("schedule.json")
    >>> loaded = schedopt.read_schedule("schedule.json", builder.build())
    >>> loaded.schedule, loaded.status, loaded.runtime
    (Schedule(1 op on 1 device), 'optimal', 2.0)
    """
    if not isinstance(graph, CostGraph):
        raise UsageError(f"a schedule is read for a CostGraph, not for a {type(graph).__name__}; read_graph reads one")
    data = read_raw(path)
    names = _names(data, set(graph.op_names))
    is_json = data.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"{", b"["))
    if names and (not is_json or set(names) <= set(graph.op_names)):  # names may look like JSON
        return _read_order(names, graph, path, machine)
    document = parse_json(data, lambda what: f"{path}: not a JSON file, or truncated: {what}", _fields)
    if not isinstance(document, dict):
        raise FormatError(f"{path}: not a schedule JSON, which is an object")
    return _read_document(document, graph, path, force, machine)


def read_imported(path: str | Path) -> dict[str, Any]:
    """Return how the graph of a schedule was imported, by names of options; empty where the file does not say."""
    try:
        document = json.loads(read_raw(path), object_pairs_hook=_fields)
    except (ValueError, RecursionError):  # op names, or damaged, which its reader tells
        return {}
    found: dict[str, Any] = field_of(document, "imported", dict, path, {}) if isinstance(document, dict) else {}
    return found


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a JSON object, of which a second one of a name would silently replace the first."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field '{twice[:SHOWN_LETTERS]}' is there twice")
    return fields


def order_text(names: Sequence[str]) -> str:
    """Return op names, one per line; as JSON those that a line or a terminal cannot hold."""
    lines = (name if name.isprintable() and name[:1] not in '"' else json.dumps(name) for name in names)
    return "".join(f"{line}\n" for line in lines)


def _names(data: bytes, known: set[str]) -> list[str]:
    """Return the names in the lines of a text without empty ones at its end; none if it is no text."""
    try:
        lines = data.decode("utf-8-sig").rstrip("\r\n").split("\n")
    except UnicodeDecodeError:
        return []
    names = [line.removesuffix("\r") for line in lines] if lines != [""] else []
    for at, name in enumerate(names):
        with suppress(FormatError):
            if name.startswith('"') and (said := parse_json(name, str)) in known:
                names[at] = said
    return names


def _read_order(names: list[str], graph: CostGraph, path: str | Path, machine: Machine | None) -> LoadedSchedule:
    """Read op names, one per line."""
    ops = {name: op for op, name in enumerate(graph.op_names)}
    for number, name in enumerate(names, start=1):
        if name not in ops:
            raise UnknownNameError(
                f"{path}: line {number} is '{name[:SHOWN_LETTERS]}', which is no op of {graph.name}; "
                "a schedule is JSON, or op names, one per line"
            )
    order = [ops[name] for name in names]
    problem = Problem(graph, recompute=len(set(order)) < len(order), machine=machine)
    order = [*range(first_home(problem.graph), problem.graph.num_ops), *order]
    zeros = [0] * len(order)
    return LoadedSchedule(problem, Schedule.from_steps(order, zeros, zeros))


def _read_document(
    document: dict[str, Any], graph: CostGraph, path: str | Path, force: bool, machine: Machine | None
) -> LoadedSchedule:
    found = document.get("format", 1 if "schedopt" in document else FORMAT)  # a plan of other tools has neither
    if found == 1 and not isinstance(found, bool):
        writer = shown(document.get("schedopt", "0.1")).strip("'")
        raise FormatError(f"{path}: schedopt {writer} wrote it in format 1, which is not read any more; solve again")
    if found not in (2, FORMAT) or isinstance(found, bool):  # 2 has no shares
        raise FormatError(
            f"{path}: format {json.dumps(found)[:SHOWN_LETTERS]} is not known; this version reads 2 and {FORMAT}"
        )
    graph = model_of(graph)
    made_for = field_of(document, "graph_sha256", str, path, None)
    if made_for is not None and not force and made_for != (real := structure_hash(graph)):
        raise OtherGraphError(
            f"{path}: made for another graph than {graph.name}: its graph_sha256 is {made_for[:_SHOWN_DIGITS]}..., not "
            f"{real[:_SHOWN_DIGITS]}...; --force, in Python read_schedule(..., force=True), takes it all the same"
        )
    for name, kinds in _REMARKS.items():
        value = document.get(name, 0)
        is_wrong = type(value) not in kinds or (type(value) in (int, float) and not 0 <= value < math.inf)
        if name in document and is_wrong:
            raise FormatError(f"{path}: the field '{name}' is wrong: {shown(value)}")
    status = field_of(document, "status", str, path, "feasible")
    if status not in _STATUSES:
        raise FormatError(f"{path}: unknown status {shown(status)}; one of {', '.join(_STATUSES)} is wanted")
    steps = field_of(document, "steps", list, path)
    problem = read_problem(document, steps, graph, path, machine)
    graph = problem.graph
    tensors = {name: tensor for tensor, name in enumerate(graph.tensor_names)}
    schedule = _read_steps(steps, tensors, graph, path)
    peaks = field_of(document, "peak_memory_per_device", list, path, None)
    if peaks is not None and not all(type(peak) is int for peak in peaks):
        raise FormatError(f"{path}: peak_memory_per_device must hold whole numbers")
    share, least = (field_of(document, name, (int, float), path, None) for name in ("peak_share", "peak_share_bound"))
    return LoadedSchedule(
        problem,
        schedule,
        status,
        field_of(document, "peak_memory", int, path, None),
        peaks,
        field_of(document, "runtime_us", (int, float), path, None),
        _read_claims(steps, tensors, graph, path),
        field_of(document, "lower_bound", (int, float), path, None),
        share,
        least,
        read_addresses(document, graph, schedule, path),
        read_reserved(document, path),
    )


def _read_steps(steps: list[Any], tensors: dict[str, int], graph: CostGraph, path: str | Path) -> Schedule:
    ops = {name: op for op, name in enumerate(graph.op_names)}
    items, sources, targets = [], [], []
    for number, step in enumerate(steps, start=1):
        match step:
            case {"op": str(name), "device": int(device)} if "tensor" not in step:
                known, source, target = ops, device, device
            case {"tensor": str(name), "from": int(source), "to": int(target)} if "op" not in step:
                known = tensors
            case _:
                raise FormatError(
                    f"{path}: step {number} is neither an op with its device nor a tensor with from and to: "
                    f"{shown(step)}"
                )
        if name not in known:
            kind = "op" if known is ops else "tensor"
            raise UnknownNameError(
                f"{path}: step {number} names the {kind} {shown(name)}, which {graph.name} does not have"
            )
        if not all(-1 <= device < 2**31 and not isinstance(device, bool) for device in (source, target)):
            raise FormatError(f"{path}: step {number} names a device out of range: {shown(step)}")
        items.append(known[name] if known is ops else ~known[name])
        sources.append(source)
        targets.append(target)
    return Schedule.from_steps(items, sources, targets)


def _read_claims(
    steps: list[Any], tensors: dict[str, int], graph: CostGraph, path: str | Path
) -> tuple[StepClaim, ...]:
    """Return what steps say beyond what runs where; if any has `frees`, the others free nothing."""
    has_frees = any("frees" in step for step in steps)
    claims = []
    for number, step in enumerate(steps, start=1):
        where = f"{path}: step {number}"
        for remark in ("module", "line"):  # of an op at the time; lines move while the graph stays the same
            field_of(step, remark, str, where, "")
        names = field_of(step, "frees", list, where, []) if has_frees else None
        for name in names or ():
            if not isinstance(name, str) or name not in tensors:
                raise UnknownNameError(f"{where} frees the tensor {shown(name)}, which {graph.name} does not have")
        if names is not None and len(set(names)) < len(names):
            raise FormatError(f"{where} frees a tensor twice: {shown(names)}")
        claims.append(
            StepClaim(
                start=field_of(step, "start_us", (int, float), where, None),
                end=field_of(step, "end_us", (int, float), where, None),
                size=field_of(step, "bytes", int, where, None),
                freed=None if names is None else frozenset(tensors[name] for name in names),
            )
        )
    return tuple(claims)


def address_fields(addresses: Addresses | None) -> dict[str, Any]:
    """Return the fields at the head of a file; none without addresses."""
    if addresses is None:
        return {}
    arenas = [
        {"bytes": arena.size, "bound": arena.bound, "status": "optimal" if arena.is_optimal else "feasible"}
        for arena in addresses.arenas
    ]
    return {"alignment": addresses.alignment, "arenas": arenas}


def reserved_fields(reserved: Reserved | None) -> dict[str, Any]:
    """Return what a file says of an allocator; nothing without one."""
    if reserved is None:
        return {}
    names = {"peak": "bytes", "is_before_weights": "opening_block_before_weights"}
    return {"reserved": {names.get(name, name): value for name, value in vars(reserved).items()}}


def read_reserved(document: dict[str, Any], path: str | Path) -> Reserved | None:
    """Return what a file says of an allocator; None if it says nothing."""
    if (found := field_of(document, "reserved", dict, path, None)) is None:
        return None
    where = f"{path}: the field 'reserved'"
    names = ("bytes", "bound", "opening_block", "least_capacity", "retries")
    peak, bound, block, capacity, retries = (_whole(found.get(name), f"{where}: its '{name}'") for name in names)
    is_before = field_of(found, "opening_block_before_weights", bool, where)
    allocator = field_of(found, "allocator", str, where)
    try:
        allocator = str(Allocator.parse(allocator))
    except UsageError as error:
        raise FormatError(f"{where}: {error}") from error
    return Reserved(allocator, peak, bound, block, is_before, capacity, retries)


def add_offsets(steps: list[dict[str, Any]], graph: CostGraph, schedule: Schedule, addresses: Addresses) -> None:
    """Add to each step the offsets of what it makes."""
    columns = zip(steps, schedule.items.tolist(), addresses.made, addresses.workspace.tolist(), strict=True)
    for step, item, made, workspace in columns:
        if names := _made_by(graph, item):
            step["offsets"] = dict(zip(names, made, strict=True))
        if item >= 0 and graph.workspace[item]:
            step["workspace_offset"] = workspace


def read_addresses(
    document: dict[str, Any], graph: CostGraph, schedule: Schedule, path: str | Path
) -> Addresses | None:
    """Return the addresses of a file; None if it has none."""
    if "alignment" not in document and "arenas" not in document:
        return None
    alignment = _whole(document.get("alignment"), f"{path}: the field 'alignment'", 1, LARGEST_ALIGNMENT)
    arenas = document.get("arenas")
    if not isinstance(arenas, list) or not all(isinstance(arena, dict) for arena in arenas):
        raise FormatError(f"{path}: the field 'arenas' must have an object per device next to 'alignment'")
    made, workspace = [], []
    for number, (step, item) in enumerate(zip(document["steps"], schedule.items.tolist(), strict=True), start=1):
        where = f"{path}: step {number}"
        names = _made_by(graph, item)
        offsets = step.get("offsets", {})
        if not isinstance(offsets, dict) or set(offsets) != set(names):
            wanted = ", ".join(f"'{name}'" for name in names[:3]) + "..." * bool(names[3:])
            raise FormatError(f"{where} must have an offset per result: {wanted}")
        made.append(tuple(_whole(offsets[name], f"{where}: an offset") for name in names))
        has_workspace = item >= 0 and graph.workspace[item] > 0
        workspace.append(
            _whole(step.get("workspace_offset"), f"{where}: the field 'workspace_offset'") if has_workspace else 0
        )
    sizes = []
    for device, arena in enumerate(arenas):
        where = f"{path}: the arena of device {device}"
        size, bound = (_whole(arena.get(name), f"{where}: its '{name}'") for name in ("bytes", "bound"))
        status = arena.get("status", "feasible")
        if status not in ("optimal", "feasible") or (status == "optimal" and size != bound):
            raise FormatError(
                f"{where}: its status is optimal if its bytes equal the bound, else feasible, not {str(status)[:80]!r} "
                f"with {size} bytes and a bound of {bound}"
            )
        sizes.append(Arena(size, bound))
    return Addresses(alignment, tuple(sizes), tuple(made), frozen(workspace, "int64"))


def _made_by(graph: CostGraph, item: int) -> list[str]:
    """Return the names of the data tensors that a step makes, which is a copy if it is a transfer."""
    tensors = graph.outputs(item) if item >= 0 else [~item]
    return [graph.tensor_name(tensor) for tensor in tensors if not graph.is_control[tensor]]


def _whole(value: Any, what: str, low: int = 0, high: int = INT64_MAX) -> int:
    if type(value) is not int or not low <= value <= high:
        found = "missing" if value is None else f"not {str(value)[:80]}"
        raise FormatError(f"{what} must be a whole number from {low} to {high}, and is {found}")
    return value
