"""Map a function over items on several processes, with the results in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def chunks(count: int, size: int) -> list[range]:
    """Cut `range(count)` into ranges of at most `size`."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def map_in_order(function: Callable[[Item], Result], items: Iterable[Item], jobs: int = 1) -> Iterator[Result]:
    """Yield `function(item)` for each item, in their order, as soon as it is there.

    Parameters
    ----------
    function
        Called in another process when `jobs` is above 1, so it, or what it is a partial of, is importable.
    items
        Arguments.
    jobs
        Worker processes; 1 stays in this one.
    """
    if jobs == 1:
        yield from map(function, items)
        return
    from joblib import Parallel, delayed

    calls = (delayed(function)(item) for item in items)
    yield from Parallel(n_jobs=jobs, return_as="generator")(calls)
