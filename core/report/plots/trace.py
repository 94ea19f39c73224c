"""A schedule in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Each schedule is a process, each device one of its tracks, each op a slice; a transfer is a slice on both devices,
joined by a flow arrow, or beside work a slice on a track of its link; each device has a counter of its memory in bytes.
Times are microseconds; where no step takes any time, each takes one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...model.timeline import Timeline
from ...problem.residents import first_home

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
        yield from _counter(timeline, process, device)


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


def _counter(timeline: Timeline, process: int, device: int) -> Iterator[Event]:
    """Yield a device's memory where it changes."""
    times, memory = timeline.memory_over_time(device)
    counter = {"ph": "C", "name": f"memory of {timeline.device_names[device]}", "pid": process}
    for at in np.flatnonzero(np.diff(memory, prepend=-1)):
        yield {**counter, "ts": float(times[at]), "args": {"bytes": int(memory[at])}}
