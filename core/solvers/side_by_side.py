"""Several searches of one problem at once, a thread each: what `auto` does with more than one worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from ..search.search import Search, Watcher

LOOK_SECONDS = 0.05
Course = Callable[[Search], None]  # A way to search: a method, or several in turn


def search_side_by_side(search: Search, courses: Sequence[tuple[Course, int]]) -> None:
    """Follow courses, each with the number of its seed, until time ends or what is found meets what is proven."""
    # Each has a search of its own, and what others find does not change it: one from the seed of the run, number 0,
    # finds what it would find alone in the same time, if as many cores are free as there are courses.
    ended, lock = threading.Event(), threading.Lock()
    search.steered_by_time()

    def collect(branch: Search) -> None:
        with lock:
            search.adopt(branch)
            if search.is_optimal:
                ended.set()

    def follow(course: Course, branch: Search) -> None:
        if search.initial is not None:
            branch.offer(search.initial, by="initial")
        course(branch)
        collect(branch)

    watcher = Watcher(ended, collect)
    branches = [search.branch(number, watcher) for _, number in courses]
    pairs = zip(courses, branches, strict=True)
    with ThreadPoolExecutor(len(courses)) as pool:
        try:
            followed = [pool.submit(follow, course, branch) for (course, _), branch in pairs]
            while wait(followed, LOOK_SECONDS).not_done:
                if search.exhausted() or any(future.done() and future.exception() for future in followed):
                    ended.set()
        finally:
            ended.set()
    for future in followed:
        future.result()
    search.exhausted()
