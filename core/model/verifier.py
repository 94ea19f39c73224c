"""The independent verifier: replays a schedule in plain Python and names the first broken rule.

It shares no code with the kernels, and keeps every set by name instead of by counting.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..base.errors import ScheduleError
from ..base.without_gc import without_gc
from ..graph.graph import CostGraph
from ..problem.problem import Problem
from ..problem.residents import first_home
from ..problem.schedule import Schedule
from .machine_verifier import MachineReplay
from .repeated_runs import replay_runs


@dataclass(frozen=True)
class Totals:
    """What the verifier found: bytes per device, and the makespan in microseconds."""

    peak_per_device: list[int]
    runtime: float

    @property
    def peak(self) -> int:
        """Bytes on the fullest device."""
        return max(self.peak_per_device)


class StepClaim(NamedTuple):
    """What a file says of one step; None where it says nothing.

    Parameters
    ----------
    start, end
        When it runs, microseconds.
    size
        Bytes that a transfer sends.
    freed
        The tensors whose bytes its device holds no longer after it: an op's device, and that from which a transfer
        sends; views are freed with what they share. Control tensors, which have no bytes, are not among them.
    """

    start: float | None = None
    end: float | None = None
    size: int | None = None
    freed: frozenset[int] | None = None


class Buffer:
    """Bytes on one device that a tensor and its views there share."""

    __slots__ = ("members", "root", "size")

    def __init__(self, root: int, size: int) -> None:
        self.root = root
        self.size = size
        self.members: set[int] = set()


def _reads(graph: CostGraph) -> list[set[int]]:
    """Op -> the tensors it reads."""
    flat, pointers = graph.read_tensor.tolist(), graph.read_ptr.tolist()
    return [set(flat[pointers[op] : pointers[op + 1]]) for op in range(graph.num_ops)]


def _columns(schedule: Schedule) -> Iterator[tuple[int, int, int]]:
    """Yield item, source and target of each step."""
    return zip(schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist(), strict=True)


def _check_steps(problem: Problem, schedule: Schedule) -> dict[int, int]:
    """Check what does not depend on the order; return op -> device."""
    graph = problem.graph
    placement: dict[int, int] = {}
    ops, tensors, devices = graph.num_ops, graph.num_tensors, problem.devices

    def named(item: int) -> str:
        return f"op {graph.op_label(item)}" if 0 <= item < ops else f"item {item}"

    for item, source, target in _columns(schedule):
        if item >= ops or ~item >= tensors:
            raise ScheduleError(f"{graph.name}: the schedule names {named(item)}, which the graph does not have")
        if not (0 <= target < devices and 0 <= source < devices):
            wrong = target if 0 <= source < devices else source
            raise ScheduleError(f"{graph.name}: {named(item)} uses device {wrong}, but the last one is {devices - 1}")
        if item >= 0:
            if item in placement:
                raise ScheduleError(f"{graph.name}: {named(item)} runs twice")
            if source != target:
                raise ScheduleError(f"{graph.name}: {named(item)} runs on two devices")
            placement[item] = target
    for op in range(ops):
        if op not in placement:
            raise ScheduleError(f"{graph.name}: {_what_lacks(graph, op)}")
    return placement


def _what_lacks(graph: CostGraph, op: int) -> str:
    """Return what a schedule without an op lacks: its run, or the home of the resident that it holds."""
    own = first_home(graph)
    if op < own:
        return f"op {graph.op_label(op)} never runs"
    return (
        f"no step says which device is the home of '{graph.op_names[op]}', one of "
        f"{graph.num_ops - own} resident tensors: a schedule for several devices begins with a step for each, "
        "which files of older versions lack; solve the graph again"
    )


class Replay:
    """The devices while a schedule runs; each step begins (memory is taken) and ends (memory is freed)."""

    def __init__(self, problem: Problem, placement: dict[int, int]) -> None:
        graph = problem.graph
        self.problem, self.graph, self.placement = problem, graph, placement
        self.reads = _reads(graph)
        self.home = [placement[op] for op in graph.tensor_producer.tolist()]
        # The graph's arrays as lists: single values are read from these several times as fast.
        self.runtime, self.workspace = graph.runtime.tolist(), graph.workspace.tolist()
        self.size, self.is_final = graph.tensor_size.tolist(), graph.is_final.tolist()
        self.alias_of, self.output_ptr = graph.alias_of.tolist(), graph.output_ptr.tolist()
        # Per tensor: the readers that have not run, by device; the devices it was not sent to yet.
        self.waiting: list[dict[int, set[int]]] = [{} for _ in self.home]
        for op, tensors in enumerate(self.reads):
            for tensor in tensors:
                self.waiting[tensor].setdefault(placement[op], set()).add(op)
        self.unsent = [set(waiting) - {home} for waiting, home in zip(self.waiting, self.home, strict=True)]
        self.sent: set[tuple[int, int]] = set()
        self.clock = [0.0] * problem.devices
        self.resident = [0] * problem.devices
        persistent = graph.persistent.tolist()
        for op, device in placement.items():
            self.resident[device] += persistent[op]
        self.peak = list(self.resident)
        self.present: list[dict[int, Buffer]] = [{} for _ in range(problem.devices)]

    def is_needed(self, tensor: int, device: int) -> bool:
        """Whether the tensor's copy on a device has a reader or a transfer left, or is final there."""
        if self.waiting[tensor].get(device):
            return True
        return self.home[tensor] == device and bool(self.is_final[tensor] or self.unsent[tensor])

    def add(self, tensor: int, device: int, root: int | None) -> None:
        """Put a tensor on a device: into the buffer of `root`, or into one of its own."""
        if root is None:
            buffer = Buffer(tensor, self.size[tensor])
            self.resident[device] += buffer.size
        else:
            buffer = self.present[device][root]
        buffer.members.add(tensor)
        self.present[device][tensor] = buffer

    def note_peak(self, device: int, extra: int) -> None:
        """Record what the device holds during a step."""
        self.peak[device] = max(self.peak[device], self.resident[device] + extra)

    def free(self, tensors: set[int], device: int) -> set[int]:
        """Drop the buffers of these tensors that nobody needs any more; returns the tensors in them."""
        freed: set[int] = set()
        for buffer in {self.present[device][t] for t in tensors if t in self.present[device]}:
            if not any(self.is_needed(member, device) for member in buffer.members):
                self.resident[device] -= buffer.size
                freed |= buffer.members
                for member in buffer.members:
                    del self.present[device][member]
        return freed

    def outputs(self, op: int) -> range:
        """Return the tensors that an op makes."""
        return range(self.output_ptr[op], self.output_ptr[op + 1])

    def begin(self, item: int, source: int, target: int) -> None:
        """Take the memory of a step: an op, or `~tensor` for a transfer."""
        if item >= 0:
            self._begin_op(item, target)
        else:
            self._begin_transfer(~item, source, target)

    def end(self, item: int, source: int, target: int) -> set[int]:
        """Free what nobody needs after the step, and return it."""
        if item >= 0:
            for tensor in self.reads[item]:
                self.waiting[tensor][target].discard(item)
            return self.free(self.reads[item].union(self.outputs(item)), target)
        self.sent.add((~item, target))
        self.unsent[~item].discard(target)
        return self.free({~item}, source)

    def _begin_op(self, op: int, device: int) -> None:
        graph = self.graph
        for tensor in self.reads[op]:
            if tensor not in self.present[device]:
                raise ScheduleError(
                    f"{graph.name}: op {graph.op_label(op)} runs on device {device} "
                    f"without its input '{graph.tensor_name(tensor)}'"
                )
        self.clock[device] += self.runtime[op]
        for tensor in self.outputs(op):
            alias = self.alias_of[tensor]
            self.add(tensor, device, alias if alias >= 0 else None)
        self.note_peak(device, self.workspace[op])

    def _begin_transfer(self, tensor: int, source: int, target: int) -> None:
        graph = self.graph
        name = graph.tensor_name(tensor)
        if source != self.home[tensor]:
            raise ScheduleError(f"{graph.name}: '{name}' is sent from device {source}, where it is not produced")
        if target == source or target not in self.waiting[tensor]:
            raise ScheduleError(f"{graph.name}: '{name}' is sent to device {target}, where no op reads it")
        if (tensor, target) in self.sent:
            raise ScheduleError(f"{graph.name}: '{name}' is sent to device {target} twice")
        if tensor not in self.present[source]:
            raise ScheduleError(f"{graph.name}: '{name}' is sent from device {source} before it is there")
        seconds = self.size[tensor] / self.problem.bandwidth if self.problem.bandwidth else 0.0
        end = max(self.clock[source], self.clock[target]) + self.problem.latency + seconds * 1e6
        self.clock[source] = self.clock[target] = end
        self.add(tensor, target, None)
        self.note_peak(target, 0)


@without_gc()
def verify(
    problem: Problem,
    schedule: Schedule,
    *,
    peak: int | None = None,
    peak_per_device: list[int] | None = None,
    runtime: float | None = None,
    steps: Sequence[StepClaim] | None = None,
    enforce_limit: bool = True,
) -> Totals:
    """Replay a schedule under the rules of the cost model.

    Parameters
    ----------
    problem, schedule
        What was to be solved, and the claimed solution.
    peak, peak_per_device, runtime
        Claimed totals in bytes and microseconds; checked when given.
    steps
        What is claimed of each step; checked where given.
    enforce_limit
        Whether exceeding the memory limit is an error; off for a result known to be infeasible.

    Raises
    ------
    ScheduleError
        Naming the first broken rule: an op missing or repeated, an input not there, a transfer missing,
        needless or twice, a wrong device, a claim that does not hold, the memory limit exceeded.
    """
    totals = (_verify_runs if problem.recompute else _verify_steps)(problem, schedule, steps)
    _check_totals(problem.graph, totals, peak, peak_per_device, runtime)
    if enforce_limit:
        _check_limits(problem, totals, len(schedule))
    return totals


def _verify_steps(problem: Problem, schedule: Schedule, steps: Sequence[StepClaim] | None) -> Totals:
    """Replay a schedule that runs each op once."""
    graph = problem.graph
    placement = _check_steps(problem, schedule)
    if not problem.is_plain:
        return _verify_on_machine(problem, schedule, placement, steps)
    replay = Replay(problem, placement)
    for number, (item, source, target) in enumerate(_columns(schedule)):
        start = max(replay.clock[source], replay.clock[target])
        replay.begin(item, source, target)
        freed = replay.end(item, source, target)
        if steps is not None:
            found = StepClaim(
                start=start,
                end=replay.clock[target],
                size=None if item >= 0 else int(graph.tensor_size[~item]),
                freed=frozenset(tensor for tensor in freed if not graph.is_control[tensor]),
            )
            _check_claim(graph, number, item, steps[number], found)
    return Totals(replay.peak, max(replay.clock))


def _verify_on_machine(
    problem: Problem, schedule: Schedule, placement: dict[int, int], steps: Sequence[StepClaim] | None
) -> Totals:
    """Replay a schedule on a machine."""
    graph = problem.graph
    replay = MachineReplay(problem, schedule, placement)
    replay.run()
    for number, item in enumerate(schedule.items.tolist() if steps is not None else ()):
        size = None if item >= 0 else int(graph.tensor_size[~item])
        found = StepClaim(start=replay.start[number], end=replay.end[number], size=size)
        _check_claim(graph, number, item, steps[number], found)  # type: ignore[index]
    return Totals(replay.peaks(), max(replay.end))


def _verify_runs(problem: Problem, schedule: Schedule, steps: Sequence[StepClaim] | None) -> Totals:
    """Replay a schedule that may run ops several times."""
    graph = problem.graph
    if any(item < 0 for item in schedule.items.tolist()) or schedule.sources.any() or schedule.targets.any():
        raise ScheduleError(f"{graph.name}: a schedule with repeated ops runs ops alone, on device 0")
    order = schedule.items.tolist()
    replayed = replay_runs(graph, order)
    clock = 0.0
    for number, op in enumerate(order):
        start, clock = clock, clock + float(graph.runtime[op])
        if steps is not None:
            found = StepClaim(start=start, end=clock, freed=frozenset(replayed.freed[number]))
            _check_claim(graph, number, op, steps[number], found)
    return Totals([max(replayed.memory)], clock)


def _check_limits(problem: Problem, totals: Totals, runs: int) -> None:
    name, limit = problem.graph.name, problem.runtime_limit
    if problem.memory_limit is not None and totals.peak > problem.memory_limit:
        raise ScheduleError(
            f"{name}: the schedule takes {totals.peak} bytes on a device, over the limit of {problem.memory_limit}"
        )
    for device, peak in enumerate(totals.peak_per_device if problem.machine else ()):
        if (most := problem.machine.devices[device].memory) is not None and peak > most:  # type: ignore[union-attr]
            raise ScheduleError(
                f"{name}: the schedule takes {peak} bytes on '{problem.device_names[device]}', which has {most}"
            )
    time, unit = (runs, "runs") if problem.counts_runs else (totals.runtime, "us")
    if limit is not None and time > limit and not _is_close(time, limit):
        raise ScheduleError(f"{name}: the schedule takes {time} {unit}, over the limit of {limit} {unit}")


def _check_totals(
    graph: CostGraph, totals: Totals, peak: int | None, peak_per_device: list[int] | None, runtime: float | None
) -> None:
    """Compare claimed totals with those found."""
    if peak_per_device is not None and list(peak_per_device) != totals.peak_per_device:
        raise ScheduleError(
            f"{graph.name}: the schedule claims peaks of {peak_per_device} bytes, but takes {totals.peak_per_device}"
        )
    if peak not in (None, totals.peak):
        raise ScheduleError(f"{graph.name}: the schedule claims a peak of {peak} bytes, but takes {totals.peak}")
    if runtime is not None and not _is_close(runtime, totals.runtime):
        raise ScheduleError(f"{graph.name}: the schedule claims {runtime} us, but takes {totals.runtime} us")


def _is_close(claimed: float, found: float) -> bool:
    return math.isclose(claimed, found, rel_tol=1e-9, abs_tol=1e-9)


def _check_claim(graph: CostGraph, number: int, item: int, claim: StepClaim, found: StepClaim) -> None:
    """Compare what is claimed of a step with what was found."""
    name = f"op {graph.op_label(item)}" if item >= 0 else f"transfer of '{graph.tensor_name(~item)}'"
    where = f"{graph.name}: step {number}, {name}, "
    for verb, claimed, real in (("starts", claim.start, found.start), ("ends", claim.end, found.end)):
        if claimed is not None and real is not None and not _is_close(claimed, real):
            raise ScheduleError(f"{where}{verb} at {real} us, but the schedule claims {claimed} us")
    if claim.size is not None and claim.size != found.size:
        sent = "no" if found.size is None else found.size
        raise ScheduleError(f"{where}sends {sent} bytes, but the schedule claims {claim.size}")
    if claim.freed is not None and found.freed is not None and claim.freed != found.freed:
        tensor = min(claim.freed ^ found.freed)
        truth = "frees" if tensor in found.freed else "does not free"
        raise ScheduleError(f"{where}{truth} '{graph.tensor_name(tensor)}', but the schedule claims otherwise")
