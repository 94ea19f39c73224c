"""PyTorch's caching allocator of CUDA memory (c10/cuda/CUDACachingAllocator.cpp), event by event.

A device hands out segments. A segment is a list of blocks, each allocated, free, or, of an expandable segment, without
pages. A request takes the smallest free block of its pool that is large enough, the lowest of equal ones, and splits it
where enough is left; a free block joins free neighbours. Each stream has two pools: for up to 1 MiB, and for more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..base.arrays import IndexArray, IntArray
from ..graph.graph import Buffers
from .jit import kernel

MIB = 1 << 20
LEAST, SMALL, SMALL_SEGMENT, LARGE_FROM, STEP = 512, MIB, 2 * MIB, 10 * MIB, 2 * MIB
MOST_RUNS, NO_END = 50, 1 << 62  # runs of a program, and the bytes of those that reserve more each time
REGION = 1 << 42  # bytes of addresses that an expandable segment can grow to

# Columns of `blocks`; links are rows, -1 for none. PLACE is where the list of free blocks has it.
ADDRESS, SIZE, BEFORE, AFTER, STATE, POOL, EXPANDABLE, AGE, PLACE = range(9)
COLUMNS = 9
FREE, ALLOCATED, UNMAPPED = range(3)
# Columns of `pools`: free blocks, first block of the expandable segment, and searches so far, by which blocks age.
COUNT, HEAD, SEARCHES = range(3)
# Places of `options`; sizes in bytes, -1 for none.
MAX_SPLIT, MOST_ROUNDING, LARGE_SEGMENT, IS_EXPANDABLE, CAPACITY, COLLECT_ABOVE, IS_DOWNWARDS = range(7)
# Places of `totals`; USED is the rows of `blocks` in use, SPARE those given back, which `spare` lists.
RESERVED, PEAK, RETRIES, SEGMENTS, FRONTIER, USED, SPARE = range(7)


class Memory(NamedTuple):
    """The memory of a device, as its allocator knows it."""

    options: IntArray
    given: IntArray  # addresses of new segments, in turn
    blocks: IntArray  # shape `(rows, columns)`
    pools: IntArray  # shape `(pools, 3)`; pool `2 s` of stream `s` is the small one, `2 s + 1` the large one
    free: IntArray  # per pool the rows of its free blocks, in no order
    spare: IntArray
    totals: IntArray

    @classmethod
    def blank(cls, allocations: int, placed: int, streams: int, options: IntArray, given: IntArray) -> Memory:
        """Return memory without a segment, with room for so many allocations and blocks that are there before."""
        rows = 4 * allocations + placed + 16  # an allocation adds at most a segment, and splits it
        pools = np.zeros((2 * streams, 3), np.int64)
        pools[:, HEAD] = -1
        totals = np.zeros(7, np.int64)
        totals[FRONTIER] = 1 << 46
        blocks = np.full((rows, COLUMNS), -1, np.int64)
        free, spare = np.zeros((2 * streams, rows), np.int64), np.zeros(rows, np.int64)
        return cls(options, given, blocks, pools, free, spare, totals)


@kernel
def _new(m: Memory) -> int:
    """Return a row of `blocks` that is not in use."""
    if m.totals[SPARE]:
        m.totals[SPARE] -= 1
        return int(m.spare[m.totals[SPARE]])
    m.totals[USED] += 1
    return int(m.totals[USED]) - 1


@kernel
def put(block: int, m: Memory) -> None:
    """Put a block among the free ones of its pool."""
    pool = m.blocks[block, POOL]
    m.blocks[block, STATE] = FREE
    m.blocks[block, AGE] = m.pools[pool, SEARCHES]
    m.blocks[block, PLACE] = m.pools[pool, COUNT]
    m.free[pool, m.pools[pool, COUNT]] = block
    m.pools[pool, COUNT] += 1


@kernel
def _take(block: int, m: Memory) -> None:
    """Take a block from the free ones of its pool."""
    pool, place = m.blocks[block, POOL], m.blocks[block, PLACE]
    m.pools[pool, COUNT] -= 1
    last = m.free[pool, m.pools[pool, COUNT]]
    m.free[pool, place] = last
    m.blocks[last, PLACE] = place


@kernel
def _split(block: int, size: int, m: Memory) -> int:
    """Cut a block after some bytes, and return the row of what is left."""
    rest = _new(m)
    after = m.blocks[block, AFTER]
    for column in range(COLUMNS):
        m.blocks[rest, column] = m.blocks[block, column]
    m.blocks[rest, ADDRESS] += size
    m.blocks[rest, SIZE] -= size
    m.blocks[block, SIZE] = size
    m.blocks[rest, BEFORE], m.blocks[block, AFTER] = block, rest
    if after >= 0:
        m.blocks[after, BEFORE] = rest
    return rest


@kernel
def _absorb(first: int, second: int, m: Memory) -> None:
    """Add a block to the one before it."""
    after = m.blocks[second, AFTER]
    m.blocks[first, SIZE] += m.blocks[second, SIZE]
    m.blocks[first, AFTER] = after
    if after >= 0:
        m.blocks[after, BEFORE] = first
    m.spare[m.totals[SPARE]] = second
    m.totals[SPARE] += 1


@kernel
def _join(block: int, m: Memory) -> None:
    """Free a block that is in no list: join the free blocks beside it, and list the whole."""
    before, after = m.blocks[block, BEFORE], m.blocks[block, AFTER]
    if after >= 0 and m.blocks[after, STATE] == FREE:
        _take(after, m)
        _absorb(block, after, m)
    if before >= 0 and m.blocks[before, STATE] == FREE:
        _take(before, m)
        _absorb(before, block, m)
        block = before
    put(block, m)


@kernel
def _is_before(size: int, address: int, block: int, m: Memory) -> bool:
    """Whether a size and an address come before those of a block."""
    return bool(size < m.blocks[block, SIZE] or (size == m.blocks[block, SIZE] and address < m.blocks[block, ADDRESS]))


@kernel
def _next_fit(size: int, address: int, pool: int, m: Memory) -> int:
    """Return the first free block, by size and then address, that comes after a size and an address; -1 if none."""
    best = -1
    for place in range(m.pools[pool, COUNT]):
        block = m.free[pool, place]
        if _is_before(size, address, block, m) and (
            best < 0 or _is_before(m.blocks[block, SIZE], m.blocks[block, ADDRESS], best, m)
        ):
            best = block
    return int(best)


@kernel
def _can_grow_to(block: int, m: Memory) -> int:
    """Return the bytes of a free block with the addresses without pages after it."""
    after = m.blocks[block, AFTER]
    more = m.blocks[after, SIZE] if after >= 0 and m.blocks[after, STATE] == UNMAPPED else 0
    return int(m.blocks[block, SIZE] + more)


@kernel
def _best_fit(size: int, pool: int, m: Memory) -> int:
    """Return the free block for a request; -1 if none."""
    m.pools[pool, SEARCHES] += 1
    best = _next_fit(size, -1, pool, m)
    if best >= 0 and m.blocks[best, EXPANDABLE]:
        while True:
            after = _next_fit(m.blocks[best, SIZE], m.blocks[best, ADDRESS], pool, m)
            if m.options[IS_EXPANDABLE]:
                if not m.blocks[best, EXPANDABLE] or after < 0 or _can_grow_to(after, m) >= _can_grow_to(best, m):
                    break
            elif not m.blocks[best, EXPANDABLE]:
                break
            best = after
            if best < 0:
                return -1
    most = m.options[MAX_SPLIT]
    if best >= 0 and most >= 0:
        has = m.blocks[best, SIZE]
        if (has >= most) if size < most else (has >= size + m.options[MOST_ROUNDING]):
            return -1
    return best


@kernel
def _reserve(size: int, m: Memory) -> None:
    """Count bytes that the device gave."""
    m.totals[RESERVED] += size
    m.totals[PEAK] = max(m.totals[PEAK], m.totals[RESERVED])


@kernel
def _add_segment(size: int, pool: int, m: Memory) -> int:
    """Return the one block of a new segment, at the address given for it, or else beside the segment before."""
    block = _new(m)
    if m.totals[SEGMENTS] < len(m.given):
        address = m.given[m.totals[SEGMENTS]]
    elif m.options[IS_DOWNWARDS]:
        m.totals[FRONTIER] -= size
        address = m.totals[FRONTIER]
    else:
        address = m.totals[FRONTIER]
        m.totals[FRONTIER] += size
    m.totals[SEGMENTS] += 1
    m.blocks[block] = -1
    m.blocks[block, ADDRESS], m.blocks[block, SIZE], m.blocks[block, POOL] = address, size, pool
    m.blocks[block, EXPANDABLE] = 0
    _reserve(size, m)
    return block


@kernel
def _map(block: int, size: int, m: Memory) -> int:
    """Give pages to the first bytes of an unmapped block, join free neighbours, and return the free block."""
    page = SMALL_SEGMENT if m.blocks[block, POOL] % 2 == 0 else m.options[LARGE_SEGMENT]
    size = min((size + page - 1) // page * page, m.blocks[block, SIZE])
    if size < m.blocks[block, SIZE]:
        _split(block, size, m)
    _reserve(size, m)
    before = m.blocks[block, BEFORE]
    _join(block, m)
    return int(before) if before >= 0 and m.blocks[before, STATE] == FREE else block


@kernel
def _expand(size: int, pool: int, m: Memory) -> int:
    """Return a block of at least `size` bytes in the expandable segment of a pool, which gets the pages it lacks."""
    if m.pools[pool, HEAD] < 0:
        head = _new(m)
        m.blocks[head] = -1
        m.blocks[head, ADDRESS], m.blocks[head, SIZE], m.blocks[head, POOL] = REGION * (pool + 1), REGION, pool
        m.blocks[head, STATE], m.blocks[head, EXPANDABLE] = UNMAPPED, 1
        m.pools[pool, HEAD] = head
    at = m.pools[pool, HEAD]
    while True:
        while m.blocks[at, STATE] != UNMAPPED:
            at = m.blocks[at, AFTER]
        before = m.blocks[at, BEFORE]
        first = before if before >= 0 and m.blocks[before, STATE] == FREE else at
        found, end = 0, first
        while end >= 0 and m.blocks[end, STATE] != ALLOCATED and found < size:
            found += m.blocks[end, SIZE]
            end = m.blocks[end, AFTER]
        if found >= size:
            break
        at = m.blocks[at, AFTER]
    if m.blocks[first, STATE] == UNMAPPED:
        first = _map(first, min(size, m.blocks[first, SIZE]), m)
    while m.blocks[first, SIZE] < size:
        after = m.blocks[first, AFTER]
        lacks = min(size - m.blocks[first, SIZE], m.blocks[after, SIZE])
        first = _map(after, lacks, m)
    _take(first, m)
    return int(first)


@kernel
def _provide(size: int, pool: int, m: Memory) -> int:
    """Return a new block of at least `size` bytes that is in no list; -1 where the device has not so many."""
    asked = m.options[LARGE_SEGMENT] if size < LARGE_FROM else (size + STEP - 1) // STEP * STEP
    if size <= SMALL:
        asked = SMALL_SEGMENT
    if m.options[CAPACITY] >= 0 and m.totals[RESERVED] + asked > m.options[CAPACITY]:
        return -1
    if m.options[IS_EXPANDABLE]:
        return _expand(size, pool, m)
    return _add_segment(asked, pool, m)


@kernel
def _release(block: int, m: Memory) -> int:
    """Give a free block that is a whole segment, or the whole pages of one, back to the device; return the bytes."""
    size = m.blocks[block, SIZE]
    if not m.blocks[block, EXPANDABLE]:
        if m.blocks[block, BEFORE] >= 0 or m.blocks[block, AFTER] >= 0:
            return 0
        _take(block, m)
        m.spare[m.totals[SPARE]] = block
        m.totals[SPARE] += 1
        m.totals[RESERVED] -= size
        return int(size)
    page = SMALL_SEGMENT if m.blocks[block, POOL] % 2 == 0 else m.options[LARGE_SEGMENT]
    start = m.blocks[block, ADDRESS] % REGION
    first = (start + page - 1) // page * page
    size = (start + size) // page * page - first
    if size <= 0:
        return 0
    _take(block, m)
    if first > start:
        rest = _split(block, first - start, m)
        put(block, m)
        block = rest
    if m.blocks[block, SIZE] > size:
        put(_split(block, size, m), m)
    m.blocks[block, STATE] = UNMAPPED
    after, before = m.blocks[block, AFTER], m.blocks[block, BEFORE]
    if after >= 0 and m.blocks[after, STATE] == UNMAPPED:
        _absorb(block, after, m)
    if before >= 0 and m.blocks[before, STATE] == UNMAPPED:
        _absorb(before, block, m)
    m.totals[RESERVED] -= size
    return int(size)


@kernel
def _release_all(m: Memory) -> None:
    """Give all that is free back to the device (`torch.cuda.empty_cache`)."""
    for pool in range(len(m.pools)):
        for place in range(m.pools[pool, COUNT] - 1, -1, -1):
            _release(m.free[pool, place], m)


@kernel
def _release_oversize(asked: int, pool: int, m: Memory) -> bool:
    """Give back segments that are never split, one large enough or else the largest; return whether that is enough."""
    most = m.options[MAX_SPLIT]
    if most < 0:
        return False
    wanted = max(asked, most)
    one = _next_fit(wanted, -1, pool, m)
    if one >= 0:
        _release(one, m)
        return True
    released = 0
    while released < wanted:
        largest = -1
        for place in range(m.pools[pool, COUNT]):
            block = m.free[pool, place]
            is_whole = m.blocks[block, BEFORE] < 0 and m.blocks[block, AFTER] < 0 and not m.blocks[block, EXPANDABLE]
            size, address = (most - 1, -1) if largest < 0 else (m.blocks[largest, SIZE], m.blocks[largest, ADDRESS])
            if is_whole and m.blocks[block, SIZE] >= most and _is_before(size, address, block, m):
                largest = block
        if largest < 0:
            return False
        released += _release(largest, m)
    return True


@kernel
def _collect(m: Memory) -> None:
    """Give whole segments of large pools back that are older than the mean, until the threshold is kept."""
    wanted = m.totals[RESERVED] - m.options[COLLECT_ABOVE]
    if m.options[COLLECT_ABOVE] < 0 or wanted <= 0:
        return
    age = count = 0
    for pool in range(1, len(m.pools), 2):
        for place in range(m.pools[pool, COUNT]):
            block = m.free[pool, place]
            if m.blocks[block, BEFORE] < 0 and m.blocks[block, AFTER] < 0:
                age += m.pools[pool, SEARCHES] - m.blocks[block, AGE]
                count += 1
    reclaimed, is_freed = 0, True
    while reclaimed < wanted and is_freed and count > 0:
        threshold = age / count
        is_freed = False
        for pool in range(1, len(m.pools), 2):
            for place in range(m.pools[pool, COUNT] - 1, -1, -1):
                block = m.free[pool, place]
                own = m.pools[pool, SEARCHES] - m.blocks[block, AGE]
                if own >= threshold and not m.blocks[block, EXPANDABLE]:
                    released = _release(block, m)
                    if released:
                        reclaimed += released
                        is_freed = True
                        age -= own
                        count -= 1


@kernel
def _allocate(size: int, pool: int, m: Memory) -> int:
    """Return the block that a request gets; -1 where it ends with OutOfMemoryError."""
    block = _best_fit(size, pool, m)
    if block >= 0:
        _take(block, m)
    else:
        _collect(m)
        block = _provide(size, pool, m)
        if block < 0 and _release_oversize(size, pool, m):
            block = _provide(size, pool, m)
        if block < 0:
            _release_all(m)
            m.totals[RETRIES] += 1
            block = _provide(size, pool, m)
        if block < 0:
            return -1
    m.blocks[block, STATE] = ALLOCATED
    left = m.blocks[block, SIZE] - size
    if pool % 2 == 0 or m.options[IS_EXPANDABLE]:
        is_split = left >= LEAST
    else:
        is_split = left > SMALL and (m.options[MAX_SPLIT] < 0 or size < m.options[MAX_SPLIT])
    if is_split:
        put(_split(block, size, m), m)
    return block


@kernel
def _apply(event: int, size: int, stream: int, held: IntArray, m: Memory) -> bool:
    """Run an allocation or a free; whether it did not end with OutOfMemoryError."""
    if event < 0:
        _join(held[~event], m)
        return True
    block = _allocate(size, 2 * stream + (size > SMALL), m)
    if block >= 0:
        held[event] = block
    return block >= 0


@kernel
def replay(
    events: IntArray, sizes: IntArray, streams: IntArray, held: IntArray, places: Any, reserved: IntArray, m: Memory
) -> int:
    """Run events, and return how many were done; fewer than there are, where one ended with OutOfMemoryError."""
    # An event is `a` where allocation `a`, of rounded `sizes[a]` on stream `streams[a]`, is asked for, `~a` where it is
    # freed, and `len(sizes)` where all that is free is given back to the device. `held` has the block of each
    # allocation, `places` gets its address and bytes, `reserved` the bytes after each event.
    for number in range(len(events)):
        event = events[number]
        if event == len(sizes):
            _release_all(m)
        else:
            allocation = max(event, ~event)
            if not _apply(event, sizes[allocation], streams[allocation], held, m):
                return number
            if event >= 0:
                block = held[event]
                places[event, 0], places[event, 1] = m.blocks[block, ADDRESS], m.blocks[block, SIZE]
        reserved[number] = m.totals[RESERVED]
    return len(events)


@kernel
def order_events(b: Buffers, order: IndexArray, uses: IndexArray, events: IntArray) -> int:
    """Write the events of a run of an order, and return how many there are."""
    # Allocation `i` is buffer `i`, allocation `len(b.size) + op` the workspace of an op. An op asks for what it makes
    # and then for its workspace, which is freed first after it; what is kept is freed after the last op.
    buffers, count = b.size.size, 0
    for buffer in range(buffers):
        uses[buffer] = b.user_ptr[buffer + 1] - b.user_ptr[buffer] + b.is_final[buffer]
    for op in order:
        for buffer in range(b.made_ptr[op], b.made_ptr[op + 1]):
            if b.size[buffer]:
                events[count] = buffer
                count += 1
        if b.workspace[op]:
            events[count], events[count + 1] = buffers + op, ~(buffers + op)
            count += 2
        for at in range(b.used_ptr[op], b.used_ptr[op + 1]):
            buffer = b.used[at]
            uses[buffer] -= 1
            if uses[buffer] == 0 and b.size[buffer]:
                events[count] = ~np.int64(buffer)
                count += 1
        for buffer in range(b.made_ptr[op], b.made_ptr[op + 1]):
            if uses[buffer] == 0 and b.user_ptr[buffer] == b.user_ptr[buffer + 1] and b.size[buffer]:
                events[count] = ~np.int64(buffer)
                count += 1
    for buffer in range(buffers):
        if b.is_final[buffer] and b.size[buffer]:
            events[count] = ~np.int64(buffer)
            count += 1
    return count


@kernel
def reserved_by(before: IntArray, run: IntArray, sizes: IntArray, held: IntArray, most: float, m: Memory) -> int:
    """Return the bytes reserved by some events, then runs of others, until one reserves no more; or from `most` on."""
    # All is on one stream, and memory is made empty first. A run takes up to three rows for each request.
    m.totals[:] = 0
    m.totals[FRONTIER] = 1 << 46
    m.pools[:] = 0
    m.pools[:, HEAD] = -1
    for event in before:
        _apply(event, sizes[max(event, ~event)], 0, held, m)
    before_run, runs = np.int64(-1), 0
    while before_run < m.totals[RESERVED]:  # what a run leaves free is the same after each that reserves no more
        runs += 1
        if runs > MOST_RUNS or len(m.blocks) - m.totals[USED] + m.totals[SPARE] < 3 * len(run) // 2:
            return NO_END
        before_run = m.totals[RESERVED]
        for event in run:
            _apply(event, sizes[max(event, ~event)], 0, held, m)
            if m.totals[RESERVED] >= most:
                return int(m.totals[RESERVED])
    return int(m.totals[RESERVED])
