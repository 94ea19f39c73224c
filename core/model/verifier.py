"""The independent verifier: replays a schedule, and its addresses, in plain Python and names the first broken rule.

It shares no code with the kernels, nor with the search for possible devices: every rule is read off the machine and the
graph again. Memory is counted by intervals, each from the step that takes the bytes to the last that needs them.
"""

from __future__ import annotations

import fnmatch
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from ..base.errors import ScheduleError
from ..base.speed import without_gc
from ..graph.graph import CostGraph
from ..problem.machine import Machine
from ..problem.problem import Problem
from ..problem.residents import GraphWithHomes
from ..problem.schedule import Addresses, Schedule


@dataclass(frozen=True)
class Totals:
    """The verifier's totals: bytes per device, and the makespan in microseconds."""

    peak_per_device: list[int]
    runtime: float

    @property
    def peak(self) -> int:
        """Bytes on the fullest device."""
        return max(self.peak_per_device)

    def shares(self, machine: Machine) -> list[float]:
        """Return the share of each device's memory that its peak takes, 0 where it has none."""
        return [
            peak / (one.memory or math.inf) for peak, one in zip(self.peak_per_device, machine.devices, strict=True)
        ]


class StepClaim(NamedTuple):
    """A file's claims on one step; None where it has none."""

    # start, end: when it runs, microseconds
    start: float | None = None
    end: float | None = None
    size: int | None = None  # bytes that a transfer sends
    # the tensors whose bytes its device holds no longer after it: an op's device, and that from which a transfer sends;
    # views are freed with what they share. Control tensors, which have no bytes, are not among them.
    freed: frozenset[int] | None = None


# A time, the step that starts or ends then, and whether it ends: what comes first of equal times
Moment = tuple[float, int, bool]


@dataclass(slots=True)
class Holding:
    """Bytes on a device while steps need them, with the tensors that share them: a tensor and its views, or none."""

    device: int
    size: int
    since: Moment
    until: Moment
    is_kept: bool = False
    made: list[tuple[int, int]] = field(default_factory=list)  # step and tensor

    @property
    def tensors(self) -> set[int]:
        """Those that share the bytes."""
        return {tensor for _, tensor in self.made}


@dataclass(frozen=True)
class Memory:
    """Bytes that each device holds at most and (target) devices while a step runs; the last users of each tensor."""

    peaks: list[int]
    steps: list[int]
    freed: list[set[int]]


class Replay:
    """A schedule, step by step."""

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.problem, self.graph, self.machine = problem, problem.graph, problem.machine
        graph = self.graph
        columns = (schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist())
        self.steps: list[tuple[int, int, int]] = list(zip(*columns, strict=True))
        self.homes = graph if isinstance(graph, GraphWithHomes) else None
        own = self.homes.model if self.homes else graph
        self.own_ops, self.own_tensors = len(own.op_names), len(own.tensor_size)
        # The graph's arrays as lists: single values are read from these several times as fast.
        flat, pointers = graph.read_tensor.tolist(), graph.read_ptr.tolist()
        self.reads = [set(flat[pointers[op] : pointers[op + 1]]) for op in range(len(graph.op_names))]
        first = graph.output_ptr.tolist()
        self.outputs = [range(first[op], first[op + 1]) for op in range(len(graph.op_names))]
        self.producer = [op for op, made in enumerate(self.outputs) for _ in made]
        self.readers: list[list[int]] = [[] for _ in self.producer]
        for op, tensors in enumerate(self.reads):
            for tensor in tensors:
                self.readers[tensor].append(op)
        self.size, self.alias_of = graph.tensor_size.tolist(), graph.alias_of.tolist()
        self.is_control, self.is_final = graph.is_control.tolist(), graph.is_final.tolist()
        self.runtime = graph.runtime.tolist()
        self.placement: dict[int, int] = {}
        self.start: list[float] = []
        self.end: list[float] = []

    def home(self, tensor: int) -> int:
        """Return the device where a tensor is made, or has its home."""
        return self.placement[self.producer[tensor]]

    def is_replicated(self, tensor: int) -> bool:
        """Whether a resident is on every device that reads it."""
        number = tensor - self.own_tensors
        return self.homes is not None and number >= 0 and self.problem.replicate and not self.homes.held[number].writers

    def run(self) -> Memory:
        """Check every rule, find when every step runs, and return the bytes of devices."""
        self._check_steps()
        self._check_places()
        self._check_transfers()
        self._run_steps()
        return self._memory()

    def _name(self, device: int) -> str:
        name = self.machine.devices[device].name
        return name if name == f"device {device}" else f"'{name}'"

    def _check_steps(self) -> None:
        """Check that all ops of steps exist, each once, or again where that is allowed; fill `placement`."""
        graph, devices = self.graph, self.problem.devices
        ops, tensors = len(self.reads), len(self.producer)
        if self.problem.recompute and any(item < 0 or source or target for item, source, target in self.steps):
            raise ScheduleError(f"{graph.name}: a schedule with repeated ops runs ops alone, on device 0")
        for item, source, target in self.steps:
            if item >= ops or ~item >= tensors:
                raise ScheduleError(f"{graph.name}: the schedule names item {item}, which the graph does not have")
            named = f"op {graph.op_label(item)}" if item >= 0 else f"transfer of '{graph.tensor_name(~item)}'"
            if not (0 <= target < devices and 0 <= source < devices):
                wrong = target if 0 <= source < devices else source
                raise ScheduleError(f"{graph.name}: {named} uses device {wrong}, but the last one is {devices - 1}")
            if item < 0:
                continue
            if item in self.placement and not self.problem.recompute:
                raise ScheduleError(f"{graph.name}: {named} runs twice")
            if item in self.placement and graph.runs_once[item]:
                name = f"op '{graph.op_names[item]}'"
                raise ScheduleError(f"{graph.name}: {name} runs twice, but may only run once")
            if source != target:
                raise ScheduleError(f"{graph.name}: {named} runs on two devices")
            self.placement[item] = target
        for op in range(ops):
            if op not in self.placement:
                raise ScheduleError(f"{graph.name}: {self._missing_step(op)}")

    def _missing_step(self, op: int) -> str:
        """Return the missing step of a schedule without an op: its run, or the home of the resident that it holds."""
        if op < self.own_ops:
            return f"op {self.graph.op_label(op)} never runs"
        return (
            f"no step says which device is the home of '{self.graph.op_names[op]}', one of "
            f"{len(self.reads) - self.own_ops} resident tensors: a schedule for several devices begins with a step for "
            "each, which files of older versions lack; solve the graph again"
        )

    def _check_places(self) -> None:
        """Check pins, groups, and that the writers of a resident are at its home."""
        graph, machine = self.graph, self.machine
        names = list(enumerate(graph.op_names))
        for pattern, wanted in machine.pins:
            by_name = {at for at, device in enumerate(machine.devices) if device.name == wanted}
            allowed = by_name or {at for at, device in enumerate(machine.devices) if device.kind == wanted}
            for op, name in names:
                if fnmatch.fnmatchcase(name, pattern) and self.placement[op] not in allowed:
                    raise ScheduleError(
                        f"{graph.name}: op {graph.op_label(op)} is pinned to '{wanted}', but runs on "
                        f"{self._name(self.placement[op])}"
                    )
        for patterns in machine.together:
            members = [op for op, name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
            self._check_same(members, "are to be together")
        for number, resident in enumerate(self.homes.held if self.homes else ()):
            home = self.own_ops + number
            if resident.writers:
                late = [op for op in resident.readers if not self._may_read_a_copy(op, number)]
                self._check_same([home, *resident.writers, *late], f"are to be at the home of '{resident.name}'")

    def _may_read_a_copy(self, op: int, number: int) -> bool:
        """Whether a reader comes before all writers of a resident, or reads the state of the last one before it."""
        assert self.homes is not None
        writers = set(self.homes.held[number].writers)
        if op in writers:
            return False
        left = [writer for writer in writers if not self._precedes(op, writer)]
        states = {self.producer[t] for t in self.reads[op] if self.alias_of[t] == self.own_tensors + number}
        if len(states) != 1:
            return not left
        (last,) = states
        is_last = last in left and all(writer == last or self._precedes(writer, last) for writer in left)
        return is_last and self._precedes(last, op) and self._written[last] == 1

    def _check_same(self, ops: Iterable[int], what: str) -> None:
        first, *others = ops
        for op in others:
            if self.placement[op] != self.placement[first]:
                labels = f"{self.graph.op_label(first)} and {self.graph.op_label(op)}"
                raise ScheduleError(f"{self.graph.name}: {labels} {what}, but run on different devices")

    def _precedes(self, one: int, other: int) -> bool:
        """Whether an op that uses a written resident must end before another begins, by the inputs of each."""
        return bool(self._earlier[other] >> self._bit[one] & 1)

    @cached_property
    def _written(self) -> Counter[int]:
        """How many residents each op writes."""
        return Counter(op for resident in (self.homes.held if self.homes else ()) for op in {*resident.writers})

    @cached_property
    def _bit(self) -> dict[int, int]:
        """A number for each op that uses a resident that is written."""
        held = self.homes.held if self.homes else ()
        users = sorted({op for r in held if r.writers for op in (*r.readers, *r.writers)})
        return {op: at for at, op in enumerate(users)}

    @cached_property
    def _earlier(self) -> list[int]:
        """Per op, those that must end before it begins, as bits."""
        earlier = [0] * len(self.reads)
        for op in self.graph.input_order.tolist():
            for maker in {self.producer[tensor] for tensor in self.reads[op]}:
                earlier[op] |= earlier[maker] | (1 << self._bit[maker] if maker in self._bit else 0)
        return earlier

    def _check_transfers(self) -> None:
        """Check that tensors are sent to where they are read, once to each device, from where they are made."""
        sent: set[tuple[int, int]] = set()
        for item, source, target in self.steps:
            if item >= 0:
                continue
            tensor, where = ~item, f"{self.graph.name}: '{self.graph.tensor_name(~item)}' is sent"
            if source != self.home(tensor):
                raise ScheduleError(f"{where} from {self._name(source)}, where it is not produced")
            is_read = any(self.placement[op] == target for op in self.readers[tensor])
            if target == source or not is_read or self.is_replicated(tensor):
                raise ScheduleError(f"{where} to {self._name(target)}, where no op reads it")
            if (tensor, target) in sent:
                raise ScheduleError(f"{where} to {self._name(target)} twice")
            sent.add((tensor, target))

    def _run_steps(self) -> None:
        """Start every step as early as it can be; fill `start` and `end`."""
        self.there: list[dict[int, float]] = [{} for _ in range(self.problem.devices)]
        self.clock = [0.0] * self.problem.devices
        self.link: dict[tuple[int, int], float] = {}
        self.done: set[int] = set()
        for item, source, target in self.steps:
            if item >= self.own_ops:
                start = end = self._hold(item, target)
            elif item >= 0:
                start, end = self._run_op(item, target)
            else:
                start, end = self._send(~item, source, target)
            self.start.append(start)
            self.end.append(end)

    def _hold(self, op: int, device: int) -> float:
        (tensor,) = self.outputs[op]
        others = {self.placement[reader] for reader in self.readers[tensor]}
        for where in {device} | (others if self.is_replicated(tensor) else set()):
            self.there[where][tensor] = 0.0
        return 0.0

    def _run_op(self, op: int, device: int) -> tuple[float, float]:
        start, there = self.clock[device], self.there[device]
        if op in self.done:
            self._check_nothing_waited(op)
        try:
            start = max(start, max(map(there.__getitem__, self.reads[op]), default=start))
        except KeyError as missing:
            raise ScheduleError(self._missing_input(op, missing.args[0], device)) from None
        self.done.add(op)
        self.clock[device] = end = start + self.duration(op, device)
        for tensor in self.outputs[op]:
            there[tensor] = end
        return start, end

    def _missing_input(self, op: int, tensor: int, device: int) -> str:
        name = self.graph.tensor_name(tensor)
        if tensor >= self.own_tensors:
            return f"{self.graph.name}: '{name}' is read on {self._name(device)}, but not sent there"
        how = "before" if self.problem.recompute else f"on {self._name(device)} without"
        return f"{self.graph.name}: op {self.graph.op_label(op)} runs {how} its input '{name}'"

    def _check_nothing_waited(self, op: int) -> None:
        """Check that an op does not run again after one that waits for it by a control edge."""
        waiting = {reader for tensor in self.outputs[op] if self.is_control[tensor] for reader in self.readers[tensor]}
        if late := waiting & self.done:
            names = self.graph.op_names
            raise ScheduleError(
                f"{self.graph.name}: op '{names[op]}' runs again after op '{names[min(late)]}', "
                "which may only run after it"
            )

    def _send(self, tensor: int, source: int, target: int) -> tuple[float, float]:
        name = f"{self.graph.name}: '{self.graph.tensor_name(tensor)}' is sent from {self._name(source)}"
        if tensor not in self.there[source]:
            raise ScheduleError(f"{name} before it is there")
        bandwidth = self.machine.bandwidth[source][target]
        if bandwidth == 0:
            raise ScheduleError(f"{name} to {self._name(target)}, which have no link")
        start = max(self.there[source][tensor], self.clock[target])
        if self.machine.transfers == "blocking":
            start = max(start, self.clock[source])
        elif self.machine.contention:
            start = max(start, self.link.get((source, target), 0.0))
        end = start + self.machine.latency[source][target] + self.size[tensor] * (1e6 / bandwidth)
        if self.machine.transfers == "blocking":
            self.clock[source] = self.clock[target] = end
        self.link[source, target] = self.there[target][tensor] = end
        return start, end

    def duration(self, op: int, device: int) -> float:
        """Return the time of an op on a device, microseconds."""
        what = self.machine.devices[device]
        runtime: float | None = self.runtime[op] / what.speed if what.speed > 0 else None
        if self.machine.op_times and what.speed > 0:
            runtime = self.machine.op_times[self.graph.op_names[op]].get(what.kind, runtime)
        if runtime is None:
            raise ScheduleError(f"{self.graph.name}: op {self.graph.op_label(op)} cannot run on {self._name(device)}")
        return runtime

    def _memory(self) -> Memory:
        """Add up the bytes of devices, moment by moment."""
        changes: dict[Moment, list[tuple[int, int]]] = {}
        freed: list[set[int]] = [set() for _ in self.steps]
        self.holdings = self._holdings()
        for holding in self.holdings:
            changes.setdefault(holding.since, []).append((holding.device, holding.size))
            if not holding.is_kept:
                changes.setdefault(holding.until, []).append((holding.device, -holding.size))
                freed[holding.until[1]] |= holding.tensors
        held = self._throughout()
        peaks, during = list(held), [0] * len(self.steps)
        for step, start in enumerate(self.start):
            changes.setdefault((start, step, False), [])
        for moment in sorted(changes):
            for device, size in changes[moment]:
                held[device] += size
            for device, _ in changes[moment]:
                peaks[device] = max(peaks[device], held[device])
            if not moment[2]:
                during[moment[1]] = held[self.steps[moment[1]][2]]
        return Memory(peaks, during, freed)

    def _holdings(self) -> list[Holding]:
        """Return the temporary bytes of devices: outputs with their views, copies, workspace."""
        workspace, last_run = self.graph.workspace.tolist(), {item: at for at, (item, *_) in enumerate(self.steps)}
        at: list[dict[int, Holding]] = [{} for _ in range(self.problem.devices)]
        found: list[Holding] = []
        for step, (item, source, target) in enumerate(self.steps):
            if item >= self.own_ops:
                continue
            begins, ends = (self.start[step], step, False), (self.end[step], step, True)
            if item >= 0:
                found.append(Holding(target, workspace[item], begins, ends))
            here = at[target]
            needed, there = (self.reads[item], here) if item >= 0 else ((~item,), at[source])
            for tensor in needed:
                if (holding := there.get(tensor)) is not None and holding.until < ends:  # else it is resident here
                    holding.until = ends
            for tensor in self.outputs[item] if item >= 0 else (~item,):
                viewed = self.alias_of[tensor] if item >= 0 else -1
                if self.is_control[tensor] or (viewed >= 0 and viewed not in here):
                    continue  # of what is resident here
                if viewed < 0:
                    here[tensor] = Holding(target, self.size[tensor], begins, ends)
                    found.append(here[tensor])
                else:
                    here[tensor] = here[viewed]
                holding = here[tensor]
                holding.until = max(holding.until, ends)
                holding.made.append((step, tensor))
                holding.is_kept |= item >= 0 and self.is_final[tensor] and last_run[item] == step
        return found

    def _throughout(self) -> list[int]:
        """Return the bytes on each device from the first step to the last."""
        held, persistent = [0] * self.problem.devices, self.graph.persistent.tolist()
        for op, device in self.placement.items():
            held[device] += persistent[op]
        for tensor in range(self.own_tensors, len(self.producer)):
            if self.is_replicated(tensor):
                for device in {self.placement[op] for op in self.readers[tensor]} - {self.home(tensor)}:
                    held[device] += self.size[tensor]
        return held


@without_gc()
def verify(
    problem: Problem,
    schedule: Schedule,
    *,
    peak: int | None = None,
    peak_per_device: list[int] | None = None,
    peak_share: float | None = None,
    runtime: float | None = None,
    steps: Sequence[StepClaim] | None = None,
    enforce_limit: bool = True,
) -> Totals:
    """Replay a schedule under the rules of the cost model; claimed totals and steps are checked where given."""
    graph, replay = problem.graph, Replay(problem, schedule)
    memory = replay.run()
    for number, claim in enumerate(steps or ()):
        item = replay.steps[number][0]
        found = StepClaim(
            start=replay.start[number],
            end=replay.end[number],
            size=None if item >= 0 else replay.size[~item],
            freed=frozenset(memory.freed[number]),
        )
        _check_claim(graph, number, item, claim, found)
    totals = Totals(memory.peaks, max(replay.end))
    _check_totals(graph, totals, peak, peak_per_device, runtime)
    if peak_share is not None and peak_share != (share := max(totals.shares(problem.machine))):
        raise ScheduleError(f"{graph.name}: the schedule claims {peak_share} of a device's memory, but takes {share}")
    if enforce_limit:
        _check_limits(problem, totals, len(schedule))
    return totals


def _check_limits(problem: Problem, totals: Totals, runs: int) -> None:
    name, limit = problem.graph.name, problem.runtime_limit
    if problem.memory_limit is not None and totals.peak > problem.memory_limit:
        raise ScheduleError(
            f"{name}: the schedule takes {totals.peak} bytes on a device, over the limit of {problem.memory_limit}"
        )
    for device, peak in zip(problem.machine.devices, totals.peak_per_device, strict=True):
        if device.memory is not None and peak > device.memory:
            raise ScheduleError(
                f"{name}: the schedule takes {peak} bytes on '{device.name}', which has {device.memory}"
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
    """Compare the claims on a step with the verifier's own values."""
    name = f"op {graph.op_label(item)}" if item >= 0 else f"transfer of '{graph.tensor_name(~item)}'"
    where = f"{graph.name}: step {number + 1}, {name}, "
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


def verify_addresses(problem: Problem, schedule: Schedule, addresses: Addresses) -> None:
    """Check the addresses of a valid schedule, as `verify` finds it."""
    name = problem.graph.name
    if len(addresses.arenas) != problem.devices or len(addresses.made) != len(schedule):
        raise ScheduleError(
            f"{name}: there are addresses for {len(addresses.arenas)} devices and {len(addresses.made)} steps, but "
            f"{problem.devices} and {len(schedule)} are needed"
        )
    replay = Replay(problem, schedule)
    replay.run()
    for device, pieces in enumerate(_pieces(replay, addresses)):
        arena, found = addresses.arenas[device], most_alive(pieces, addresses.alignment)
        if arena.size % addresses.alignment:
            multiple = f"which is no multiple of the alignment of {addresses.alignment}"
            raise ScheduleError(f"{name}: the arena of device {device} has {arena.size} bytes, {multiple}")
        check_arena(name if problem.devices == 1 else f"{name}, device {device}", pieces, arena.size)
        if arena.bound != found:
            raise ScheduleError(
                f"{name}: the arena of device {device} claims a bound of {arena.bound} bytes, but {found} live at once"
            )


def _pieces(replay: Replay, addresses: Addresses) -> list[list[Piece]]:
    """Return the pieces of each device's arena, with the moments of their lifetimes."""
    graph, offsets = replay.graph, dict[tuple[int, int], int]()
    for step, (item, *_) in enumerate(replay.steps):
        outputs = () if item >= replay.own_ops else replay.outputs[item] if item >= 0 else (~item,)
        made, given = [tensor for tensor in outputs if not replay.is_control[tensor]], addresses.made[step]
        if len(given) != len(made):
            count = f"step {step + 1} makes {len(made)} tensors"
            raise ScheduleError(f"{graph.name}: {count}, but {len(given)} have offsets")
        offsets.update(zip(((step, tensor) for tensor in made), given, strict=True))
    pieces: list[list[Piece]] = [[] for _ in addresses.arenas]
    for holding in replay.holdings:
        step = holding.since[1]
        if holding.made:
            what, offset = f"'{graph.tensor_name(holding.made[0][1])}'", offsets[holding.made[0]]
            _check_views(replay, holding, offsets)
        else:
            what, offset = (
                f"the workspace of op '{graph.op_names[replay.steps[step][0]]}'",
                int(addresses.workspace[step]),
            )
        until = (math.inf, 0, True) if holding.is_kept else holding.until
        if holding.size or holding.made:
            pieces[holding.device].append(Piece(what, holding.since, until, offset, holding.size, addresses.alignment))
    return pieces


def _check_views(replay: Replay, holding: Holding, offsets: dict[tuple[int, int], int]) -> None:
    """Compare the offsets of views with those of their bases, and with the bytes that all share."""
    graph, (first, *views) = replay.graph, holding.made
    at, start = {first[1]: offsets[first]}, offsets[first]
    for step, tensor in views:
        op, base, offset = int(graph.tensor_producer[tensor]), replay.alias_of[tensor], offsets[step, tensor]
        wanted = at[base] + graph.annotations.view_offsets.get((op, tensor - int(graph.output_ptr[op])), 0)
        if offset != wanted or not start <= offset <= start + holding.size:
            raise ScheduleError(
                f"{graph.name}: '{graph.tensor_name(tensor)}' has the offset {offset}, but as a view of "
                f"'{graph.tensor_name(base)}' it has {wanted}, within {start} to {start + holding.size}"
            )
        at[tensor] = offset


@dataclass
class Piece:
    """Bytes of an arena that are needed from `start` until before `end`."""

    what: str  # what errors call it
    # start, end: moments, or any other times
    start: Any
    end: Any
    # offset, size: where it is claimed to be, and how many bytes it has
    offset: int
    size: int
    alignment: int  # what the offset must be a multiple of


def check_arena(where: str, pieces: Sequence[Piece], arena: int) -> None:
    """Check that every piece is aligned and within its arena, and that no two share a byte while both live."""
    for piece in pieces:
        if piece.offset % piece.alignment:
            raise ScheduleError(
                f"{where}: {piece.what} has the offset {piece.offset}, which is no multiple of {piece.alignment}"
            )
        if piece.offset < 0 or piece.offset + piece.size > arena:
            raise ScheduleError(
                f"{where}: {piece.what} has the addresses {piece.offset} to {piece.offset + piece.size}, outside of "
                f"its arena of {arena} bytes"
            )
    _check_overlaps(where, [piece for piece in pieces if piece.size])


def _check_overlaps(where: str, pieces: Sequence[Piece]) -> None:
    events = [(piece.start, 1, number) for number, piece in enumerate(pieces)]
    events += [(piece.end, 0, number) for number, piece in enumerate(pieces)]
    alive: list[tuple[int, int]] = []  # offset and number, sorted; no two overlap
    for time, is_start, number in sorted(events):
        piece = pieces[number]
        at = bisect_left(alive, (piece.offset, number))
        if not is_start:
            del alive[at]
            continue
        for _, beside in alive[max(0, at - 1) : at + 1]:
            other = pieces[beside]
            if other.offset < piece.offset + piece.size and piece.offset < other.offset + other.size:
                moment = time[1] if isinstance(time, tuple) else time
                raise ScheduleError(
                    f"{where}: at {moment}, {piece.what} at {piece.offset} to {piece.offset + piece.size} overlaps "
                    f"{other.what} at {other.offset} to {other.offset + other.size}"
                )
        alive.insert(at, (piece.offset, number))


def most_alive(pieces: Sequence[Piece], unit: int) -> int:
    """Return the most bytes that live at once, each piece rounded up to a unit."""
    changes = [(piece.start, 1, -(-piece.size // unit)) for piece in pieces]
    changes += [(piece.end, 0, -(-piece.size // unit)) for piece in pieces]
    most = alive = 0
    for _, is_start, blocks in sorted(changes):
        alive += blocks if is_start else -blocks
        most = max(most, alive)
    return most * unit
