"""Plans of several streams: which runs what in which order, and when each op should start and end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..base.arrays import FloatArray
from ..files.schedule_json import LoadedSchedule
from ..graph.graph import CostGraph


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """A schedule as streams: threads that share one memory, each of which runs its ops in order.

    A transfer of the schedule is no step here: the tensor stays where it is, and the reader's stream waits until the
    producer has ended.

    Parameters
    ----------
    order
        All ops in the order of the schedule's steps.
    stream_of
        Shape `(ops,)`: the stream of each op, numbered from 0 as their devices are; a device without ops is no stream.
    planned
        Microseconds that the schedule's file says it takes; None where it says nothing.
    """

    order: tuple[int, ...]
    stream_of: tuple[int, ...]
    planned: float | None = None

    @property
    def count(self) -> int:
        """Number of streams."""
        return 1 + max(self.stream_of)

    @cached_property
    def streams(self) -> tuple[tuple[int, ...], ...]:
        """The ops of each stream in the order in which it runs them."""
        return tuple(tuple(op for op in self.order if self.stream_of[op] == stream) for stream in range(self.count))

    def hand_overs(self, graph: CostGraph) -> int:
        """Return how many pairs of a producer and a reader are on different streams."""
        of = np.array(self.stream_of)
        sources, targets = graph.edges
        return int((of[sources] != of[targets]).sum())


@dataclass(frozen=True, eq=False)
class Spans:
    """When each op runs.

    Parameters
    ----------
    start, end
        Shape `(ops,)`: microseconds from the start of the first one.
    """

    start: FloatArray
    end: FloatArray

    @property
    def makespan(self) -> float:
        """Microseconds from the first start to the last end."""
        return float(self.end.max())


def stream_plan(loaded: LoadedSchedule, graph: CostGraph) -> StreamPlan:
    """Return a schedule of a graph that was read and verified as streams."""
    schedule, ops = loaded.schedule, graph.num_ops
    runs = (schedule.items >= 0) & (schedule.items < ops)
    order, devices = schedule.items[runs], schedule.targets[runs]
    streams = np.unique(devices, return_inverse=True)[1]
    stream_of = np.zeros(ops, np.int64)
    stream_of[order] = streams
    return StreamPlan(tuple(order.tolist()), tuple(stream_of.tolist()), loaded.runtime)


def predict(graph: CostGraph, plan: StreamPlan, microseconds: Sequence[float], hand_over: float) -> Spans:
    """Return when each op should run if each stream goes on as soon as it can.

    An op starts when its stream has ended the op before it and all that it reads is there; what comes from another
    stream is there `hand_over` after its producer has ended, and meanwhile both streams may work.

    Parameters
    ----------
    graph
        Says which op reads of which.
    plan
        What each stream runs.
    microseconds
        What each op takes, shape `(ops,)`.
    hand_over
        Microseconds from the end of an op to the start of a reader that waits for it on another stream.
    """
    pointers, before = graph.predecessors
    start, end = np.zeros(graph.num_ops), np.zeros(graph.num_ops)
    clock = [0.0] * plan.count
    for op in plan.order:
        stream = plan.stream_of[op]
        ready = clock[stream]
        for other in before[pointers[op] : pointers[op + 1]].tolist():
            ready = max(ready, end[other] + (hand_over if plan.stream_of[other] != stream else 0.0))
        start[op] = ready
        end[op] = clock[stream] = ready + microseconds[op]
    return Spans(start, end)
