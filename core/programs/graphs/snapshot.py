"""Memory snapshots of PyTorch (`torch.cuda.memory._dump_snapshot`): allocations, their reservations, their holders."""

import pickle
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from io import BytesIO
from pathlib import PurePath
from typing import Any

import numpy as np

from ...addresses.packing import Lifetimes, Packing, pack_lifetimes
from ...base.arrays import BoolArray, IntArray
from ...base.errors import FormatError, UsageError
from ...base.speed import without_gc
from ...files.reading import read_bytes, shown
from ...graph.annotations import Annotations
from ...graph.builder import GraphBuilder
from ...graph.graph import CostGraph
from ...kernels.caching_allocator import SMALL_SEGMENT
from ...model.allocators import MIB, Allocator, Replay, Segment
from ...model.timeline import Timeline
from ...problem.problem import Problem
from ...report.memory_by_role import TENSOR_ROLES, Holder, Peak
from ...report.result import reference_timeline
from ..options import ImportOptions

OTHERS = ("", "expandable_segments:True", "max_split_size_mb:64", "max_split_size_mb:256")
BEFORE = "before the recording"
BACKWARD, UNKNOWN = "backward pass", "unknown"
_EMPTIED = -(1 << 62)
_DAMAGED = (ValueError, TypeError, LookupError, AttributeError, MemoryError, OverflowError, RecursionError)
_AGES = ((0.01, "in the last 1% of the events"), (0.1, "in the last 10%"), (1.0, "earlier in the recording"))


class _Unpickler(pickle.Unpickler):
    """Reads plain values; refuses whatever names a class or a function, so that nothing is run."""

    def find_class(self, module: str, name: str) -> Any:
        raise FormatError(f"it names {shown(f'{module}.{name}')}, which reading it would run")

    def persistent_load(self, pid: Any) -> Any:
        raise FormatError("it refers to objects outside of it")


def read_pickle(path: str) -> Any:
    """Return the plain values that a pickle holds, without running its code; `path` may be gzip."""
    data = read_bytes(path)
    try:
        with without_gc():
            return _Unpickler(BytesIO(data)).load()
    except FormatError as error:
        raise FormatError(f"{path}: a snapshot has plain values only, but {error}") from None
    except (EOFError, pickle.UnpicklingError) as error:
        raise FormatError(f"{path}: the pickle is truncated or damaged ({str(error)[:80]})") from None
    except _DAMAGED as error:
        raise FormatError(f"{path}: the pickle is damaged ({type(error).__name__})") from None


@dataclass(frozen=True)
class Refused:
    """A request that ended with OutOfMemoryError."""

    size: int  # bytes asked for
    left: int  # bytes that the device had left
    line: str  # the line of the user's code
    event: int  # events of the trace before it


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The allocations of one device that a snapshot recorded, in the order of its events."""

    path: str
    device: int
    allocator: Allocator
    events: IntArray  # `a`: allocation `a`; `~a`: its end; `allocations`: the cache is emptied
    sizes: IntArray  # bytes asked for, per allocation; those before the recording come last
    streams: IntArray
    recorded: IntArray  # address of each allocation
    lines: tuple[str, ...]  # line of the user's code that made it, such as `model.py:31`
    forwards: tuple[str, ...]  # the innermost `forward` of the user's code around it
    segments: tuple[Segment, ...]  # before the first event
    given: tuple[int, ...]  # addresses of new segments
    reserved: IntArray  # bytes after each event, as recorded
    refused: tuple[Refused, ...]

    @property
    def is_expandable(self) -> bool:
        """Whether its segments are expandable: their state before the recording is then not known."""
        return self.allocator.expandable_segments

    @property
    def is_old(self) -> BoolArray:
        """Whether each allocation was made before the recording."""
        made = np.ones(len(self.sizes), bool)
        made[self.events[(self.events >= 0) & (self.events < len(self.sizes))]] = False
        return made

    @cached_property
    def replay(self) -> Replay:
        """The response of the allocator's model to the same requests."""
        return self.replayed()

    @cached_property
    def live(self) -> IntArray:
        """Rounded bytes that are allocated: before the first event, and after each."""
        change = np.concatenate(([self.replay.lengths[self.is_old].sum()], np.zeros(len(self.events), np.int64)))
        kept = (self.events < len(self.sizes)).nonzero()[0]
        which = self.events[kept]
        change[kept + 1] = np.where(which >= 0, 1, -1) * self.replay.lengths[np.where(which >= 0, which, ~which)]
        return np.cumsum(change)

    @property
    def peak_event(self) -> int:
        """Events until most bytes are allocated."""
        return int(self.live.argmax())

    @property
    def reserved_then(self) -> int:
        """Bytes reserved when most are allocated."""
        return int(self.reserved[max(self.peak_event - 1, 0)]) if len(self.events) else int(self.live[0])

    def replayed(self, allocator: Allocator | None = None, capacity: int | None = None) -> Replay:
        """Run the same requests in a model of the allocator: from its segments, or by other options from none."""
        if allocator is None and not self.is_expandable:
            return self.allocator.replay(
                self.events, self.sizes, self.streams, capacity=capacity, start=self.segments, given=self.given
            )
        old = self.is_old.nonzero()[0]
        first = old[np.argsort(self.recorded[old], kind="stable")]
        events = np.concatenate((first, self.events))
        found = (allocator or self.allocator).replay(events, self.sizes, self.streams, capacity=capacity)
        return replace(found, done=max(found.done - len(first), 0), reserved=found.reserved[len(first) :])

    @cached_property
    def alive(self) -> tuple[IntArray, IntArray]:
        """Events before each allocation is made, and before it is freed."""
        made = np.where(self.is_old, 0, -1)
        freed = np.full(len(self.sizes), len(self.events) + 1)
        for event, which in enumerate(self.events.tolist()):
            if which < 0:
                freed[~which] = event + 1
            elif which < len(self.sizes):
                made[which] = event + 1
        return made, freed

    def packed(self, time_limit: float) -> Packing:
        """Give the allocations fixed addresses: the bytes of one arena in place of the allocator."""
        made, freed = self.alive
        return pack_lifetimes(
            Lifetimes.of(made, np.maximum(freed, made + 1), self.allocator.rounded(self.sizes), 512), time_limit
        )

    def holders(self) -> dict[str, dict[str, int]]:
        """Return the bytes allocated at the peak by line, by `forward` and by age, most first."""
        made, freed = self.alive
        event = self.peak_event
        counts: dict[str, Counter[str]] = {"line": Counter(), "forward": Counter(), "age": Counter()}
        for which in ((made <= event) & (event < freed)).nonzero()[0].tolist():
            size = int(self.replay.lengths[which])
            counts["line"][self.lines[which]] += size
            counts["forward"][self.forwards[which]] += size
            age = (event - int(made[which])) / max(len(self.events), 1)
            label = BEFORE if made[which] == 0 else next(name for most, name in _AGES if age <= most)
            counts["age"][label] += size
        return {name: dict(counter.most_common()) for name, counter in counts.items()}

    def document(self, time_limit: float = 3.0) -> dict[str, Any]:
        """Return the output of `schedopt show`, as plain values; addresses are searched for so many seconds."""
        packing = self.packed(time_limit)
        known = len(self.events) and not self.is_expandable
        return {
            "device": self.device,
            "allocations": len(self.sizes),
            "events": len(self.events),
            "allocator": str(self.allocator),
            "peak_allocated": int(self.live[self.peak_event]),
            "reserved_then": self.reserved_then,
            "peak_reserved": int(self.reserved.max(initial=0)),
            "addresses_modelled": int((self.replay.addresses == self.recorded).sum()) if known else None,
            "arena": packing.arena,
            "arena_bound": packing.bound,
            "reserved_by_options": {option: self.replayed(Allocator.of_options(option)).peak for option in OTHERS},
            "refused": [asdict(refused) for refused in self.refused],
            "holders": self.holders(),
        }

    def peak(self) -> Peak:
        """Return the moment with most bytes allocated; its holders are lines of the code."""
        at, memory = self.peak_event, int(self.live[self.peak_event])
        last = int(self.events[at - 1]) if at else -1
        line = self.lines[last] if 0 <= last < len(self.lines) else BEFORE
        holders = tuple(Holder(name, size, ()) for name, size in self.holders()["line"].items())
        return Peak(max(at, 1), 0, memory, line, 0, 0, holders)

    def timeline(self) -> Timeline:
        """Return the allocations as steps of their graph, with the bytes reserved after each."""
        made = np.sort(self.alive[0])
        before = self.reserved[0] if len(self.events) else 0
        reserved = np.concatenate(([before], self.reserved))[made]
        return replace(reference_timeline(Problem(self.graph())), reserved=reserved)

    def graph(self) -> CostGraph:
        """Return the allocations as a chain of ops: each makes its bytes, which the last op before their end reads."""
        order = np.argsort(self.alive[0], kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        made, freed = self.alive
        builder = GraphBuilder(PurePath(self.path).name.split(".")[0], self.path)
        last = np.searchsorted(made[order], freed, side="left") - 1  # the op after which each is freed
        reads: list[list[tuple[int, int]]] = [[] for _ in order]
        for which in order.tolist():
            if freed[which] <= len(self.events) and last[which] > place[which]:
                reads[last[which]].append((int(place[which]), 0))
        for at, which in enumerate(order.tolist()):
            builder.add_op(
                f"{self.lines[which]} #{at}",
                inputs=reads[at],
                control=[at - 1] if at else [],
                outputs=[int(self.replay.lengths[which])],
                final=bool(freed[which] > len(self.events)),
            )
        return builder.build(Annotations(lines=tuple(self.lines[which] for which in order.tolist())))


def by_line(peak: Peak, graph: CostGraph) -> Peak:
    """Return a schedule's peak with the holders of `Snapshot.peak`."""
    if not graph.annotations.lines:
        raise UsageError(f"{graph.name}: it has no lines of code, by which a snapshot and a schedule are compared")
    sizes = Counter({BEFORE: peak.persistent})
    for holder in peak.holders:
        line = holder.source.rpartition(", ")[2]
        sizes[BACKWARD if holder.role == TENSOR_ROLES["backward"] else line if ":" in line else UNKNOWN] += holder.size
    holders = tuple(Holder(name, size, ()) for name, size in sizes.most_common() if size)
    return replace(peak, persistent=0, holders=holders)


def read(model: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Import a snapshot as the graph of its allocations, in the order in which they were made."""
    snapshot = read_snapshot(model, note)
    note(f"{model}: an op is an allocation of device {snapshot.device}; their order is the one that was recorded")
    return snapshot.graph()


def read_snapshot(path: str, note: Callable[[str], None] = lambda text: None) -> Snapshot:
    """Read a snapshot of the device that has most events."""
    document = read_pickle(path)
    if not isinstance(document, dict):  # as `torch.cuda.memory_snapshot()` returns, without a recording
        raise FormatError(f"{path}: a {type(document).__name__}, not what torch.cuda.memory._dump_snapshot writes")
    try:
        segments, traces = document["segments"], document["device_traces"]
        settings = document.get("allocator_settings") or {}
        counts = [len(trace) for trace in traces]
        if not any(counts):
            raise FormatError(f"{path}: no allocation was recorded; call torch.cuda.memory._record_memory_history()")
        device = counts.index(max(counts))
        if sum(map(bool, counts)) > 1:
            note(f"{path}: device {device} of {len(traces)} is read, which has most events")
        own = [segment for segment in segments if segment.get("device", 0) == device]
        with without_gc():
            snapshot = _Reading(path, device, own, traces[device], settings).snapshot()
        assert snapshot.replay.done  # so that what no allocator can do is an error of the file, and no later one
        return snapshot
    except UsageError as error:
        raise FormatError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else shown(str(error))
        raise FormatError(f"{path}: not a memory snapshot of PyTorch: {what}") from error


class _Reading:
    """One device of a snapshot, from its events and the segments after the last of them."""

    def __init__(self, path: str, device: int, segments: list[Any], trace: list[Any], settings: dict[str, Any]) -> None:
        self.path, self.device, self.segments = path, device, segments
        words = str(settings.get("PYTORCH_CUDA_ALLOC_CONF") or settings.get("PYTORCH_ALLOC_CONF") or "")
        known = "expandable_segments:True," * any(segment.get("is_expandable") for segment in segments)
        self.allocator = Allocator.of_options(known + words)
        self.made: list[tuple[int, int, int, Any]] = []  # address, bytes, stream and frames of each allocation
        self.events: list[int] = []
        self.reserved: list[int] = []  # after each event, beyond what was reserved before the first
        self.given: list[int] = []
        # segments that were there before and are freed: address, size, stream
        self.gone: list[tuple[int, int, int]] = []
        self.refused: list[Refused] = []
        self.early: dict[int, int] = {}  # allocations before the recording, by address
        self._read(trace)

    def _read(self, trace: list[Any]) -> None:
        """Give the allocations numbers, in the order in which the trace names them."""
        live: dict[int, int] = {}
        ended: set[int] = set()
        own: set[int] = set()  # segments that the trace made
        change, is_emptying = 0, False
        for number, event in enumerate(trace):
            action = event["action"]
            address, size = (_whole(event.get(name, 0), name) for name in ("addr", "size"))
            if action in ("segment_free", "segment_unmap"):
                change -= size
                if action == "segment_free" and address not in own:
                    self.gone.append((address, size, event.get("stream", 0)))
                own.discard(address)
                if not is_emptying:
                    self.events.append(_EMPTIED)
                    self.reserved.append(0)
                self.reserved[-1], is_emptying = change, True
                continue
            is_emptying = False
            if action in ("segment_alloc", "segment_map"):
                self.given.append(address)
                own.add(address)
                change += size
            elif action == "alloc":
                if address in live:
                    raise ValueError(f"event {number} allocates address {address:#x}, which is allocated")
                ended.discard(address)
                live[address] = self._add(address, size, event)
                self._note(live[address], change)
            elif action == "free_completed":
                if address in ended:
                    raise ValueError(f"event {number} frees address {address:#x} a second time")
                ended.add(address)
                if address not in live:
                    live[address] = self.early[address] = self._add(address, size, {**event, "frames": None})
                self._note(~live.pop(address), change)
            elif action == "oom":
                left = _whole(event.get("device_free", address), "device_free")
                self.refused.append(Refused(size, left, _lines(event.get("frames"))[0], len(self.events)))
        self._add_held(live)

    def _note(self, event: int, change: int) -> None:
        self.events.append(event)
        self.reserved.append(change)

    def _add(self, address: int, size: int, event: Any) -> int:
        """Return the number of a new allocation."""
        self.made.append((address, size, event.get("stream", 0), event.get("frames")))
        return len(self.made) - 1

    def _add_held(self, live: dict[int, int]) -> None:
        """Add the allocations that are there before the first event and after the last."""
        for segment in self.segments:
            for address, block in _placed(segment):
                if block["state"].startswith("active") and address not in live:
                    size = _whole(block.get("requested_size", block["size"]), "requested_size")
                    self.early[address] = self._add(address, size, {**block, "stream": segment.get("stream", 0)})

    def snapshot(self) -> Snapshot:
        """Return the parsed snapshot."""
        count = len(self.made)
        addresses, sizes, streams, frames = zip(*self.made, strict=True) if self.made else ((), (), (), ())
        numbers = {stream: number for number, stream in enumerate(sorted(set(streams) | {0}))}
        lines = [_lines(found) if found else (BEFORE, "") for found in frames]
        events = np.array(self.events, np.int64)
        events[events == _EMPTIED] = count
        whole = sum(_whole(segment["total_size"], "total_size") for segment in self.segments)
        reserved = np.array(self.reserved, np.int64)
        reserved += whole - (self.reserved[-1] if self.reserved else 0)
        sized = np.array(sizes, np.int64)
        blocks = self.allocator.rounded(sized)
        return Snapshot(
            self.path,
            self.device,
            self.allocator,
            events,
            sized,
            np.array([numbers[stream] for stream in streams], np.int64),
            np.array(addresses, np.int64),
            tuple(line for line, _ in lines),
            tuple(forward for _, forward in lines),
            tuple(self._starts(blocks, numbers)),
            tuple(self.given),
            reserved,
            tuple(self.refused),
        )

    def _starts(self, blocks: IntArray, numbers: dict[int, int]) -> Iterator[Segment]:
        """Yield the segments before the first event, with the allocations that were in them."""
        own = set(self.given)
        there = [
            (segment["address"], segment["total_size"], segment.get("stream", 0), segment["segment_type"] == "large")
            for segment in self.segments
            if segment["address"] not in own
        ]
        there += [(*gone, gone[1] > SMALL_SEGMENT) for gone in self.gone]
        early, ends = sorted(self.early), {}
        for event, which in enumerate(self.events):
            if which != _EMPTIED and which < 0:
                ends[~which] = event
        starts = [(event, self.made[which][0]) for event, which in enumerate(self.events) if which >= 0]
        kept = {address: block["size"] for segment in self.segments for address, block in _placed(segment)}
        placed = 0
        for address, size, stream, is_large in there:
            inside = early[bisect_left(early, address) : bisect_left(early, address + size)]
            pieces, at = [], address
            for place, first in zip(inside, [*inside, address + size][1:], strict=True):
                which = self.early[place]
                length = int(blocks[which]) if which in ends else kept[place]
                if is_large and which in ends:
                    length += _uncut(place + length, first, ends[which], starts)
                if place < at or place + length > address + size:
                    raise ValueError(f"the allocation at address {place:#x} overlaps another one")
                pieces += [(at, place - at, -1)] * (place > at) + [(place, length, which)]
                at, placed = place + length, placed + 1
            pieces += [(at, address + size - at, -1)] * (at < address + size)
            yield Segment(address, size, 2 * numbers.get(stream, 0) + is_large, tuple(pieces))
        if placed < len(early) and not self.allocator.expandable_segments:
            raise ValueError(f"{len(early) - placed:,} allocations are freed or held that lie in no segment")


def _uncut(end: int, first: int, freed: int, starts: list[tuple[int, int]]) -> int:
    """Return the bytes that a large block kept beyond its request: at most 1 MiB is not cut off.

    The bytes up to the next block are all its own up to 1 MiB, for no free block is that small. Of more, it is
    the bytes before the first block that was put there while it was allocated.
    """
    if first - end <= MIB:
        return first - end
    near = (address - end for event, address in starts if event <= freed and end <= address <= end + MIB)
    return next(near, 0)


def _placed(segment: Any) -> Iterator[tuple[int, Any]]:
    """Yield the blocks of a segment with their addresses, which old versions of PyTorch leave out."""
    at = _whole(segment["address"], "address")
    for block in segment["blocks"]:
        at = _whole(block.get("address", at), "address")
        yield at, block
        at += _whole(block["size"], "size")


def _lines(frames: Any) -> tuple[str, str]:
    """Return the line of the user's code, and the line of the innermost `forward` of it."""
    line = ""
    for frame in frames or ():
        if name := _own_name(frame["filename"]):
            line = line or f"{name}:{frame['line']}"
            if frame["name"] == "forward":
                return line, f"{name}:{frame['line']}"
    if line:
        return line, ""
    if any("autograd" in str(frame["name"]) for frame in frames or ()):
        return BACKWARD, BACKWARD
    return UNKNOWN, ""


@cache  # few files are in millions of frames
def _own_name(filename: str) -> str:
    """Return the name of a file of the user's code; empty for one of a library."""
    is_library = "site-packages" in filename or "/torch/" in filename
    return PurePath(filename).name if filename.endswith(".py") and not is_library else ""


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{name} is {shown(value)}, not a number of bytes")
    return value
