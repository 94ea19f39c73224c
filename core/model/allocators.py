"""Models of allocators: what a device reserves for the allocations and frees of a program, and where they lie."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.arrays import IntArray
from ..base.errors import UsageError
from ..base.names import did_you_mean
from ..kernels import caching_allocator as kernel

MIB, KIB = kernel.MIB, 1 << 10
DEFAULT_SEGMENT = 20 * MIB
_INTERVALS = 16  # of `roundup_power2_divisions`: up to 1 MiB, up to 2 MiB, ..., from 32 GiB on
_LARGEST = 1 << 41
_CUBLAS = ":4096:2:16:8"  # PyTorch's default; on Hopper and Blackwell it is :4096:8
# Options that move no block
_IGNORED = re.compile("release_lock_on_.*|pinned_.*|graph_capture_.*|throw_on_.*|per_process_memory_fraction")


@dataclass(frozen=True)
class Segment:
    """A segment that is there before the first event."""

    address: int
    size: int
    pool: int  # twice its stream, and 1 more for requests above 1 MiB
    blocks: tuple[tuple[int, int, int], ...]  # address, bytes and allocation (-1 if free), without gaps


@dataclass(frozen=True, eq=False)
class Replay:
    """How a run of events ended."""

    done: int  # events; fewer than were given, where the next one ended with OutOfMemoryError
    addresses: IntArray  # of each allocation; -1 where it was not reached
    lengths: IntArray  # bytes of the block of each allocation, with those that were not cut off; -1 likewise
    reserved: IntArray  # bytes after each event
    peak: int  # highest bytes reserved
    retries: int  # times that all free blocks were given back and the request was tried again
    segments: int  # segments that the device gave


@dataclass(frozen=True)
class Allocator:
    """PyTorch's caching allocator of CUDA memory with its options, sizes in bytes, -1 for none."""

    max_split_size: int = -1
    max_non_split_rounding: int = DEFAULT_SEGMENT
    large_segment: int = DEFAULT_SEGMENT
    expandable_segments: bool = False
    garbage_collection_threshold: float = 0.0  # share of the capacity
    roundup_power2_divisions: tuple[int, ...] = (0,) * _INTERVALS
    cublas_workspace: int = 0  # asked for after the weights, and kept

    @classmethod
    def parse(cls, text: str) -> Allocator:
        """Read `cuda`, or `cuda:OPTION:VALUE,...` in the words of PYTORCH_CUDA_ALLOC_CONF."""
        name, _, options = text.partition(":")
        if name.strip() != "cuda":
            raise UsageError(f"unknown allocator '{text}'; it is cuda, or cuda:OPTION:VALUE,...")
        return cls.of_options(options)

    @classmethod
    def of_options(cls, text: str) -> Allocator:
        """Read options as PYTORCH_CUDA_ALLOC_CONF has them, as `expandable_segments:True`; see `parse`."""
        values: dict[str, Any] = {}
        rest = text.strip()
        while rest:
            found = re.match(r"\s*([\w.]+)\s*:\s*(\[[^\]]*\]|[^,\[\]]+)\s*(?:,|$)", rest)
            if not found:
                raise UsageError(f"allocator options '{rest}' are not read; write them as OPTION:VALUE,OPTION:VALUE")
            name, value = found[1], found[2].strip()
            rest = rest[found.end() :]
            if _IGNORED.fullmatch(name) or (name, value) == ("backend", "native"):
                continue
            if name == "backend":
                raise UsageError(f"allocator option backend is native, whose rules are known, not '{value}'")
            if name not in _READERS:
                raise UsageError(f"unknown allocator option '{name}'{did_you_mean(name, _READERS)}")
            attribute, read = _READERS[name]
            try:
                values[attribute] = read(value)
            except ValueError as error:
                raise UsageError(f"allocator option {name} {error}, not '{value}'") from None
        least = values.get("large_segment", DEFAULT_SEGMENT)
        for name in ("max_split_size_mb", "max_non_split_rounding_mb"):
            if values.get(_READERS[name][0], least) < least:
                raise UsageError(f"allocator option {name} is at least {least // MIB}, the MiB of a large segment")
        return cls(**values)

    def __str__(self) -> str:
        values = ((name, getattr(self, own), getattr(Allocator, own)) for name, (own, _) in _READERS.items())
        words = [f"{name}:{_written(name, value)}" for name, value, default in values if value != default]
        return ":".join(["cuda", *([",".join(words)] if words else [])])

    def rounded(self, sizes: IntArray) -> IntArray:
        """Return the bytes of the blocks of requests: whole multiples of 512, or of a part of a power of two."""
        sizes = np.maximum(np.asarray(sizes, np.int64), 1)
        plain = (sizes + kernel.LEAST - 1) // kernel.LEAST * kernel.LEAST
        if not any(self.roundup_power2_divisions):
            return plain
        logarithm = np.frexp(sizes.astype(np.float64))[1].astype(np.int64) - 1
        logarithm -= (np.int64(1) << logarithm) > sizes  # a size that became a power of two as a float
        parts = np.array(self.roundup_power2_divisions)[np.clip(logarithm - 20, 0, _INTERVALS - 1)]
        step = (np.int64(1) << logarithm) // np.maximum(parts, 1)
        is_whole = (sizes & (sizes - 1)) == 0
        up = np.where(step == 0, np.int64(2) << logarithm, -(-sizes // np.maximum(step, 1)) * step)
        divided = (parts > 1) & (sizes > kernel.LEAST * parts)
        return np.where(divided, np.where(is_whole, sizes, up), plain)

    def memory(
        self,
        count: int,
        placed: int = 0,
        streams: int = 1,
        *,
        capacity: int | None = None,
        given: Sequence[int] = (),
        is_downwards: bool = False,
    ) -> kernel.Memory:
        """Return empty memory with room for so many allocations and blocks placed before, as `replay` says of it."""
        limit = -1 if capacity is None else capacity
        threshold = self.garbage_collection_threshold
        above = int(threshold * limit) if threshold and capacity is not None else -1
        most, rounding = self.max_split_size, self.max_non_split_rounding
        options = (most, rounding, self.large_segment, self.expandable_segments, limit, above, is_downwards)
        return kernel.Memory.blank(count, placed, streams, np.array(options, np.int64), np.array(given, np.int64))

    def replay(
        self,
        events: IntArray,
        sizes: IntArray,
        streams: IntArray | None = None,
        *,
        capacity: int | None = None,
        start: Sequence[Segment] = (),
        given: Sequence[int] = (),
        is_downwards: bool = False,
    ) -> Replay:
        """Run allocations and frees."""
        # `events` has `a` where allocation `a` is asked for, `~a` where it is freed, after which it may be asked for
        # again, and the number of allocations where the cache is emptied (`torch.cuda.empty_cache`). `sizes` are bytes
        # as asked for, `streams` count from 0. Where a new segment exceeds the bytes of `capacity`, free segments are
        # given back and the request tried again; one of 1 to 10 MiB counts as a segment of 20 MiB, as in PyTorch.
        # `start` has the segments before the first event, `given` the addresses of new ones, in turn. After these they
        # lie side by side, with rising addresses or, with `is_downwards`, falling ones.
        count = len(sizes)
        streams = np.zeros(count, np.int64) if streams is None else np.asarray(streams, np.int64)
        rounded = self.rounded(sizes)
        if count and (rounded.max() > _LARGEST or rounded.sum(dtype=float) > 2**60):
            raise UsageError(f"an allocator gives at most {_LARGEST:,} bytes at once, and 2^60 in all")
        most_streams = 1 + int(max(streams.max(initial=0), *(segment.pool // 2 for segment in start), 0))
        placed = sum(len(segment.blocks) for segment in start)
        asked = max(count, int((np.asarray(events) >= 0).sum()))
        memory = self.memory(asked, placed, most_streams, capacity=capacity, given=given, is_downwards=is_downwards)
        held, places = np.full(count, -1, np.int64), np.full((count, 2), -1, np.int64)
        for segment in start:
            _lay_out(segment, memory, held, places)
        events, reserved = np.asarray(events, np.int64), np.zeros(len(events), np.int64)
        done = kernel.replay(events, rounded, streams, held, places, reserved, memory)
        peak, retries, segments = (int(memory.totals[at]) for at in (kernel.PEAK, kernel.RETRIES, kernel.SEGMENTS))
        return Replay(done, places[:, 0], places[:, 1], reserved, peak, retries, segments)


def _lay_out(segment: Segment, memory: kernel.Memory, held: IntArray, places: IntArray) -> None:
    """Put the blocks of a segment into memory."""
    first = row = int(memory.totals[kernel.USED])
    for row, (address, size, allocation) in enumerate(segment.blocks, first):
        before, after = row - 1 if row > first else -1, row + 1 if row + 1 - first < len(segment.blocks) else -1
        memory.blocks[row] = (address, size, before, after, kernel.ALLOCATED, segment.pool, 0, 0, 0)
        if allocation >= 0:
            held[allocation], places[allocation] = row, (address, size)
        else:
            kernel.put(row, memory)
    memory.totals[kernel.USED] = row + 1
    memory.totals[kernel.RESERVED] += segment.size
    memory.totals[kernel.PEAK] = memory.totals[kernel.RESERVED]


def _mebibytes(least: int, text: str) -> int:
    if not text.isdecimal() or len(text) > 19 or int(text) < least:
        raise ValueError(f"is a whole number of MiB from {least} on")
    return min(int(text), 1 << 20) * MIB


def _truth(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError("is True or False")
    return text == "True"


def _share(text: str) -> float:
    if not re.fullmatch(r"\d*\.\d+", text) or not 0 < float(text) < 1:
        raise ValueError("is a share above 0 and below 1")
    return float(text)


def _divisions(text: str) -> tuple[int, ...]:
    """Read one number, or a list such as `[256:1,512:2,>:8]`: up to 256 MiB 1, up to 512 MiB 2, above 8."""
    message = "is a power of two, or a list such as [256:1,512:2,>:8]"
    if not text.startswith("["):
        return (_power(text, message, 1),) * _INTERVALS
    parts, last = [0] * _INTERVALS, 0
    for place, entry in enumerate(text[1:-1].split(",")):
        size, colon, value = (word.strip() for word in entry.partition(":"))
        number = _power(value, message) if colon else _power("", message)
        if size == ">":
            parts[last:] = [number] * (_INTERVALS - last)
            continue
        last = min(_power(size, message, 1).bit_length() - 1, _INTERVALS - 1)
        if place == 0:
            parts[:last] = [number] * last
        parts[last] = number
    return tuple(parts)


def _workspace(text: str) -> int:
    """Read a workspace of cuBLAS as CUBLAS_WORKSPACE_CONFIG has it: `:KIB:COUNT`, also several times, or `default`."""
    text = _CUBLAS if text == "default" else text
    size = KIB * sum(int(size) * int(count) for size, count in re.findall(r":(\d{1,10}):(\d{1,10})", text))
    if not re.fullmatch(r"(:\d{1,10}:\d{1,10})+", text) or size > _LARGEST:
        raise ValueError(f"is default, or as in CUBLAS_WORKSPACE_CONFIG, such as {_CUBLAS}")
    return size


def _power(text: str, message: str, least: int = 0) -> int:
    if not text.isdecimal() or len(text) > 19 or int(text) & (int(text) - 1) or int(text) < least:
        raise ValueError(message)
    return int(text)


_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "max_split_size_mb": ("max_split_size", lambda text: _mebibytes(0, text)),
    "max_non_split_rounding_mb": ("max_non_split_rounding", lambda text: _mebibytes(0, text)),
    "large_segment_size_mb": ("large_segment", lambda text: _mebibytes(11, text)),
    "expandable_segments": ("expandable_segments", _truth),
    "garbage_collection_threshold": ("garbage_collection_threshold", _share),
    "roundup_power2_divisions": ("roundup_power2_divisions", _divisions),
    "cublas_workspace": ("cublas_workspace", _workspace),
}


def _written(name: str, value: object) -> str:
    """Return the value of an option as PYTORCH_CUDA_ALLOC_CONF has it."""
    if name == "cublas_workspace" and isinstance(value, int):
        return f":{value // KIB}:1"
    if isinstance(value, tuple):
        sizes = [f"{1 << place}:{parts}" for place, parts in enumerate(value)]
        return str(value[0]) if len(set(value)) == 1 else f"[{','.join(sizes)}]"
    if isinstance(value, float):
        return np.format_float_positional(value)
    return str(value // MIB) if isinstance(value, int) and not isinstance(value, bool) else str(value)
