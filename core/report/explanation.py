"""Explanations: of a peak on one device, its holders; of a makespan, its critical chain; and the bounds of either."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import truediv
from typing import Any, NamedTuple

import numpy as np

from ..base.names import one_line
from ..base.units import Written, format_bytes, times_alike, written_apart
from ..bounds.bounds import is_met, lower_bound, path_and_work
from ..bounds.recompute_bounds import least_recomputed
from ..graph.graph import CostGraph
from ..model.simulator import Simulation, input_peak, simulate
from ..problem.problem import Problem
from ..problem.residents import first_home, model_of
from ..problem.schedule import Schedule
from .memory_by_role import RESIDENT_ROLES, UNNAMED, Peak, alive_at_peak, resident_roles

WIDTH = 80
_LITTLE, _WORTH = 0.95, 0.9  # of the peak, what recomputation may go below to gain something, and to be tried
_WEIGHTS = {RESIDENT_ROLES["parameter"], UNNAMED}


def explain(
    problem: Problem, schedule: Schedule, costs: Simulation, input_peak: int, lower_bound: int, is_optimal: bool = False
) -> tuple[str, ...]:
    """Return the proofs on an order on one device, the holders of its peak, and the possible gain of recomputation."""
    # To an optimal order a limit to try with recomputation is added, where that may gain much.
    peak = alive_at_peak(problem, schedule)
    least, op, is_beside = least_recomputed(problem.graph, schedule.op_order(), costs.step_memory)
    held = held_at(problem.graph, peak)
    holders = _shares("Peak: ", held, peak.memory, format_bytes) if held else "Nothing is held."
    needed_by = one_line(problem.graph.op_names[op]) if op >= 0 else ""
    gain = _recomputation(peak.memory, least, needed_by, is_beside)
    said = _proven(peak.memory, input_peak, lower_bound), holders, gain
    if not is_optimal or least >= _WORTH * peak.memory or not problem.machine.is_anonymous:
        return said
    share = int(50 * (least + peak.memory) / input_peak)
    return *said, f"Less than any order: --memory-limit {share}% --recompute lets ops run again."


def _proven(peak: int, input_peak: int, lower_bound: int) -> str:
    """Return the proofs on an order."""
    value, before, bound = written_apart(peak, input_peak, lower_bound)
    if peak > lower_bound and peak == input_peak:
        return f"No order better than program order was found; none is below {bound} (proven)."
    if peak > lower_bound:
        return f"Peak {value}, program order {before}; no order is below {bound} (proven)."
    if peak == input_peak:
        return f"Program order is already optimal: no order needs less than {value}."
    return f"No order needs less than {value} (proven); program order needs {before}."


def _recomputation(peak: int, least: int, needed_by: str, is_beside: bool = False) -> str:
    """Return the possible gain of recomputation; the op that needs the least bytes is empty if these stay anyway."""
    beside = ", with what cannot be made again," if is_beside else ""
    if least >= peak:
        reason = f"{needed_by}{beside or ' alone'} needs" if needed_by else "what stays to the end is"
        return f"Recomputation cannot help: {reason} as much."
    if least > _LITTLE * peak:
        return f"Recomputation could save at most {format_bytes(peak - least)}."
    reason = f"op {needed_by}{beside[:-1]}" if needed_by else "what stays to the end"
    return f"Even with recomputation nothing goes below {format_bytes(least)} ({reason})."


INPUT, DEVICE, LINK, TURN = "for their inputs", "for a busy device", "for a busy link", "for a transfer's turn"
"""The cause of a step's wait: its inputs, its device, its link, or the op listed before a transfer beside work."""


class Link(NamedTuple):
    """A step of a critical chain, which starts when the one before it ends."""

    step: int
    where: str  # `on` and the device's name, or `transfers`
    name: str  # the op and where it comes from, or the tensor
    time: float  # microseconds
    waits_for: str  # one of the four above


def explain_makespan(
    problem: Problem, schedule: Schedule, costs: Simulation, input_runtime: float, lower_bound: float
) -> tuple[str, ...]:
    """Return the proofs on a makespan, and the ops, the waits and the longest parts of its critical chain."""
    chain, (path, work) = critical_chain(problem, schedule, costs), path_and_work(problem)
    values = (costs.runtime, input_runtime, lower_bound)
    time = times_alike(values, (path, work))
    value, before, bound = map(time, values)
    proven = f"Makespan {value}, program order {before}; no schedule is below {bound} (proven)."
    if is_met(costs.runtime, lower_bound):
        proven = f"No schedule takes less than {value} (proven); program order takes {before}."
    runs, waits = Counter[str](), Counter[str]()
    for link in chain:
        runs.update({link.where: link.time})  # type: ignore[dict-item]
    for link, after in pairwise(chain):
        waits.update({after.waits_for: link.time})  # type: ignore[dict-item]
    runs_text, waits_text = (
        [f"{100 * part / costs.runtime:.0f}% {words}" for words, part in parts.most_common() if part]
        for parts in (runs, waits)
    )
    devices = f"{problem.devices} device{'s' * (problem.devices > 1)}"
    return (
        proven,
        f"The longest path takes {time(path)}, all work on {devices} {time(work)}.",
        _listed("Critical chain: ", runs_text),
        _listed("Its steps wait: ", waits_text) if waits_text else "It is a single step.",
        _shares("Longest on it: ", [(link.name, link.time) for link in chain if link.time], costs.runtime, time),
    )


def critical_chain(problem: Problem, schedule: Schedule, costs: Simulation) -> tuple[Link, ...]:
    """Return the steps that make the makespan, each waiting for the one before; their times add up to it."""
    graph, machine, own = problem.graph, problem.machine, first_home(problem.graph)
    pointers, tensors = (array.tolist() for array in graph.inputs)
    starts, ends = costs.step_start.tolist(), [*costs.step_end.tolist(), 0.0]  # the last is that of no step, -1
    there: dict[tuple[int, int], int] = {}  # by tensor and device the step that makes or brings it
    busy: dict[Any, int] = {}  # by device, or by both ends of a link, the last step so far
    waits: list[tuple[int, str]] = []
    columns = (column.tolist() for column in (schedule.items, schedule.sources, schedule.targets))
    for step, (item, source, target) in enumerate(zip(*columns, strict=True)):
        made: Iterable[int] = graph.outputs(item) if item >= 0 else [~item]
        reads = tensors[pointers[item] : pointers[item + 1]] if item >= 0 else made
        taken: list[Any] = [] if item >= own else [target] if item >= 0 else [source, target]
        found = [(there.get((tensor, source), -1), INPUT) for tensor in reads]
        if item < 0 and machine.is_beside:
            taken = [(source, target)]
            found.append((busy.get(target, -1), TURN))
            found += [(busy.get((source, target), -1), LINK)] * machine.contention
        else:
            found += [(busy.get(device, -1), DEVICE) for device in taken]
        waits.append(max(found, key=lambda one: ends[one[0]], default=(-1, INPUT)))
        there.update(((tensor, target), step) for tensor in made)
        busy.update(dict.fromkeys(taken, step))
    chain, step = [], int(costs.step_end.argmax())
    while step >= 0 and ends[step] > 0:
        before, why = waits[step]
        item, where = int(schedule.items[step]), problem.machine.devices[schedule.targets[step]].name
        source = graph.annotations.source_of(item) if item >= 0 else ""
        name = graph.op_names[item] if item >= 0 else graph.tensor_name(~item)
        name = f"{name} [{source}]" if source else name if item >= 0 else f"{name} to {where}"
        chain.append(Link(step, f"on {where}" if item >= 0 else "transfers", name, ends[step] - starts[step], why))
        step = before
    return tuple(reversed(chain))


def runs_again(problem: Problem, schedule: Schedule) -> str:
    """Return the sentence that names the ops which run again, those first that add most time; empty if none does."""
    graph = problem.graph
    extra = np.bincount(schedule.items, minlength=graph.num_ops) - 1
    added = extra * problem.op_times
    ops = sorted(np.flatnonzero(extra).tolist(), key=lambda op: (-added[op], op))
    sources = graph.annotations.modules
    pieces = [
        f"{graph.op_names[op]}{f' [{sources[op]}]' if sources and sources[op] else ''} "
        f"+{problem.format_time(float(added[op]))}"
        for op in ops
    ]
    return _listed("Runs again: ", pieces) if pieces else ""


def layers_again(problem: Problem, schedule: Schedule) -> str:
    """Return the sentence that names the layers whose forward ops run again, for `torch.utils.checkpoint` by hand."""
    graph, known = problem.graph, problem.graph.annotations
    runs = np.bincount(schedule.items, minlength=graph.num_ops)
    if not known.modules or runs.max(initial=0) < 2:
        return ""
    forward = [op for op in range(graph.num_ops) if not known.phases or known.phases[op] == "forward"]
    siblings: defaultdict[str, set[str]] = defaultdict(set)
    for path in {known.modules[op] for op in forward}:
        parts = path.split(".")
        for at, part in enumerate(parts):
            siblings[".".join(parts[:at])].add(part)
    layers = {op: _layer(known.modules[op], siblings) for op in forward if known.modules[op]}
    whole = Counter(layers.values())
    again = Counter(layer for op, layer in layers.items() if runs[op] > 1)
    groups: list[list[str]] = []
    for layer in [layer for layer in whole if again[layer]]:
        follows = bool(groups) and _next(groups[-1][-1]) == layer
        groups[-1].append(layer) if follows else groups.append([layer])
    names = [group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}" for group in groups]
    counts = [(sum(again[layer] for layer in group), sum(whole[layer] for layer in group)) for group in groups]
    pieces = [f"{name} ({some} of {all_} ops)" for name, (some, all_) in zip(names, counts, strict=True)]
    order = sorted(range(len(pieces)), key=lambda at: -counts[at][0])
    time = problem.time_of(len(schedule), float(runs @ graph.runtime)) / float(problem.op_times.sum()) - 1
    peak = simulate(problem, schedule).peak
    head = f"By module, {100 * (1 - peak / input_peak(graph)):.0f}% less memory for {100 * time:.2g}% more time: "
    return _listed(head, [pieces[at] for at in order]) if pieces else ""


def _layer(path: str, siblings: Mapping[str, set[str]]) -> str:
    """Return the outermost numbered module of several that a path is in; all of it if there is none."""
    parts = path.split(".")
    for at, part in enumerate(parts):
        if part.isdigit() and len(siblings[".".join(parts[:at])]) > 1:
            return ".".join(parts[: at + 1])
    return path


def _next(layer: str) -> str:
    """Return the path of the layer after a numbered one."""
    before, _, number = layer.rpartition(".")
    return f"{before}{'.' * bool(before)}{int(number) + 1}" if number.isdigit() else ""


def _listed(text: str, pieces: Sequence[str]) -> str:
    """Return a sentence that lists as many pieces, after a text, as a line has room for."""
    for number, piece in enumerate(pieces):
        more, longer = f", {len(pieces) - number} more.", f"{', ' * (number > 0)}{one_line(piece)}"
        if number and len(text) + len(longer) + len(more) > WIDTH:
            return text + more
        text += longer
    return f"{text}."


def _shares(text: str, parts: Iterable[tuple[str, float]], whole: float, written: Written) -> str:
    """Return a sentence that lists the parts of a whole, largest first, with their shares."""
    largest = sorted(parts, key=lambda part: -part[1])
    pieces = [f"{words} {written(size)} ({100 * size / whole:.0f}%)" for words, size in largest[:WIDTH]]
    return _listed(text, pieces + [""] * (len(largest) - len(pieces)))  # a line has no room for more


def held_at(graph: CostGraph, peak: Peak) -> list[tuple[str, int]]:
    """Return everything alive at a peak: resident bytes by role, tensors with where they are made, the workspace."""
    resident = resident_roles(graph)
    if list(resident) == [UNNAMED]:
        resident = {"persistent bytes": resident[UNNAMED]}
    held = list(resident.items())
    names = set(graph.tensor_names)
    for holder in peak.holders:
        if holder.size:
            op, _, port = holder.name.rpartition(":")
            name = op if port == "0" and f"{op}:1" not in names else holder.name  # of its op, where that has no other
            held.append((f"{name} [{holder.source}]" if holder.source else name, holder.size))
    if peak.workspace:
        held.append((f"workspace of {peak.runs}", peak.workspace))
    return held


def infeasible_reason(problem: Problem, proven: float) -> str:
    """Return the sentence that says why no schedule keeps the memory limits; empty where that is not proven."""
    name, limits = model_of(problem.graph).name, [limit for limit in problem.memory_limits if limit is not None]
    if len(limits) < problem.devices:
        none = f"no schedule of {name} keeps the limits of all devices: a search of all ended without one"
        return none if math.isinf(proven) else ""
    counted = replace(problem, task="memory")
    if not counted.counts_alike:  # in shares of the limits, which are the memories or less
        devices = tuple(replace(one, memory=limit) for one, limit in zip(problem.machine.devices, limits, strict=True))
        limited = replace(counted, memory_limit=None, machine=replace(problem.machine, devices=devices))
        proven *= limited.whole / counted.whole * min(map(truediv, counted.memories, limits))
        counted = limited
    is_of_peaks = problem.task == "memory" and math.isfinite(proven)
    most, least = counted.counted_peak(limits), max(lower_bound(counted), int(proven) if is_of_peaks else 0)
    kind, each = ("order", "order") if problem.devices == 1 else (f"schedule on {problem.devices} devices", "schedule")
    if counted.counts_alike:
        limit, needed = written_apart(int(most), int(least))
        kept, room = f"fits in {limit}", "" if problem.devices == 1 else " each"
        needed += _staying(problem) if problem.devices == 1 else " on one of them"
    else:
        kept, room = "keeps the limits of all devices", ""
        needed = f"{counted.format_value(counted.shown(least))} of one"
    if least > most:
        return f"no {kind} of {name} {kept}{room}: every {each} needs at least {needed}"
    return f"no {kind} of {name} {kept}: a search of all ended without one" if math.isinf(proven) else ""


def least_peak(problem: Problem, proven: float = 0) -> int:
    """Return the lower bound of the fullest device of every schedule, bytes; `proven` is the task's own bound."""
    least = int(lower_bound(replace(problem, task="memory")))
    return max(least, int(proven)) if problem.task == "memory" and math.isfinite(proven) else least


def _staying(problem: Problem) -> str:
    """Return how many of an order's bytes stay throughout, as a part of a sentence."""
    resident = int(problem.graph.persistent.sum())
    if not resident:
        return ""
    what = "are weights" if set(resident_roles(problem.graph)) <= _WEIGHTS else "stay throughout"
    return f", of which {format_bytes(resident)} {what}"
