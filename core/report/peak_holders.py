"""Holders of the memory at a schedule's peak, and until when."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.timeline import timeline_of
from ..problem.problem import Problem
from ..problem.schedule import Addresses, Schedule
from .memory_by_role import tensor_roles


@dataclass(frozen=True)
class Holder:
    """Bytes alive at the peak: the tensor that holds them, and the ops that still wait for it or its views."""

    # the tensor; bytes; names of ops
    name: str
    size: int
    waiting: tuple[str, ...]
    # what it is, such as `saved activations`, and the module and line that make it; empty if not known
    role: str = ""
    source: str = ""
    offset: int | None = None  # where in the arena it is; None for a schedule without addresses


@dataclass(frozen=True)
class Peak:
    """The step with the most memory, and what is alive there, largest first."""

    # its place in the schedule, the device, and the bytes on it
    step: int
    device: int
    memory: int
    # the op that runs, or the tensor that is transferred; the op's module and line, empty if not known
    runs: str
    # bytes that the op takes while it runs, and that the device holds throughout
    workspace: int
    persistent: int
    holders: tuple[Holder, ...]  # the buffers alive; views are counted with the tensor they share memory with
    source: str = ""


def alive_at_peak(problem: Problem, schedule: Schedule, addresses: Addresses | None = None) -> Peak:
    """List what is alive at a schedule's peak; where ops run several times, what which run made, for which runs."""
    timeline = timeline_of(problem.graph.name, problem, schedule, addresses)
    graph, schedule = timeline.problem.graph, timeline.schedule
    step, device = timeline.peak_step, timeline.fullest_device
    item = int(schedule.items[step])
    known = graph.annotations
    roles = tensor_roles(graph) if known.phases else [""] * graph.num_tensors
    holders = []
    for holding in timeline.alive(step, device):
        readers = sorted(int(schedule.items[reader]) for reader in holding.readers if reader >= step)
        names = tuple(graph.op_names[op] for op in readers if op >= 0)
        source = known.source_of(int(graph.tensor_producer[holding.tensor]))
        name = graph.tensor_name(holding.tensor)
        offset = None if addresses is None else timeline.offset_of(holding)
        holders.append(Holder(name, holding.size, names, roles[holding.tensor], source, offset))
    return Peak(
        step=step,
        device=device,
        memory=int(timeline.simulation.step_memory[step]),
        runs=timeline.step_name(step),
        workspace=int(graph.workspace[item]) if item >= 0 else 0,
        persistent=int(timeline.persistent[device]),
        holders=tuple(sorted(holders, key=lambda holder: (-holder.size, holder.name))),
        source=known.source_of(item) if item >= 0 else "",
    )
