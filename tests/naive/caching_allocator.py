"""PyTorch's caching allocator once more, with objects and sorted lists, as its C++ is told: a twin of the kernel."""

from dataclasses import dataclass, field

MIB = 1 << 20


class OutOfMemoryError(Exception):
    """The device has no more."""


@dataclass(eq=False)
class Block:
    """Bytes of a segment."""

    segment: "Segment"
    address: int
    size: int
    is_free: bool = True
    is_mapped: bool = True
    base: int = 0  # searches of its pool when it was freed

    @property
    def key(self):
        return self.size, self.address

    @property
    def place(self):
        return self.segment.blocks.index(self)

    def beside(self, step):
        at = self.place + step
        return self.segment.blocks[at] if 0 <= at < len(self.segment.blocks) else None


@dataclass(eq=False)
class Segment:
    """Addresses that blocks share without a gap."""

    pool: "Pool"
    is_expandable: bool = False
    blocks: list = field(default_factory=list)

    def merge(self):
        """Join neighbours that are free, and neighbours without pages."""
        joined = []
        for block in self.blocks:
            last = joined[-1] if joined else None
            if last and last.is_free and block.is_free and last.is_mapped == block.is_mapped:
                last.size += block.size
            else:
                joined.append(block)
        self.blocks[:] = joined

    def cut(self, block, size):
        rest = Block(self, block.address + size, block.size - size, block.is_free, block.is_mapped, block.base)
        block.size = size
        self.blocks.insert(block.place + 1, rest)


@dataclass(eq=False)
class Pool:
    """Segments of a stream for small requests, or for large ones."""

    number: int
    segments: list = field(default_factory=list)
    searches: int = 0

    @property
    def is_small(self):
        return self.number % 2 == 0

    def free(self):
        blocks = [b for segment in self.segments for b in segment.blocks if b.is_free and b.is_mapped]
        return sorted(blocks, key=lambda block: block.key)


class CachingAllocator:
    """The allocator of one device; `options` are those of `Allocator`."""

    def __init__(self, options, streams, capacity=None, is_downwards=False):
        self.options, self.capacity, self.is_downwards = options, capacity, is_downwards
        self.pools = [Pool(number) for number in range(2 * streams)]
        self.reserved = self.peak = self.retries = 0
        self.frontier = 1 << 46

    def rounded(self, size):
        size = max(size, 1)
        index = min(max(size.bit_length() - 1 - 20, 0), 15)
        parts = self.options.roundup_power2_divisions[index]
        if parts > 1 and size > 512 * parts:
            floor = 1 << (size.bit_length() - 1)
            if size == floor:
                return size
            step = floor // parts
            return 2 * floor if step == 0 else -(-size // step) * step
        return -(-size // 512) * 512

    def page(self, pool):
        return 2 * MIB if pool.is_small else self.options.large_segment

    def malloc(self, requested, stream):
        size = self.rounded(requested)
        pool = self.pools[2 * stream + (size > MIB)]
        pool.searches += 1
        block = self.find(pool, size)
        if block is None:
            self.collect()
            block = self.grow(pool, size)
            if block is None and self.release_oversize(pool, size):
                block = self.grow(pool, size)
            if block is None:
                for other in self.pools:
                    for free in other.free():
                        self.release(free)
                self.retries += 1
                block = self.grow(pool, size)
            if block is None:
                raise OutOfMemoryError
        left, most = block.size - size, self.options.max_split_size
        if (
            (left >= 512)
            if pool.is_small or self.options.expandable_segments
            else (left > MIB and (most < 0 or size < most))
        ):
            block.segment.cut(block, size)
        block.is_free = False
        return block

    def free(self, block):
        block.is_free = True
        segment, searches = block.segment, block.segment.pool.searches
        was = {id(b): b.base for b in segment.blocks}
        segment.merge()
        for other in segment.blocks:
            if other.is_free and other.address <= block.address < other.address + other.size:
                other.base = searches
            else:
                other.base = was[id(other)]

    def find(self, pool, size):
        able = [block for block in pool.free() if block.size >= size]
        if self.options.expandable_segments:
            at = 0
            while (
                at + 1 < len(able)
                and able[at].segment.is_expandable
                and self.reach(able[at + 1]) < self.reach(able[at])
            ):
                at += 1
            able = able[at:]
        else:
            while able and able[0].segment.is_expandable:
                del able[0]
        if not able:
            return None
        has, most = able[0].size, self.options.max_split_size
        if most >= 0 and size < most <= has:
            return None
        if most >= 0 and size >= most and has >= size + self.options.max_non_split_rounding:
            return None
        return able[0]

    def reach(self, block):
        after = block.beside(1)
        return block.size + (after.size if after and not after.is_mapped else 0)

    def grow(self, pool, size):
        if size <= MIB:
            wanted = 2 * MIB
        elif size < 10 * MIB:
            wanted = self.options.large_segment
        else:
            wanted = -(-size // (2 * MIB)) * 2 * MIB
        if self.capacity is not None and self.reserved + wanted > self.capacity:
            return None
        if self.options.expandable_segments:
            return self.expand(pool, size)
        segment = Segment(pool)
        if self.is_downwards:
            self.frontier -= wanted
        segment.blocks.append(Block(segment, self.frontier, wanted))
        if not self.is_downwards:
            self.frontier += wanted
        pool.segments.append(segment)
        self.count(wanted)
        return segment.blocks[0]

    def count(self, size):
        self.reserved += size
        self.peak = max(self.peak, self.reserved)

    def expand(self, pool, size):
        segment = next((s for s in pool.segments if s.is_expandable), None)
        if segment is None:
            segment = Segment(pool, True)
            segment.blocks.append(Block(segment, (pool.number + 1) << 42, 1 << 42, True, False))
            pool.segments.append(segment)
        for block in list(segment.blocks):
            if block.is_mapped:
                continue
            before = block.beside(-1)
            first = before if before and before.is_free else block
            run, at = 0, first.place
            while at < len(segment.blocks) and segment.blocks[at].is_free and run < size:
                run += segment.blocks[at].size
                at += 1
            if run >= size:
                break
        address = first.address
        have = 0
        while have < size:
            piece = next(b for b in segment.blocks if b.address == address + have)
            if not piece.is_mapped:
                page = self.page(pool)
                length = min(-(-min(size - have, piece.size) // page) * page, piece.size)
                if length < piece.size:
                    segment.cut(piece, length)
                piece.is_mapped = True
                piece.base = pool.searches
                self.count(length)
            have += piece.size
        segment.merge()
        return next(b for b in segment.blocks if b.address <= address < b.address + b.size)

    def release(self, block):
        segment = block.segment
        if not segment.is_expandable:
            if len(segment.blocks) > 1:
                return 0
            segment.pool.segments.remove(segment)
            self.reserved -= block.size
            return block.size
        page, start = self.page(segment.pool), block.address % (1 << 42)
        first, last = -(-start // page) * page, (start + block.size) // page * page
        if last <= first:
            return 0
        if first > start:
            segment.cut(block, first - start)
            block = block.beside(1)
        if block.size > last - first:
            segment.cut(block, last - first)
        block.is_mapped = False
        self.reserved -= last - first
        segment.merge()
        return last - first

    def release_oversize(self, pool, size):
        most = self.options.max_split_size
        if most < 0:
            return False
        wanted, free = max(size, most), pool.free()
        for block in free:
            if block.size >= wanted:
                self.release(block)
                return True
        released = 0
        for block in reversed(free):
            if released >= wanted:
                break
            if block.size >= most and not block.segment.is_expandable:
                released += self.release(block)
        return released >= wanted

    def collect(self):
        share = self.options.garbage_collection_threshold
        if not share or self.capacity is None:
            return
        wanted = self.reserved - int(share * self.capacity)
        while wanted > 0:
            whole = [b for p in self.pools if not p.is_small for b in p.free() if len(b.segment.blocks) == 1]
            whole = [b for b in whole if not b.segment.is_expandable]
            ages = [b.segment.pool.searches - b.base for b in whole]
            old = [b for b, age in zip(whole, ages, strict=True) if age >= sum(ages) / len(ages)]
            if not old:
                return
            wanted -= sum(map(self.release, old))


def reserved_by(plain, order, allocator, block=0, is_before=True, *, runs=2, is_downwards=False):
    """Bytes reserved by runs of an order of a `Plain` graph, persistent bytes first, with an opening block."""
    memory, blocks = CachingAllocator(allocator, 1, None, is_downwards), {}

    def give(key, size):
        if size:
            blocks[key] = memory.malloc(size, 0)

    def free(key):
        if key in blocks:
            memory.free(blocks.pop(key))

    for is_opening in (is_before, not is_before):
        if is_opening:
            give("opening", block)
            free("opening")
        else:
            for op, size in enumerate(plain.persistent):
                give(("weight", op), size)
            give("cuBLAS", allocator.cublas_workspace)
            give("cuBLASLt", MIB if allocator.cublas_workspace else 0)
    for _ in range(runs):
        executed = set()
        for op in order:
            alive = plain.alive(executed)
            for tensor in plain.outputs[op]:
                if tensor not in plain.alias:
                    give(tensor, plain.size[tensor])
            give("workspace", plain.workspace[op])
            free("workspace")
            executed.add(op)
            for tensor in (alive | set(plain.outputs[op])) - plain.alive(executed):
                free(tensor)
        for tensor in plain.alive(executed):
            free(tensor)
    return memory.reserved
