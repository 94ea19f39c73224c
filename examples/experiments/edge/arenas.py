"""Arenas: of graphs, with the order chosen for them, and of buffers with lifetimes, beside omnimalloc alone.

usage: python examples/experiments/edge/arenas.py [--time-limit 10] [--align 64] GRAPHS... [BUFFERS.csv...]

For each graph (.pb.gz, .pbtxt, ...): the arena of the program order, and that of `solve(addresses=True)`, with the
bound of its order; a last line says how many meet it. For each CSV of buffers (.csv, .csv.gz): the arena of `pack`, and
that of omnimalloc's SuperMalloc by itself with the same time limit, as its users call it. All seconds are
wall time, without what compiles the kernels of `pack`.
Two hundred graphs with a limit of 10 seconds take a quarter of an hour.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import schedopt
from omnimalloc import Allocation, allocate
from omnimalloc.allocators.supermalloc import SupermallocAllocator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--align", type=int, default=64)
    given = parser.parse_args()
    tables = [path for path in given.files if path.name.endswith((".csv", ".csv.gz"))]
    graphs = [path for path in given.files if path not in tables]
    if graphs:
        report_graphs(graphs, given.time_limit, given.align)
    if tables:
        report_buffers(tables, given.time_limit)


def report_graphs(paths: list[Path], time_limit: float, align: int) -> None:
    print("| graph | ops | arena, program order | arena | its bound | above | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    met, longest = 0, 0.0
    for path in paths:
        graph = schedopt.read_graph(path)
        before = schedopt.solve(graph, "input", addresses=True, align=align, time_limit=1.0)
        start = time.perf_counter()
        result = schedopt.solve(graph, addresses=True, align=align, time_limit=time_limit)
        seconds = time.perf_counter() - start
        document = result.document()
        arena, bound = document["arenas"][0]["bytes"], document["arenas"][0]["bound"]
        met += arena == bound
        longest = max(longest, seconds)
        program = before.document()["arenas"][0]["bytes"]
        above = f"{100 * (arena / bound - 1):.3f}%" if arena > bound else "0"
        row = f"| {graph.name} | {graph.num_ops:,} | {program:,} | {arena:,} | {bound:,} | {above} | {seconds:.1f} |"
        print(row, flush=True)
    print(f"\n{met} of {len(paths)} graphs meet the bound of their order; the longest took {longest:.1f} s\n")


def report_buffers(paths: list[Path], time_limit: float) -> None:
    print("| buffers | number | alive at once | arena | seconds | omnimalloc | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for path in paths:
        packed = schedopt.pack(path, time_limit=time_limit)
        alone, longer = omnimalloc_alone(packed, time_limit)
        sizes = f"{packed.bound:,} | {packed.arena:,} | {packed.seconds:.1f} | {alone:,} | {longer:.1f} |"
        print(f"| {path.name.split('.csv')[0]} | {len(packed.offsets):,} | {sizes}", flush=True)


def omnimalloc_alone(packed: schedopt.PackedBuffers, time_limit: float) -> tuple[int, float]:
    """Return the arena that omnimalloc gives the same buffers by itself, bytes, and its seconds."""
    lifetimes = packed.buffers.lifetimes
    columns = (lifetimes.size.tolist(), lifetimes.lower.tolist(), lifetimes.upper.tolist())
    pieces = [
        Allocation(id=number, size=size, start=lower, end=upper)
        for number, (size, lower, upper) in enumerate(zip(*columns, strict=True))
        if size
    ]
    start = time.perf_counter()
    placed = allocate(pieces, allocator=SupermallocAllocator(timeout=time_limit))
    return max(piece.offset + piece.size for piece in placed), time.perf_counter() - start


if __name__ == "__main__":
    main()
