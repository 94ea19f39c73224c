"""Bytes that PyTorch's caching allocator reserves, by its model: program order, and `solve --allocator cuda`.

usage: python examples/experiments/real/reserved.py FOLDER_OR_GRAPH... [--seconds 20] [--least 100MiB] [--every 1]

A line per graph whose program order has at least so many live bytes, in MiB: ops, program order, the order found, its
opening block, the bound, and their ratio. Then the mean ratio, and the share of graphs within 2% and 10 MiB of it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import schedopt
from schedopt.core.base.units import parse_bytes
from schedopt.core.model.simulator import input_peak

MIB = 2**20


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--least", default="100MiB")
    parser.add_argument("--every", type=int, default=1, help="take every Nth graph alone")
    given = parser.parse_args()
    files = [file for place in given.places for file in (sorted(place.rglob("*.pb.gz")) if place.is_dir() else [place])]
    rows = []
    for file in files[:: given.every]:
        graph = schedopt.read_graph(file)
        if input_peak(graph) < parse_bytes(given.least, "--least"):
            continue
        result = schedopt.solve(graph, allocator="cuda", time_limit=given.seconds)
        reserved, before = result.reserved, result.reserved_otherwise["reserved in the input order"]
        is_near = reserved.peak <= 1.02 * reserved.bound + 10 * MIB
        rows.append((before / reserved.bound, reserved.peak / reserved.bound, is_near))
        sizes = [f"{size / MIB:,.0f}" for size in (before, reserved.peak, reserved.opening_block, reserved.bound)]
        print(f"{graph.name} {graph.num_ops:,} | {' | '.join(sizes)} | {rows[-1][1]:.3f}", flush=True)
    before, found, near = (sum(column) / len(rows) for column in zip(*rows, strict=True))
    print(f"{len(rows)} graphs: program order {before:.3f}, found {found:.3f} of the bound; {100 * near:.0f}% near it")


if __name__ == "__main__":
    main()
