"""Schedules as one web page that needs no server and no network: its data is put into `page.html`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph.graph import CostGraph
from ...model.timeline import Timeline
from ...problem.residents import model_of

_PLACE = "/*DATA*/"
_DECIMALS = 4


def page(timelines: Sequence[Timeline]) -> str:
    """Return the page of schedules of one graph."""
    document = {
        **_graph_data(timelines[0].problem.graph),
        "schedules": [_schedule_data(timeline) for timeline in timelines],
    }
    before, after = files(__package__).joinpath("page.html").read_text("utf-8").split(_PLACE)
    return before + script_json(document) + after


def script_json(document: Any) -> str:
    """Write JSON that no name can break out of a script element with: `<`, `>` and `&` are escaped."""
    text = json.dumps(document, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _graph_data(graph: CostGraph) -> dict[str, Any]:
    return {
        "graph": graph.name,
        "counts": [model_of(graph).num_ops, model_of(graph).num_data_tensors],
        "ops": graph.op_names,
        **_sources(graph),
        "runtime": _rounded(graph.runtime),
        "workspace": graph.workspace.tolist(),
        "persistent": graph.persistent.tolist(),
        "firstTensor": graph.output_ptr.tolist(),
        "size": graph.tensor_size.tolist(),
        "control": np.flatnonzero(graph.is_control).tolist(),
    }


def _sources(graph: CostGraph) -> dict[str, Any]:
    """Return the modules and lines of the code, each once, and per op which it is; nothing if none is known."""
    texts = [graph.annotations.source_of(op) for op in range(graph.num_ops)]
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return {"sources": list(places), "sourceOf": [places[text] for text in texts]} if any(texts) else {}


def _schedule_data(timeline: Timeline) -> dict[str, Any]:
    """Return a schedule's columns; a row per holding: tensor, device, size, first, last, final, readers, offset."""
    problem, simulation = timeline.problem, timeline.simulation
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
        "start": _rounded(timeline.step_start),
        "end": _rounded(simulation.step_end),
        "persistent": timeline.persistent.tolist(),
        "memory": [_memory_data(timeline, device) for device in range(problem.devices)],
        "holdings": [
            [*holding[:5], int(holding.is_final), holding.readers, timeline.offset_of(holding)]
            for holding in timeline.holdings
        ],
        **_arena_data(timeline),
    }


def _arena_data(timeline: Timeline) -> dict[str, Any]:
    """Return the arenas and where workspaces are; nothing for a schedule without addresses."""
    if timeline.addresses is None:
        return {}
    arenas = [[arena.size, arena.bound] for arena in timeline.addresses.arenas]
    return {"arenas": arenas, "workspaceAt": timeline.addresses.workspace.tolist()}


def _memory_data(timeline: Timeline, device: int) -> dict[str, list[float]]:
    """Return the steps that change a device's memory, and the bytes during and after each."""
    steps = np.flatnonzero(timeline.involves(device))
    return {
        "steps": steps.tolist(),
        "during": timeline.memory(device)[steps].tolist(),
        "after": timeline.memory_after(device)[steps].tolist(),
        **(_held_over_time(timeline, device) if timeline.problem.machine.is_beside else {}),
    }


def _held_over_time(timeline: Timeline, device: int) -> dict[str, list[float]]:
    """Return when a device's memory changes, and the bytes from then on: steps overlap where transfers run beside."""
    times, held = timeline.memory_over_time(device)
    return {"times": _rounded(times), "held": held.tolist()}


def _rounded(times: NDArray[np.float64]) -> list[float]:
    return [round(time, _DECIMALS) for time in times.tolist()]
