"""Who holds the memory at a schedule's peak, and until when."""

from __future__ import annotations

from dataclasses import dataclass

from ..problem import Problem
from ..schedule import Schedule
from .timeline import timeline_of


@dataclass(frozen=True)
class Holder:
    """Bytes alive at the peak: the tensor that holds them, and the ops that still wait for it or its views."""

    name: str
    size: int
    waiting: tuple[str, ...]


@dataclass(frozen=True)
class Peak:
    """The step with the most memory, and what is alive there, largest first.

    Parameters
    ----------
    step, device, memory
        Its place in the schedule, the device, and the bytes on it.
    runs
        The op that runs, or the tensor that is transferred.
    workspace, persistent
        Bytes that the op takes while it runs, and that the device holds throughout.
    holders
        The buffers alive; views are counted with the tensor they share memory with.
    """

    step: int
    device: int
    memory: int
    runs: str
    workspace: int
    persistent: int
    holders: tuple[Holder, ...]


def alive_at_peak(problem: Problem, schedule: Schedule) -> Peak:
    """List what is alive at a schedule's peak."""
    graph = problem.graph
    timeline = timeline_of(graph.name, problem, schedule)
    step, device = timeline.peak_step, timeline.fullest_device
    item = int(schedule.items[step])
    holders = []
    for holding in timeline.alive(step, device):
        readers = sorted(int(schedule.items[reader]) for reader in holding.readers if reader >= step)
        names = tuple(graph.op_names[op] for op in readers if op >= 0)
        holders.append(Holder(graph.tensor_name(holding.tensor), holding.size, names))
    return Peak(
        step=step,
        device=device,
        memory=int(timeline.simulation.step_memory[step]),
        runs=timeline.step_name(step),
        workspace=int(graph.workspace[item]) if item >= 0 else 0,
        persistent=int(timeline.persistent[device]),
        holders=tuple(sorted(holders, key=lambda holder: (-holder.size, holder.name))),
    )
