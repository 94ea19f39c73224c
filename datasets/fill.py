"""Contents of a data set folder: generated graphs, or given graphs and noisy copies of them (REGAL A.1.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from ..core.base.arrays import INT64_MAX, frozen
from ..core.base.errors import GraphError
from ..core.base.parallel import chunks, map_in_order
from ..core.files.costgraph import SUFFIXES, format_graph
from ..core.graph.graph import CostGraph
from ..core.problem.problem import Task
from .filters import Dedup, dedup_key, has_room, topology_hash
from .folder import PARTS, DatasetFolder, Ratio, names_of_copies, split_by_size
from .recipe import Recipe, generate

LOW, HIGH = 0.5, 1.5


def noisy_copy(graph: CostGraph, rng: np.random.Generator) -> CostGraph:
    """Multiply every tensor size and op runtime by its own sample of U(0.5, 1.5), rounded: first all sizes."""
    sizes = np.rint(graph.tensor_size * rng.uniform(LOW, HIGH, graph.num_tensors))
    runtime = np.rint(graph.runtime * rng.uniform(LOW, HIGH, graph.num_ops))
    others = int(graph.workspace.sum()) + int(graph.persistent.sum())
    if sizes.sum() + others >= INT64_MAX or runtime.sum() >= INT64_MAX:
        raise GraphError(f"{graph.name}: the costs of a noisy copy would exceed 2^63 - 1; scale the graph down")
    return replace(graph, tensor_size=frozen(sizes, np.int64), runtime=frozen(runtime, np.float64))


def encode_copy(graph: CostGraph, topology: str, number: int, seed: int, suffix: str) -> bytes:
    """Return one noisy copy as a file of this suffix; each has a random generator of its own."""
    stream = np.random.SeedSequence(seed, spawn_key=(int(topology[:8], 16), int(topology[8:], 16), number))
    return format_graph(noisy_copy(graph, np.random.default_rng(stream)), *SUFFIXES[suffix])


def _encode_copies(seed: int, suffix: str, copies: tuple[CostGraph, str, range]) -> list[tuple[str, int, bytes]]:
    graph, topology, numbers = copies
    return [(topology, number, encode_copy(graph, topology, number, seed, suffix)) for number in numbers]


def encoded_copies(
    graphs: Sequence[tuple[CostGraph, str]], copies: int, seed: int, suffix: str, jobs: int = 1
) -> Iterator[tuple[str, int, bytes]]:
    """Yield `(topology, number, bytes of the file)` of every copy, in order on any number of jobs."""
    items = (
        (graph, topology, range(part.start + 1, part.stop + 1))
        for graph, topology in graphs
        for part in chunks(copies, 25)
    )
    for encoded in map_in_order(partial(_encode_copies, seed, suffix), items, jobs):
        yield from encoded


@dataclass(frozen=True)
class Original:
    """A given graph and its topology hash."""

    graph: CostGraph
    topology: str


def count_graphs(ops: Sequence[int], parts: Sequence[str]) -> dict[str, Any]:
    """Describe graphs by their number, the least and the most ops, and the number in each part if split."""
    counts: dict[str, Any] = {"graphs": len(ops), "ops": {"least": min(ops), "most": max(ops)}}
    if any(parts):
        of_part = Counter(parts)
        counts["split"] = {part: of_part[part] for part in PARTS}
    return counts


def generated_names(recipe: Recipe, count: int) -> list[str]:
    """Return what the graphs of a data set are called, in their order."""
    return [recipe.file_name(index, count) for index in range(count)]


def write_generated(
    folder: DatasetFolder,
    recipe: Recipe,
    count: int,
    ratio: Ratio | None = None,
    jobs: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Generate graphs into a folder made for the `generated_names`, and return their counts."""
    graphs: list[tuple[int, str]] = []
    discarded = 0
    for drawn, name in zip(generate(recipe, count, jobs), folder.names, strict=True):
        folder.add(name, drawn.topology, drawn.data)
        graphs.append((drawn.ops, drawn.topology))
        discarded += drawn.attempt
        advance()
    parts = split_by_size(graphs, ratio, recipe.seed) if ratio else [""] * count
    for name, part in zip(folder.names, parts, strict=True):
        if part:
            folder.move(name, part)
    return {**count_graphs([ops for ops, _ in graphs], parts), "discarded": discarded}


def distinct_originals(graphs: Iterable[CostGraph], dedup: Dedup) -> tuple[list[Original], list[str]]:
    """Drop each graph whose key an earlier one has; return the others, and the names of the dropped."""
    seen: set[Hashable] = set()
    kept: list[Original] = []
    dropped: list[str] = []
    for graph in graphs:
        topology = topology_hash(graph)
        key = dedup_key(graph, dedup, topology)
        if key in seen:
            dropped.append(graph.name)
        else:
            seen.add(key)
            kept.append(Original(graph, topology))
    return kept, dropped


def improvable_originals(originals: Sequence[Original], task: Task, devices: int) -> tuple[list[Original], list[str]]:
    """Drop each graph without room for improvement; return the others, and the names of the dropped."""
    rooms = [(original, has_room(task, devices, original.graph)) for original in originals]
    return [original for original, room in rooms if room], [o.graph.name for o, room in rooms if not room]


def augmented_names(originals: Sequence[Original], copies: int) -> list[list[str]]:
    """Return per original what it and then its copies are called in a data set."""
    return names_of_copies([original.graph.name for original in originals], copies)


def write_augmented(
    folder: DatasetFolder,
    originals: Sequence[Original],
    copies: int,
    seed: int = 0,
    ratio: Ratio | None = None,
    jobs: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Write given graphs, and noisy copies of each into the same part, and return their counts (REGAL A.1.2)."""
    ops = [original.graph.num_ops for original in originals]
    sizes = [(number, original.topology) for number, original in zip(ops, originals, strict=True)]
    parts = split_by_size(sizes, ratio, seed) if ratio else [""] * len(originals)
    names = augmented_names(originals, copies)
    place = {o.topology: (own, part) for o, own, part in zip(originals, names, parts, strict=True)}
    own_files = ((o.topology, 0, format_graph(o.graph, *SUFFIXES[folder.suffix])) for o in originals)
    pairs = [(original.graph, original.topology) for original in originals]
    for topology, number, data in chain(own_files, encoded_copies(pairs, copies, seed, folder.suffix, jobs)):
        own, part = place[topology]
        folder.add(own[number], topology, data, part)
        advance()
    repeated = [part for part in parts for _ in range(copies + 1)]
    sources = [
        {"name": original.graph.name, "file": own[0], "topology": original.topology, "ops": original.graph.num_ops}
        | ({"part": part} if part else {})
        for original, own, part in zip(originals, names, parts, strict=True)
    ]
    return {**count_graphs([number for number in ops for _ in range(copies + 1)], repeated), "sources": sources}
