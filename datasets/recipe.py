"""Recipes: many distinct graphs of a family, from seeds, through filters and without duplicates, on any workers."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from ..core.base.errors import UsageError
from ..core.base.parallel import chunks, map_in_order
from ..core.files.costgraph import SUFFIXES, format_graph
from ..core.graph.graph import CostGraph
from .filters import Dedup, dedup_key, topology_hash

TRIES = 100
DIGITS = 4  # of the number in a name, at least

Keep = Callable[[CostGraph, np.random.Generator], bool]


class Family(Protocol):
    """A family of random graphs: its parameters, and how to draw one."""

    @property
    def title(self) -> str:
        """The name of its graphs in a data set, before their number."""

    def draw(self, index: int, rng: np.random.Generator) -> CostGraph:
        """Draw the graph of this index in a data set."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the graphs of a data set but their number."""

    family: Family  # the family of graphs
    seed: int = 0  # seed of all, 0 by default; graph `index`, try `attempt` draws from a stream of its own
    keep: tuple[Keep, ...] = ()  # filters: a graph that one of them rejects is drawn again. By default there are none.
    # what makes two graphs duplicates: the topology, as by default, or the in-degree sequence
    dedup: Dedup = "topology"
    suffix: str = ".pb.gz"  # file format, a key of `SUFFIXES`; `.pb.gz` by default

    def file_name(self, index: int, count: int = 1) -> str:
        """Return the name of graph `index` of `count` in a data set, such as `layered-500-0001`."""
        return f"{self.family.title}-{index + 1:0{max(DIGITS, len(str(count)))}d}"


@dataclass(frozen=True)
class Drawn:
    """A generated graph as a file."""

    attempt: int  # how many draws were discarded before it
    # name of the graph, its topology hash, and what no other graph of the data set shares
    name: str
    topology: str
    key: Hashable
    # numbers of its ops and tensors; control tensors are not counted
    ops: int
    tensors: int
    data: bytes  # contents of the file


def draw_graph(recipe: Recipe, index: int, first_attempt: int = 0) -> Drawn | None:
    """Draw graph `index`, from this try on, until no filter rejects it; None after `TRIES` tries."""
    for attempt in range(first_attempt, TRIES):
        rng = np.random.default_rng(np.random.SeedSequence(recipe.seed, spawn_key=(index, attempt)))
        graph = recipe.family.draw(index, rng)
        if all(keep(graph, rng) for keep in recipe.keep):
            topology = topology_hash(graph)
            key, data = dedup_key(graph, recipe.dedup, topology), format_graph(graph, *SUFFIXES[recipe.suffix])
            return Drawn(attempt, graph.name, topology, key, graph.num_ops, graph.num_data_tensors, data)
    return None


def _draw_chunk(recipe: Recipe, indices: range) -> list[Drawn | None]:
    return [draw_graph(recipe, index) for index in indices]


def generate(recipe: Recipe, count: int, jobs: int = 1) -> Iterator[Drawn]:
    """Yield `count` graphs of distinct keys in order, the same on any number of jobs."""
    # A graph that repeats the key of an earlier one is drawn again.
    size = 1 if recipe.keep else max(1, min(50, count // (4 * jobs)))
    seen: set[Hashable] = set()
    for part, drawn_part in zip(
        chunks(count, size), map_in_order(partial(_draw_chunk, recipe), chunks(count, size), jobs), strict=True
    ):
        for index, first in zip(part, drawn_part, strict=True):
            drawn, repeated = first, 0
            while drawn is not None and drawn.key in seen:
                repeated += 1
                drawn = draw_graph(recipe, index, drawn.attempt + 1)
            if drawn is None:
                raise UsageError(_give_up(recipe, len(seen), repeated))
            seen.add(drawn.key)
            yield drawn


def _give_up(recipe: Recipe, found: int, repeated: int) -> str:
    what = "topologies" if recipe.dedup == "topology" else "in-degree sequences"
    rejected = f" and {TRIES - repeated} were filtered out" if repeated < TRIES else ""
    remedy = "filter less" if repeated < TRIES else "lower --count or raise --nodes"
    return (
        f"found {found} distinct {what}; of {TRIES} more draws {repeated} repeated one of them{rejected}: "
        f"{remedy}, or change the parameters of the generator"
    )
