"""Schedules as one web page that needs no server and no network, and as a trace for Perfetto and chrome://tracing.

A trace has a process per schedule, a track and a counter of bytes per device, a slice per op, an arrow per transfer.
"""

import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph.graph import CostGraph
from ...model.timeline import Timeline
from ...problem.residents import first_home, model_of

_PLACE = "/*DATA*/"
_DECIMALS = 4


def page(timelines: Sequence[Timeline]) -> str:
    """Return the page of schedules of one graph."""
    schedules = [_schedule_data(timeline) for timeline in timelines]
    document = {**_graph_data(timelines[0].problem.graph), "schedules": schedules}
    before, after = files(__package__).joinpath("page.html").read_text("utf-8").split(_PLACE)
    text = json.dumps(document, separators=(",", ":"))
    for letter in "<>&":  # with which a name could break out of the script element
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return before + text + after


def _graph_data(graph: CostGraph) -> dict[str, Any]:
    """Return a graph's columns; modules and lines of the code are there once, and per op which it is, if known."""
    texts = [graph.annotations.source_of(op) for op in range(graph.num_ops)]
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return {
        "graph": graph.name,
        "counts": [model_of(graph).num_ops, model_of(graph).num_data_tensors],
        "ops": graph.op_names,
        **({"sources": list(places), "sourceOf": [places[text] for text in texts]} if any(texts) else {}),
        "runtime": _rounded(graph.runtime),
        "workspace": graph.workspace.tolist(),
        "persistent": graph.persistent.tolist(),
        "firstTensor": graph.output_ptr.tolist(),
        "size": graph.tensor_size.tolist(),
        "control": np.flatnonzero(graph.is_control).tolist(),
    }


def _schedule_data(timeline: Timeline) -> dict[str, Any]:
    """Return a schedule's columns; a row per holding: tensor, device, size, first, last, final, readers, offset."""
    problem, simulation, addresses = timeline.problem, timeline.simulation, timeline.addresses
    changed = [np.flatnonzero(timeline.involves(device)) for device in range(problem.devices)]  # steps, of a device
    memory: list[dict[str, Any]] = [
        {"steps": s.tolist(), "during": timeline.memory(d)[s].tolist(), "after": timeline.memory_after(d)[s].tolist()}
        for d, s in enumerate(changed)
    ]
    if problem.machine.is_beside:  # steps overlap: when the memory of a device changes, and the bytes from then on
        for device, columns in enumerate(memory):
            times, held = timeline.memory_over_time(device)
            columns |= {"times": _rounded(times), "held": held.tolist()}
    reserved = [] if timeline.reserved is None else timeline.reserved.tolist()
    if reserved:  # drawn as the memory of one more device
        memory.append({"steps": [*range(timeline.steps)], "during": reserved, "after": reserved})
    arenas = [] if addresses is None else [[arena.size, arena.bound] for arena in addresses.arenas]
    return {
        "label": timeline.label,
        "devices": problem.devices,
        "names": timeline.device_names,
        "beside": problem.machine.is_beside,
        "limits": problem.memory_limits,
        "peak": simulation.peak,
        "peakStep": timeline.peak_step,
        "makespan": simulation.runtime,
        "items": timeline.schedule.items.tolist(),
        "sources": timeline.schedule.sources.tolist(),
        "targets": timeline.schedule.targets.tolist(),
        "start": _rounded(timeline.simulation.step_start),
        "end": _rounded(simulation.step_end),
        "persistent": timeline.persistent.tolist(),
        "memory": memory,
        "holdings": [
            [*holding[:5], int(holding.is_final), holding.readers, timeline.offset_of(holding)]
            for holding in timeline.holdings
        ],
        **({"reserved": max(reserved)} if reserved else {}),
        **({} if addresses is None else {"arenas": arenas, "workspaceAt": addresses.workspace.tolist()}),
    }


def _rounded(times: NDArray[np.float64]) -> list[float]:
    return [round(time, _DECIMALS) for time in times.tolist()]


Event = dict[str, Any]


def trace(timelines: Sequence[Timeline]) -> str:
    """Return the trace of schedules as JSON, an event a line."""
    events = [event for number, timeline in enumerate(timelines) for event in _events(timeline, number)]
    lines = ",\n".join(json.dumps(event) for event in events)
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n'


def _events(timeline: Timeline, process: int) -> Iterator[Event]:
    graph = timeline.problem.graph
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": f"{graph.name}: {timeline.label}"}}
    names, is_beside = timeline.device_names, timeline.problem.machine.is_beside
    for device, name in enumerate(names):
        yield _track(process, device, name)
    tracks = len(names) - 1
    links: dict[tuple[int, int], list[tuple[int, float]]] = {}  # by source and target, tracks and when each is free
    starts, ends = (column.tolist() for column in timeline.times)
    schedule = timeline.schedule
    columns = zip(schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist(), strict=True)
    for step, (item, source, target) in enumerate(columns):
        place = {"pid": process, "ts": starts[step]}
        slice_ = {**place, "ph": "X", "name": timeline.step_name(step), "dur": ends[step] - starts[step]}
        memory = {"step": step + 1, "memory_bytes": int(timeline.simulation.step_memory[step])}
        if item >= first_home(graph):
            continue
        if item >= 0:
            yield {**slice_, "tid": target, "cat": "op", "args": {**memory, **_about_op(timeline, item)}}
            continue
        size = {"bytes": int(graph.tensor_size[~item]), "from": source, "to": target}
        if is_beside:
            lanes = links.setdefault((source, target), [])
            lane = next((at for at, (_, end) in enumerate(lanes) if end <= starts[step]), len(lanes))
            if lane == len(lanes):
                tracks += 1
                lanes.append((tracks, 0.0))
                yield _track(process, tracks, f"{names[source]} to {names[target]}")
            lanes[lane] = (lanes[lane][0], ends[step])
            yield {**slice_, "tid": lanes[lane][0], "cat": "transfer", "args": {**memory, **size}}
            continue
        for device in (source, target):
            yield {**slice_, "tid": device, "cat": "transfer", "args": {**memory, **size}}
        flow = {**place, "name": "transfer", "cat": "transfer", "id": f"{process}.{step}"}
        yield {**flow, "ph": "s", "tid": source}
        yield {**flow, "ph": "f", "bp": "e", "tid": target}
    for device in range(timeline.problem.devices):
        times, held = timeline.memory_over_time(device)
        counter = {"ph": "C", "name": f"memory of {names[device]}", "pid": process}
        for at in np.flatnonzero(np.diff(held, prepend=-1)):  # where it changes
            yield {**counter, "ts": float(times[at]), "args": {"bytes": int(held[at])}}


def _track(process: int, track: int, name: str) -> Event:
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": track, "args": {"name": name}}


def _about_op(timeline: Timeline, op: int) -> dict[str, int | str]:
    """Return the bytes that an op reads, allocates and takes while it runs, and where it comes from, if known."""
    graph = timeline.problem.graph
    source = graph.annotations.source_of(op)
    pointers, tensors = graph.inputs
    made = [tensor for tensor in graph.outputs(op) if graph.alias_of[tensor] < 0]
    return {
        "input_bytes": int(graph.tensor_size[tensors[pointers[op] : pointers[op + 1]]].sum()),
        "allocated_bytes": int(graph.tensor_size[made].sum()),
        "workspace_bytes": int(graph.workspace[op]),
        "persistent_bytes": int(graph.persistent[op]),
        **({"source": source} if source else {}),
    }
