"""Map a function over items on several processes, with the results in order."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def chunks(count: int, size: int) -> list[range]:
    """Cut `range(count)` into ranges of at most `size`."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def map_in_order(function: Callable[[Item], Result], items: Iterable[Item], jobs: int = 1) -> Iterator[Result]:
    """Yield `function(item)` for each item, in their order, as soon as it is there.

    At most `AHEAD` items per worker are done before their results are asked for, so results do not pile up. Workers
    take no notice of Ctrl-C, which is for the process that started them; if the results are no longer wanted, they end
    with the items that they have begun.

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
    from joblib.externals.loky import ProcessPoolExecutor

    with ProcessPoolExecutor(max_workers=jobs, initializer=_ignore_interrupts, env=_ONE_THREAD) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) == AHEAD * jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
