"""Work in this process, in others of this machine, or, `using` a cluster, on its workers: the results are the same."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2
_LOOK_SECONDS = 0.2
_STOP_SECONDS = 0.1
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_pool: Any = None  # workers of a cluster, with the methods of `experiments.clusters.Cluster`


@contextmanager
def using(pool: Any) -> Iterator[None]:
    """Let everything in this module be done by the workers of a pool, whatever the number of jobs."""
    global _pool
    before, _pool = _pool, pool
    try:
        yield
    finally:
        _pool = before


def is_here(jobs: int) -> bool:
    """Whether so many jobs are done in this process alone."""
    return jobs == 1 and _pool is None


def chunks(count: int, size: int) -> list[range]:
    """Cut `range(count)` into ranges of at most `size`."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def map_in_order(function: Callable[[Item], Result], items: Iterable[Item], jobs: int = 1) -> Iterator[Result]:
    """Yield `function(item)` for each item, in their order, as soon as it is there."""
    # At most `AHEAD` items per worker are done before their results are asked for. Workers take no notice of Ctrl-C,
    # which is for the process that started them and ends them.
    if is_here(jobs):
        yield from map(function, items)
        return
    pool = _new_pool(jobs)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= _ahead(jobs):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except KeyboardInterrupt:
        _kill(pool)  # what they have begun may take long, and nobody waits for it
        raise
    finally:
        for future in waiting:
            future.cancel()
        pool.shutdown()


def map_unordered(
    function: Callable[[Item], Result], items: Iterable[Item], jobs: int
) -> Generator[tuple[Item, Future[Result]], None, None]:
    """Yield each item with the future of `function(item)` once that has ended, well or not, in the order of ending."""
    # Not more are begun than keep the workers busy. If no more are wanted, those that are at work are ended.
    pool = _new_pool(jobs)
    ended: queue.SimpleQueue[tuple[Item, Future[Result]]] = queue.SimpleQueue()
    is_finished, begun = False, 0
    try:
        for item in items:
            if begun >= _ahead(jobs):
                yield ended.get()
                begun -= 1
            future = pool.submit(function, item)
            begun += 1
            future.add_done_callback(lambda done, item=item: ended.put((item, done)))
        for _ in range(begun):
            yield ended.get()
        is_finished = True
    finally:
        pool.shutdown() if is_finished else _kill(pool)


def call_in_worker(function: Callable[..., Result], *arguments: Any, must_stop: Callable[[], bool]) -> Result | None:
    """Call a function in a worker of the pool in use, and return its result; None once `must_stop` returns true."""
    future: Future[Result] = _pool.submit(function, *arguments)
    while not wait([future], _STOP_SECONDS).done:
        if must_stop():
            future.cancel()
            return None
    return future.result()


def call_aside(function: Callable[[], Result], between: Callable[[], bool]) -> Result | None:
    """Call a function of a library that looks at no signal, on a thread of its own, while this one stays awake.

    `between` is called again and again; once it is true, the function is left to end by itself, and None returned.
    """
    future: Future[Result] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    while not wait([future], _STOP_SECONDS).done:
        if between():
            return None
    return future.result()


def _ahead(jobs: int) -> int:
    return AHEAD * (jobs if _pool is None else int(_pool.ahead))


class Workers:
    """Processes that stay for many pieces of work; on its way out of `with`, work that has not begun is given up."""

    def __init__(self, jobs: int) -> None:
        self._pool = None if is_here(jobs) else _new_pool(jobs)
        self._waiting: set[Future[Any]] = set()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            for future in list(self._waiting):
                future.cancel()
            _kill(self._pool) if kind is KeyboardInterrupt else self._pool.shutdown()

    def start(self, function: Callable[..., Result], *arguments: Any) -> Callable[[], Result]:
        """Begin a piece of work; returns the function to call, once, for its result."""
        if self._pool is None:
            return partial(function, *arguments)
        future: Future[Result] = self._pool.submit(function, *arguments)
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future.result


def _kill(pool: Any) -> None:
    """End the workers of a pool, whatever they do; a thread of the pool that trips over their end does not say so."""
    hook, threading.excepthook = threading.excepthook, lambda died: None
    try:
        pool.shutdown(kill_workers=True)
    finally:
        threading.excepthook = hook


def _new_pool(jobs: int) -> Any:
    """Return the pool in use, or else one of processes of this machine, which ends when it is shut down."""
    if _pool is not None:
        return _pool
    from joblib.externals.loky import ProcessPoolExecutor

    return ProcessPoolExecutor(max_workers=jobs, initializer=begin_worker, initargs=(os.getpid(),), env=_ONE_THREAD)


def begin_worker(parent: int) -> None:
    """Leave Ctrl-C to the process that started this one, and end with it; it may have been killed already."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)


@cache
def end_with(parent: int) -> None:
    """End this process, with whatever it does, once another one has ended that had started it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
