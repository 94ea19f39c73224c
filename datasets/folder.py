"""A data set on disk: generated graphs, or given ones and noisy copies (REGAL A.1.2), and a dataset.json."""

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.base.arrays import INT64_MAX, frozen
from ..core.base.errors import FormatError, GraphError, UsageError
from ..core.base.parallel import map_in_order
from ..core.files.atomic import make_folder, write_atomically
from ..core.files.costgraph import SUFFIXES, format_graph
from ..core.graph.graph import CostGraph
from ..core.problem.problem import Task
from .filters import Dedup, dedup_key, has_room, topology_hash
from .recipe import Recipe, generate

PARTS = ("train", "valid", "test")
Ratio = tuple[int, int, int]


def parse_ratio(text: str) -> Ratio:
    """Parse `3-1-1` as the shares of train, valid and test; UsageError unless the first is above 0."""
    if not re.fullmatch(r"[1-9]\d{0,3}-\d{1,4}-\d{1,4}", text):
        raise UsageError(f"the split '{text}' is not understood; write train-valid-test like 3-1-1")
    train, valid, test = map(int, text.split("-"))
    return train, valid, test


def _shares_of_rest(count: int, ratio: Ratio) -> list[int]:
    """Share `count` out by largest remainder; between equal remainders the earlier set comes first."""
    exact = [count * share / sum(ratio) for share in ratio]
    shares = [int(value) for value in exact]
    by_remainder = sorted(range(3), key=lambda part: shares[part] - exact[part])
    for part in by_remainder[: count - sum(shares)]:
        shares[part] += 1
    return shares


def split_by_size(graphs: Sequence[tuple[int, str]], ratio: Ratio, seed: int) -> list[str]:
    """Assign each graph to `train`, `valid` or `test`."""
    # Groups of as many graphs as the ratio adds up to, sorted by number of ops, are each split at random.
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    order = sorted(range(len(graphs)), key=lambda i: graphs[i])
    parts = [""] * len(graphs)
    size = sum(ratio)
    for start in range(0, len(order), size):
        group = order[start : start + size]
        shares = list(ratio) if len(group) == size else _shares_of_rest(len(group), ratio)
        labels = [part for part, share in zip(PARTS, shares, strict=True) for _ in range(share)]
        for graph, place in zip(group, rng.permutation(len(group)).tolist(), strict=True):
            parts[graph] = labels[place]
    return parts


DESCRIPTION = "dataset.json"
# Says which files are of the data set while it is being written; then `dataset.json` does
UNFINISHED = "unfinished.json"

_COPY_DIGITS = 3
_LONGEST = 100  # letters of a name


class DatasetFolder:
    """Writes graphs, each file whole or not at all, and last of all `dataset.json`, so that the unfinished show."""

    def __init__(self, path: str | Path, suffix: str, names: Sequence[str], overwrite: bool = False) -> None:
        self.path = Path(path)
        self.suffix = suffix
        self.names = tuple(names)
        self._parts: dict[str, str] = {}
        self._topologies: dict[str, str] = {}
        if self.path.exists() and not self.path.is_dir():
            ends = f"a single graph's name must end in {', '.join(SUFFIXES)}"
            raise UsageError(f"{path}: is a file, not a folder; {ends}")
        old = self._old_files()
        described = (self.path / DESCRIPTION).exists()
        if (old or described) and not overwrite:
            what = "a data set" if described else "graphs of a data set that was not finished"
            raise UsageError(f"{path}: holds {what}; give --overwrite to replace it, or name another folder")
        wanted = {f"{name}{suffix}" for name in names}
        others = [file for file in self._files() if file.name in wanted and file not in old]
        if others:
            raise UsageError(f"{others[0]}: exists and belongs to no data set; name another folder, or move it")
        for file in {self.path / DESCRIPTION, *old} if described else old:
            file.unlink()
        make_folder(self.path)
        write_atomically(self.path / UNFINISHED, json.dumps({"files": sorted(wanted)}) + "\n")

    def _files(self) -> list[Path]:
        folders = [self.path, *(self.path / part for part in PARTS)]
        return [file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir())]

    def _old_files(self) -> set[Path]:
        """Return the files of the data set that is there, but for its description."""
        known = {UNFINISHED}
        for file in (self.path / DESCRIPTION, self.path / UNFINISHED):
            if file.is_file():
                known |= {str(name).rpartition("/")[2] for name in _described(file, "files")}  # without parts
        return {file for file in self._files() if file.name in known and not file.is_dir()}

    def _file(self, name: str) -> Path:
        return self.path / self._parts[name] / f"{name}{self.suffix}"

    def add(self, name: str, topology: str, data: bytes, part: str = "") -> None:
        """Write one graph's file, into a part (`train`, `valid`, `test`) or beside them."""
        self._parts[name], self._topologies[name] = part, topology
        if part:
            make_folder(self.path / part)
        write_atomically(self._file(name), data)

    def move(self, name: str, part: str) -> None:
        """Move a graph that is beside the parts into one."""
        make_folder(self.path / part)
        before = self._file(name)
        self._parts[name] = part
        before.replace(self._file(name))

    def finish(self, description: dict[str, Any]) -> dict[str, Any]:
        """Write `dataset.json`, which has the topology of each file, too; return its content."""
        files = {
            self._file(name).relative_to(self.path).as_posix(): self._topologies[name]
            for name in self.names
            if name in self._parts
        }
        whole = {**description, "files": files}
        write_atomically(self.path / DESCRIPTION, json.dumps(whole, indent=2, ensure_ascii=False) + "\n")
        (self.path / UNFINISHED).unlink(missing_ok=True)
        return whole


def _described(file: Path, name: str) -> Any:
    try:
        return json.loads(file.read_bytes())[name]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"{file}: is not the description of a data set ({error})") from error


def made_by(paths: Iterable[str | Path]) -> list[str]:
    """Return the commands that made those of some paths which are data set folders."""
    files = (Path(path) / DESCRIPTION for path in paths)
    return [str(_described(file, "command")) for file in files if file.is_file()]


def names_of_copies(originals: Sequence[str], copies: int) -> list[list[str]]:
    """Return per original a file name that is its own, then those of its copies: `unet`, `unet-copy-001`, ..."""
    taken: set[str] = set()
    plain = (re.sub(r"[^\w.+-]+", "-", name)[:_LONGEST].strip("-.") or "graph" for name in originals)
    owns = [_untaken(name, taken) for name in plain]
    digits, numbers = max(_COPY_DIGITS, len(str(copies))), range(1, copies + 1)
    return [[own, *(_untaken(f"{own}-copy-{number:0{digits}d}", taken) for number in numbers)] for own in owns]


def _untaken(name: str, taken: set[str]) -> str:
    """Return the name, with a number behind it if it is taken, and take it."""
    free, number = name, 1
    while free.casefold() in taken:
        number += 1
        free = f"{name}-{number}"
    taken.add(free.casefold())
    return free


LOW, HIGH = 0.5, 1.5


def noisy_copy(graph: CostGraph, rng: np.random.Generator) -> CostGraph:
    """Multiply every tensor size and op runtime by its own sample of U(0.5, 1.5), rounded: first all sizes."""
    sizes = np.rint(graph.tensor_size * rng.uniform(LOW, HIGH, graph.num_tensors))
    runtime = np.rint(graph.runtime * rng.uniform(LOW, HIGH, graph.num_ops))
    others = int(graph.workspace.sum()) + int(graph.persistent.sum())
    if sizes.sum() + others >= INT64_MAX or runtime.sum() >= INT64_MAX:
        raise GraphError(f"{graph.name}: the costs of a noisy copy would exceed 2^63 - 1; scale the graph down")
    return replace(graph, tensor_size=frozen(sizes, np.int64), runtime=frozen(runtime, np.float64))


def encode_copy(seed: int, suffix: str, copy: tuple[CostGraph, str, int]) -> bytes:
    """Return a noisy copy, of a graph with its topology and a number, as a file; each has its own random numbers."""
    graph, topology, number = copy
    stream = np.random.SeedSequence(seed, spawn_key=(int(topology[:8], 16), int(topology[8:], 16), number))
    return format_graph(noisy_copy(graph, np.random.default_rng(stream)), *SUFFIXES[suffix])


def encoded_copies(
    graphs: Sequence[tuple[CostGraph, str]], copies: int, seed: int, suffix: str, jobs: int = 1
) -> Iterator[tuple[str, int, bytes]]:
    """Yield `(topology, number, bytes of the file)` of every copy, in order on any number of jobs."""
    items = [(graph, topology, number) for graph, topology in graphs for number in range(1, copies + 1)]
    encoded = map_in_order(partial(encode_copy, seed, suffix), items, jobs)
    yield from ((topology, number, data) for (_, topology, number), data in zip(items, encoded, strict=True))


class Original(NamedTuple):
    """A given graph and its topology hash."""

    graph: CostGraph
    topology: str


def count_graphs(ops: Sequence[int], parts: Sequence[str]) -> dict[str, Any]:
    """Describe graphs by their number, the least and the most ops, and the number in each part if split."""
    counts: dict[str, Any] = {"graphs": len(ops), "ops": {"least": min(ops), "most": max(ops)}}
    if any(parts):
        counts["split"] = {part: Counter(parts)[part] for part in PARTS}
    return counts


def write_generated(
    folder: DatasetFolder,
    recipe: Recipe,
    count: int,
    ratio: Ratio | None = None,
    jobs: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Generate graphs into a folder made for their names by the recipe, and return their counts."""
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
    kept: dict[Hashable, Original] = {}
    dropped: list[str] = []
    for graph in graphs:
        original = Original(graph, topology_hash(graph))
        if kept.setdefault(dedup_key(graph, dedup, original.topology), original) is not original:
            dropped.append(graph.name)
    return list(kept.values()), dropped


def improvable_originals(originals: Sequence[Original], task: Task, devices: int) -> tuple[list[Original], list[str]]:
    """Drop each graph without room for improvement; return the others, and the names of the dropped."""
    rooms = [(original, has_room(task, devices, original.graph)) for original in originals]
    return [original for original, room in rooms if room], [o.graph.name for o, room in rooms if not room]


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
    names = names_of_copies([original.graph.name for original in originals], copies)
    place = {o.topology: (own, part) for o, own, part in zip(originals, names, parts, strict=True)}
    own_files = ((o.topology, 0, format_graph(o.graph, *SUFFIXES[folder.suffix])) for o in originals)
    for topology, number, data in chain(own_files, encoded_copies(originals, copies, seed, folder.suffix, jobs)):
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
