"""Random traces of allocations, run by the allocator's kernel and by its twin."""

import numpy as np
from naive.caching_allocator import MIB, CachingAllocator, OutOfMemoryError
from schedopt.core.model.allocators import Allocator

CHOICES = {
    "max_split_size_mb": (20, 32, 64),
    "large_segment_size_mb": (12, 20, 64),
    "expandable_segments": ("True",),
    "garbage_collection_threshold": (0.4, 0.8),
    "roundup_power2_divisions": (1, 4, 8, "[1:2,16:0,64:8,>:4]"),
    "max_non_split_rounding_mb": (20, 40),
}


def drawn(rng):
    """Return an allocator's options, and a trace: events, sizes, streams, capacity and where segments go."""
    words = [f"{name}:{rng.choice(values)}" for name, values in CHOICES.items() if rng.random() < 0.25]
    words = [word for word in words if "large_segment_size_mb:64" not in words or not word.startswith("max_")]
    count, streams = int(rng.integers(1, 60)), int(rng.integers(1, 3))
    scale = rng.choice([1e3, 2e5, 2e6, 2e7, 6e7], size=count)
    sizes = np.maximum((scale * rng.exponential(size=count)).astype(np.int64), 0)
    sizes[rng.random(count) < 0.2] = rng.choice([0, 1, 512, MIB, MIB + 1, 2 * MIB, 10 * MIB, 32 * MIB])
    events, alive = [], []
    for allocation in range(count):
        events.append(allocation)
        alive.append(allocation)
        while alive and rng.random() < 0.47:
            events.append(~alive.pop(int(rng.integers(len(alive)))))
    capacity = int(sizes.sum() * rng.uniform(0.2, 1.2)) if rng.random() < 0.5 else None
    return (
        Allocator.parse(f"cuda:{','.join(words)}"),
        np.array(events),
        sizes,
        rng.integers(streams, size=count),
        capacity,
        bool(rng.random() < 0.3),
    )


def check_twin(rng):
    """Compare a drawn trace; return its events, and whether it ended with OutOfMemoryError."""
    allocator, events, sizes, streams, capacity, is_downwards = drawn(rng)
    found = allocator.replay(events, sizes, streams, capacity=capacity, is_downwards=is_downwards)
    twin = CachingAllocator(allocator, int(streams.max()) + 1, capacity, is_downwards)
    blocks, addresses, reserved = {}, np.full(len(sizes), -1), []
    try:
        for event in events.tolist():
            if event >= 0:
                blocks[event] = twin.malloc(int(sizes[event]), int(streams[event]))
                addresses[event] = blocks[event].address
            else:
                twin.free(blocks[~event])
            reserved.append(twin.reserved)
    except OutOfMemoryError:
        pass
    done = len(reserved)
    assert found.done == done, str(allocator)
    assert found.addresses.tolist() == addresses.tolist(), str(allocator)
    assert found.reserved[:done].tolist() == reserved, str(allocator)
    assert (found.peak, found.retries) == (twin.peak, twin.retries), str(allocator)
    return len(events), done < len(events)


FRAMES = [
    {"name": "relu", "filename": "/venv/site-packages/torch/nn/functional.py", "line": 9},
    {"name": "attend", "filename": "/home/me/model.py", "line": 31},
    {"name": "forward", "filename": "/home/me/model.py", "line": 52},
]
AUTOGRAD = [{"name": "torch::autograd::Engine::evaluate_function", "filename": "??", "line": 0}]


def recorded(events, sizes, streams, *, first):
    """Run events by the twin, and return what PyTorch would have recorded from the event `first` on."""
    twin, blocks, trace, at = CachingAllocator(Allocator(), int(max(streams)) + 1), {}, [], []
    for event in events:
        known = {segment for pool in twin.pools for segment in pool.segments}
        if event >= 0:
            blocks[event] = block = twin.malloc(int(sizes[event]), int(streams[event]))
            for segment in [s for pool in twin.pools for s in pool.segments if s not in known]:
                trace.append({"action": "segment_alloc", "addr": block.address, "size": segment.blocks[-1].address})
                trace[-1]["size"] += segment.blocks[-1].size - block.address
        else:
            block = blocks[~event]
            twin.free(block)
            trace.append({"action": "free_requested", "addr": block.address, "size": int(sizes[~event])})
        where = {"stream": int(streams[max(event, ~event)]) * 7, "frames": AUTOGRAD if event % 2 else FRAMES}
        if event >= 0:
            trace.append({"action": "alloc", "addr": block.address, "size": int(sizes[event]), **where})
        else:
            trace.append({"action": "free_completed", "addr": block.address, "size": int(sizes[~event]), **where})
        at.append(len(trace))
    held = {id(blocks[event]): int(sizes[event]) for event in events if event >= 0 and ~event not in events}
    segments = []
    for pool in twin.pools:
        for segment in pool.segments:
            parts = [
                {
                    "address": b.address,
                    "size": b.size,
                    "requested_size": held.get(id(b), 0),
                    "state": "inactive" if b.is_free else "active_allocated",
                }
                for b in segment.blocks
            ]
            kind = {"device": 1, "stream": pool.number // 2 * 7, "segment_type": "small" if pool.is_small else "large"}
            size = sum(part["size"] for part in parts)
            segments.append({"address": parts[0]["address"], "total_size": size, "blocks": parts, **kind})
    return {"segments": segments, "device_traces": [[], trace[at[first - 1] if first else 0 :]]}


def small_snapshot():
    """Return what PyTorch would have recorded of four allocations."""
    return recorded([0, 1, ~0, 2, 3, ~1], [5 * MIB, 3 * MIB, 100, 7 * MIB], [0] * 4, first=0)
