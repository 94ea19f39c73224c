"""The cost model once more, in plain Python, as docs/concepts says it; nothing here imports schedopt.

A schedule is the `steps` of its file. `World.judge` finds all that a file may claim of it, or raises `Wrong`.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

CONTROL = -1  # the port of an op's control tensor


class Wrong(Exception):
    """A broken rule."""


@dataclass
class Op:
    name: str
    inputs: list  # (op, port), in argument order
    control: list  # ops that it waits for
    sizes: list  # bytes of each output
    views: list  # per output the input that it is a view of, or -1
    shifts: list  # per output, of a view, the bytes before it in what it views
    final: bool
    once: bool
    runtime: float
    workspace: int
    persistent: int


@dataclass
class Resident:
    name: str
    size: int
    op: int
    readers: list
    writers: list

    @property
    def users(self) -> set:
        return {self.op, *self.readers, *self.writers}


@dataclass
class Device:
    name: str
    kind: str = "device"
    memory: int | None = None
    speed: float = 1.0


@dataclass
class Machine:
    devices: list
    links: dict = field(default_factory=dict)  # (from, to) -> (microseconds, bytes per second), none without a link
    beside: bool = False
    contention: bool = True
    pins: dict = field(default_factory=dict)
    together: list = field(default_factory=list)
    op_times: dict = field(default_factory=dict)
    is_file: bool = True  # else devices, bandwidth and latency are all that is said

    @property
    def is_equal(self) -> bool:
        """Whether devices and links are all alike, and nothing else is said."""
        kinds, pairs = {(d.kind, d.memory, d.speed) for d in self.devices}, len(self.devices) * (len(self.devices) - 1)
        is_alike = len(kinds) == 1 and len(self.links) == pairs and len({*self.links.values()}) <= 1
        return is_alike and not (self.beside or self.pins or self.together or self.op_times)


@dataclass
class Case:
    ops: list
    residents: list
    machine: Machine
    task: str = "memory"
    memory_limit: int | None = None
    replicate: bool = False
    recompute: bool = False
    runtime_limit: float | None = None

    def excess(self, verdict: Verdict) -> float:
        """Bytes or microseconds above the limits; 0 if all are kept."""
        over = [verdict.time - self.runtime_limit] if self.runtime_limit is not None else []
        for peak, device in zip(verdict.peaks, self.machine.devices, strict=True):
            over += [peak - limit for limit in (self.memory_limit, device.memory) if limit is not None]
        return max(0, 0, *over)

    @property
    def counts_shares(self) -> bool:
        return self.task == "memory" and all(device.memory is not None for device in self.machine.devices)

    def value(self, verdict: Verdict) -> float:
        if self.counts_shares:
            return max(peak / one.memory for peak, one in zip(verdict.peaks, self.machine.devices, strict=True))
        return max(verdict.peaks) if self.task == "memory" else verdict.time


@dataclass
class Block:  # a tensor with its views, a copy, or a workspace
    device: int
    size: int
    since: tuple  # the time, the step, and whether it ends then
    until: tuple
    made: list = field(default_factory=list)  # (step, tensor, bytes after the start)
    is_kept: bool = False

    def lives_at(self, event: tuple) -> bool:
        return self.since <= event and (self.is_kept or event < self.until)


@dataclass
class Verdict:
    peaks: list
    makespan: float
    time: float  # the makespan; runs, with repeated runs of a graph without runtimes
    claims: list = field(default_factory=list)  # per step what a file may say of it
    blocks: list = field(default_factory=list)


class World:
    """A case with its residents as ops of their own: who reads which tensors, and who may be where."""

    def __init__(self, case: Case, every: bool = False) -> None:
        self.case, self.machine, self.own = case, case.machine, len(case.ops)
        self.devices = range(len(case.machine.devices))
        self.names, self.persistent = [op.name for op in case.ops], [op.persistent for op in case.ops]
        self.reads = [{*op.inputs, *((maker, CONTROL) for maker in op.control)} for op in case.ops]
        self.waited = [{*op.control, *(maker for maker, _ in op.inputs)} for op in case.ops]
        self.size = {(maker, CONTROL): 0 for op in case.ops for maker in op.control}
        self.view, self.shift = {}, {}
        for at, op in enumerate(case.ops):
            for port, (size, viewed) in enumerate(zip(op.sizes, op.views, strict=True)):
                self.size[at, port], self.shift[at, port] = size, op.shifts[port]
                if viewed >= 0:
                    self.view[at, port] = op.inputs[viewed]
        self.before = []  # per op all ops that it comes after
        for waited in self.waited:  # in topological order
            self.before.append(waited.union(*(self.before[op] for op in waited)))
        self.homes, self.bound, self.states = [], [], set()
        for resident in case.residents if len(self.devices) > 1 else ():
            if resident.size > 0 and (len(resident.users) > 1 or every or not self.machine.is_equal):
                self._give_home(resident)
        self.readers = {tensor: [op for op, read in enumerate(self.reads) if tensor in read] for tensor in self.size}

    @classmethod
    def of(cls, case: Case, steps: list) -> World:
        """The world of a schedule: on equal devices of a file it may list all homes, or those of shared residents."""
        every, shared = cls(case, every=True), cls(case)
        listed = ({*every.names} - {*shared.names}) & {step.get("op") for step in steps}
        return every if case.machine.is_file and listed else shared

    def _give_home(self, resident: Resident) -> None:
        home, at_home, more = len(self.names), set(), 0
        while resident.name + "'" * more in self.names:
            more += 1
        self.names.append(resident.name + "'" * more)
        self.reads.append(set())
        self.persistent.append(resident.size)
        self.persistent[resident.op] -= resident.size
        self.homes.append(resident)
        for op in resident.users:
            state = self._state(resident, op) if resident.writers else home
            self.states |= {(state, 0)} - {(None, 0), (home, 0)}
            at_home |= {op} if state is None else set()
            self.reads[op].add((home if state is None else state, 0))
            self.size[home if state is None else state, 0] = resident.size
        self.bound.append({home, *at_home})

    def _state(self, resident: Resident, op: int):
        """The home or the writer that an op may be sent a written resident from, or None."""
        writers = set(resident.writers)
        earlier = writers & self.before[op]
        if op in writers or any(op not in self.before[writer] for writer in writers - earlier):
            return None
        if not earlier:
            return len(self.names) - 1
        last = [writer for writer in earlier if earlier - {writer} <= self.before[writer]]
        if not last or not self._stands_for(last[0], resident):
            return None
        others = {(writer, 0) for writer in writers - set(last) if self._stands_for(writer, resident)}
        return None if others & self.reads[op] else last[0]

    def _stands_for(self, writer: int, resident: Resident) -> bool:
        """Whether a writer's one output is the resident as it left it."""
        op = self.case.ops[writer]
        readers = {at for at, other in enumerate(self.case.ops) if (writer, 0) in other.inputs}
        is_empty = op.sizes == [0] and op.views == [-1] and not op.final
        is_alone = sum(writer in other.writers for other in self.case.residents) == 1
        return is_empty and is_alone and readers <= {*resident.readers, *resident.writers}

    def is_replicated(self, tensor: tuple) -> bool:
        return self.case.replicate and tensor[0] >= self.own and not self.homes[tensor[0] - self.own].writers

    def name(self, tensor: tuple) -> str:
        return f"{self.names[tensor[0]]}:{'control' if tensor[1] == CONTROL else tensor[1]}"

    def duration(self, op: int, device: int) -> float | None:
        """The time of an op on a device, None where it cannot run."""
        where = self.machine.devices[device]
        if op >= self.own or not where.speed:
            return 0.0 if op >= self.own else None
        return self.machine.op_times.get(self.names[op], {}).get(where.kind, self.case.ops[op].runtime / where.speed)

    @cached_property
    def choices(self) -> list:
        """Groups of ops that are on one device, with those where they may be."""
        machine, groups = self.machine, [{op} for op in range(len(self.names))]
        if machine.op_times and not {*self.names[: self.own]} <= machine.op_times.keys():
            raise Wrong("an op has no row of times")
        may = [{at for at in self.devices if self.duration(op, at) is not None} for op in range(len(groups))]
        for pattern, wanted in machine.pins.items():
            named = {at for at, device in enumerate(machine.devices) if device.name == wanted}
            for op in self._matches(pattern):
                may[op] &= named or {at for at, device in enumerate(machine.devices) if device.kind == wanted}
        for members in [set().union(*map(self._matches, group)) for group in machine.together] + self.bound:
            joined = set().union(*(group for group in groups if group & members))
            groups = [*(group for group in groups if not group & members), joined]
        found = [(sorted(group), sorted(set.intersection(*(may[op] for op in group)))) for group in groups]
        if not all(devices for _, devices in found):
            raise Wrong("pins, times and groups leave no device")
        return found

    def _matches(self, pattern: str) -> set:
        found = {op for op, name in enumerate(self.names) if fnmatch.fnmatchcase(name, pattern)}
        if not found:
            raise Wrong(f"{pattern} matches nothing")
        return found

    def transfers(self, place: dict) -> list:
        """What has to be sent: `(tensor, from, to)`."""
        asked = {(t, place[op]) for t, ops in self.readers.items() for op in ops if not self.is_replicated(t)}
        return sorted((tensor, place[tensor[0]], to) for tensor, to in asked if to != place[tensor[0]])

    def judge(self, steps: list) -> Verdict:
        """Replay a schedule."""
        items = self._items(steps)
        place = {item: to for item, _, to in items if isinstance(item, int)}
        for members, devices in self.choices:
            if place[members[0]] not in devices or len({place[op] for op in members}) > 1:
                raise Wrong(f"{[self.names[op] for op in members]} are to be together on one of {devices}")
        if sorted(item for item in items if isinstance(item[0], tuple)) != self.transfers(place):
            raise Wrong("a transfer is missing, needless, or done twice")
        times = self._times(items, place)
        blocks, ends = self._blocks(items, times), [end for _, end in times]
        claims = []
        for at, (item, (start, end)) in enumerate(zip(items, times, strict=True)):
            last = [block for block in blocks if block.until[1] == at and not block.is_kept]
            frees = sorted({self.name(tensor) for block in last for _, tensor, _ in block.made})
            sent = {} if isinstance(item[0], int) else {"bytes": self.size[item[0]]}
            claims.append({"start_us": start, "end_us": end, "frees": frees, **sent})
        time = max(ends) if any(op.runtime for op in self.case.ops) or not self.case.recompute else float(len(items))
        return Verdict(self._peaks(blocks, place), max(ends), time, claims, blocks)

    def _items(self, steps: list) -> list:
        """The steps as `(op or tensor, from, to)`; all ops are there, each once, or again where that is allowed."""
        known = {(name,): op for op, name in enumerate(self.names)}
        known |= {self.name(tensor): tensor for tensor in self.size}
        items, seen = [], set()
        for step in steps:
            item = known.get((step["op"],) if "op" in step else step["tensor"])
            source, target = (step["device"], step["device"]) if "op" in step else (step["from"], step["to"])
            may_repeat = self.case.recompute and isinstance(item, int) and not self.case.ops[item].once
            is_known = item is not None and source in self.devices and target in self.devices
            if not is_known or (item in seen and "op" in step and not may_repeat):
                raise Wrong(f"{step} is unknown, or runs twice")
            seen.add(item)
            items.append((item, source, target))
        if not {*range(len(self.names))} <= seen:
            raise Wrong("an op never runs, or a resident has no home")
        return items

    def _times(self, items: list, place: dict) -> list:
        """When each step starts and ends, the steps being in the order of the list."""
        there, clock, links, done, times = {}, [0.0 for _ in self.devices], {}, set(), []
        for item, source, target in items:
            inputs = [item] if isinstance(item, tuple) else self.reads[item]
            arrivals = [there.get((tensor, source)) for tensor in inputs]
            if None in arrivals or done & {*self.readers.get((item, CONTROL), ())}:
                raise Wrong(f"{item} runs before an input is there, or after what waits for it")
            start = max([clock[target], *arrivals])
            if isinstance(item, tuple):
                if (source, target) not in self.machine.links:
                    raise Wrong("there is no link")
                latency, bandwidth = self.machine.links[source, target]
                if self.machine.beside and self.machine.contention:
                    start = max(start, links.get((source, target), 0.0))
                start = start if self.machine.beside else max(start, clock[source])
                end = start + latency + self.size[item] * (1e6 / bandwidth)
                there[item, target] = links[source, target] = end
                if not self.machine.beside:
                    clock[source] = clock[target] = end
            elif item >= self.own:
                start = end = 0.0
                away = self.readers[item, 0] if self.is_replicated((item, 0)) else ()
                there |= {((item, 0), device): 0.0 for device in {target, *(place[op] for op in away)}}
            else:
                done.add(item)
                clock[target] = end = start + self.duration(item, target)
                there |= {(tensor, target): end for tensor in self.size if tensor[0] == item}
            times.append((start, end))
        return times

    def _blocks(self, items: list, times: list) -> list:
        """The bytes that come and go. Of events at one time those of an earlier step come first."""
        held, blocks, last = {}, [], {item: at for at, (item, *_) in enumerate(items)}
        for at, (item, source, target) in enumerate(items):
            begin, end = (times[at][0], at, 0), (times[at][1], at, 1)
            op = self.case.ops[item] if isinstance(item, int) and item < self.own else None
            for tensor in self.reads[item] if isinstance(item, int) else [item]:
                if block := held.get((tensor, source)):
                    block.until = max(block.until, end)
            if op and op.workspace:
                blocks.append(Block(target, op.workspace, begin, end))
            made = [item] if isinstance(item, tuple) else [(item, port) for port in range(len(op.sizes) if op else 0)]
            for tensor in made:
                base, before = self.view.get(tensor) if op else None, 0
                if tensor[1] == CONTROL or (op and tensor in self.states):
                    continue
                if base is None:
                    held[tensor, target] = Block(target, self.size[tensor], begin, end)
                    blocks.append(held[tensor, target])
                elif (base, target) in held:  # else it is resident here
                    held[tensor, target] = held[base, target]
                    before = next(shift for _, known, shift in reversed(held[base, target].made) if known == base)
                    before += self.shift[tensor]
                if block := held.get((tensor, target)):
                    block.made.append((at, tensor, before))
                    block.until = max(block.until, end)
                    block.is_kept |= op is not None and op.final and last[item] == at
        return blocks

    def _peaks(self, blocks: list, place: dict) -> list:
        peaks = []
        for device in self.devices:
            held = sum(self.persistent[op] for op, where in place.items() if where == device)
            for home in [home for home in range(self.own, len(self.names)) if self.is_replicated((home, 0))]:
                held += self.persistent[home] * (device in {place[op] for op in self.readers[home, 0]} - {place[home]})
            here = [block for block in blocks if block.device == device]
            peaks.append(held + max((alive(here, block.since) for block in here), default=0))
        return peaks


def alive(blocks: list, event: tuple, unit: int = 1) -> int:
    """The bytes that live at an event, each block rounded up to a unit."""
    return sum(-(-block.size // unit) * unit for block in blocks if block.lives_at(event))


def check_addresses(world: World, verdict: Verdict, document: dict) -> None:
    """Refuse addresses that overlap, leave their arena, are not aligned, or claim a wrong bound."""
    unit, steps = document["alignment"], document["steps"]
    for device, arena in enumerate(document["arenas"]):
        here, placed = [block for block in verdict.blocks if block.device == device], []
        for block in here:
            offsets = {steps[at]["offsets"][world.name(tensor)] - shift for at, tensor, shift in block.made}
            offsets = offsets or {steps[block.since[1]]["workspace_offset"]}
            offset = min(offsets)
            if len(offsets) > 1 or offset % unit or not 0 <= offset <= arena["bytes"] - block.size:
                raise Wrong("a block is not aligned, not in its arena, or a view is not within what it views")
            placed.append((offset, block))
        for (one, first), (two, second) in combinations(placed, 2):
            meets = first.lives_at(second.since) or second.lives_at(first.since)
            if meets and first.size and second.size and one < two + second.size and two < one + first.size:
                raise Wrong("two blocks share bytes while both live")
        bound = max((alive(here, block.since, unit) for block in here), default=0)
        is_optimal = arena.get("status") == "optimal"
        if arena["bytes"] % unit or arena["bound"] != bound or is_optimal != (arena["bytes"] == bound):
            raise Wrong("an arena is no multiple of the alignment, or claims another bound or status")
