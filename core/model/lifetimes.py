"""Lifetimes: from which step to which a device holds the bytes of each tensor, and which steps read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ..problem.problem import Problem
from ..problem.residents import model_of
from ..problem.schedule import Schedule
from .unrolled import original_tensors, unrolled


class Holding(NamedTuple):
    """Bytes on a device that a tensor, and its views there, keep from one step to another."""

    tensor: int  # the tensor that the bytes are named after; on a device that received it, the copy
    # device, size: where, and how many bytes
    device: int
    size: int
    # first, last: the steps that produce it, and after which it is freed; both hold it
    first: int
    last: int
    is_final: bool  # whether it is a result, which stays after the last step
    # the steps that read it or a view of it there, transfers to other devices included, in order
    readers: tuple[int, ...]
    members: tuple[int, ...]  # the tensors that share the bytes: itself, then its views, as they are produced


@dataclass
class _Buffer:
    """A holding while the steps are gone through; `used` is the last step that makes a view of it or reads it."""

    tensor: int
    device: int
    first: int
    used: int
    is_final: bool = False
    readers: list[int] = field(default_factory=list)
    members: list[int] = field(default_factory=list)

    def add(self, tensor: int, step: int, is_final: bool) -> None:
        self.members.append(tensor)
        self.is_final |= is_final
        self.used = step

    def read(self, step: int) -> None:
        if not self.readers or self.readers[-1] != step:
            self.readers.append(step)
        self.used = step


def holdings_of(problem: Problem, schedule: Schedule) -> tuple[Holding, ...]:
    """Return what the devices hold besides persistent bytes, by first step; control tensors are left out."""
    graph, own = problem.graph, model_of(problem.graph).num_tensors
    pointers, inputs = (column.tolist() for column in graph.inputs)
    outputs, aliases = graph.output_ptr.tolist(), graph.alias_of.tolist()
    is_control, is_final = graph.is_control.tolist(), graph.is_final.tolist()
    at: list[dict[int, _Buffer]] = [{} for _ in range(problem.devices)]
    buffers: list[_Buffer] = []

    def start(tensor: int, device: int, step: int) -> _Buffer:
        buffer = _Buffer(tensor, device, step, step)
        buffers.append(buffer)
        return buffer

    columns = zip(schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist(), strict=True)
    for step, (item, source, target) in enumerate(columns):
        if item >= 0:
            for tensor in inputs[pointers[item] : pointers[item + 1]]:
                if not is_control[tensor] and tensor in at[target]:  # else it is resident here
                    at[target][tensor].read(step)
            for tensor in range(outputs[item], outputs[item + 1]):
                if not is_control[tensor] and tensor < own:
                    alias = aliases[tensor]
                    if alias >= 0 and alias not in at[target]:
                        continue  # a view of what is resident here
                    buffer = at[target][alias] if alias >= 0 else start(tensor, target, step)
                    buffer.add(tensor, step, is_final[tensor])
                    at[target][tensor] = buffer
        elif not is_control[~item]:
            if ~item in at[source]:
                at[source][~item].read(step)
            copy = start(~item, target, step)
            copy.add(~item, step, is_final=False)
            at[target][~item] = copy
    last, sizes = len(schedule) - 1, graph.tensor_size.tolist()
    return tuple(
        Holding(
            tensor=buffer.tensor,
            device=buffer.device,
            size=sizes[buffer.tensor],
            first=buffer.first,
            last=last if buffer.is_final else buffer.used,
            is_final=buffer.is_final,
            readers=tuple(buffer.readers),
            members=tuple(buffer.members),
        )
        for buffer in buffers
    )


def freed_after(problem: Problem, schedule: Schedule) -> list[list[int]]:
    """Return for each step the tensors that it is the last to need on its device, views with what they share."""
    if problem.recompute:
        order = schedule.items.tolist()
        runs = unrolled(problem.graph, order)
        tensors = original_tensors(problem.graph, order)
        plain = freed_after(Problem(runs), Schedule.single_device(runs.input_order))
        return [sorted({tensors[tensor] for tensor in freed}) for freed in plain]
    freed: list[list[int]] = [[] for _ in range(len(schedule))]
    for holding in holdings_of(problem, schedule):
        if not holding.is_final:
            freed[holding.last].extend(holding.members)
    return [sorted(tensors) for tensors in freed]
