"""Work on several processes: a function mapped over items with the results in order, or many small pieces."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import cache, partial
from types import TracebackType
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2
_LOOK_SECONDS = 1.0
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def chunks(count: int, size: int) -> list[range]:
    """Cut `range(count)` into ranges of at most `size`."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def map_in_order(function: Callable[[Item], Result], items: Iterable[Item], jobs: int = 1) -> Iterator[Result]:
    """Yield `function(item)` for each item, in their order, as soon as it is there.

    At most `AHEAD` items per worker are done before their results are asked for, so results do not pile up. Workers
    take no notice of Ctrl-C, which is for the process that started them and ends them; if the results are no longer
    wanted, they end with the items that they have begun.

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
    with _new_pool(jobs) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) == AHEAD * jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except KeyboardInterrupt:
            pool.shutdown(kill_workers=True)  # what they have begun may take long, and nobody waits for it
            raise
        finally:
            for future in waiting:
                future.cancel()


class Workers:
    """Processes that stay for many pieces of work, as `map_in_order` has them for one map.

    Use it as a context manager: on its way out, work that has not begun is given up.

    Parameters
    ----------
    jobs
        Their number; with 1 there are none, and work is done when its result is asked for.
    """

    def __init__(self, jobs: int) -> None:
        self._pool = _new_pool(jobs) if jobs > 1 else None
        self._waiting: set[Future[Any]] = set()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            for future in list(self._waiting):
                future.cancel()
            self._pool.shutdown(kill_workers=kind is KeyboardInterrupt)

    def start(self, function: Callable[..., Result], *arguments: Any) -> Callable[[], Result]:
        """Begin a piece of work; returns what to call, once, for its result."""
        if self._pool is None:
            return partial(function, *arguments)
        future: Future[Result] = self._pool.submit(function, *arguments)
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future.result


def _new_pool(jobs: int) -> Any:
    from joblib.externals.loky import ProcessPoolExecutor

    return ProcessPoolExecutor(max_workers=jobs, initializer=begin_worker, initargs=(os.getpid(),), env=_ONE_THREAD)


def begin_worker(parent: int) -> None:
    """Leave Ctrl-C to the process that started this one, whose number is given, and end with it, even if it is killed.

    By the time that a worker begins its parent may have been killed already, so it cannot be asked who that is.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)


@cache
def end_with(parent: int) -> None:
    """End this process, with whatever it does, once another one has ended that had started it."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)
