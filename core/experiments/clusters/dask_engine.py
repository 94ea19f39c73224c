"""Tasks on the workers of a Dask scheduler."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any

from ....version import VERSION
from ...search.search import interrupted_by
from .worker import run_task

FINDS_VERSION = "__import__('schedopt.version', fromlist=['VERSION']).VERSION"
"""What a worker evaluates to say its version: a text, since one without schedopt could not import a function of it."""
_CONNECT_SECONDS = 5
_LOOK_SECONDS = 0.5


class Engine:
    """A client of a Dask scheduler, see `driver.Engine`."""

    name = "Dask scheduler"

    def __init__(self, address: str) -> None:
        from dask import config  # type: ignore[import-not-found, import-untyped]
        from distributed import Client  # type: ignore[import-not-found, import-untyped]

        config.set({"distributed.admin.large-graph-warning-threshold": "1TB"})
        self._client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False, name="schedopt")
        self._run = f"schedopt-{uuid.uuid4().hex}"
        self._contents: dict[str, Any] = {}
        self._tasks: dict[int, Any] = {}

    def workers(self) -> int:
        """See `driver.Engine`."""
        return sum(self._client.nthreads().values())

    def versions(self) -> dict[str, str]:
        """See `driver.Engine`."""
        found = self._client.run(eval, FINDS_VERSION, on_error="return")
        versions = {
            f"worker {worker}": version if isinstance(version, str) else "" for worker, version in found.items()
        }
        try:
            versions["scheduler"] = self._client.run_on_scheduler(eval, FINDS_VERSION)
        except ImportError:
            versions["scheduler"] = ""
        return versions

    def put(self, name: str, content: bytes) -> None:
        """Hold a graph as the result of a task, which a worker does again if it is lost with another one."""
        self._contents[name] = self._client.submit(bytes, content, key=f"schedopt-graph-{name}")

    def drop(self, name: str) -> None:
        """See `driver.Engine`."""
        del self._contents[name]

    def start(self, number: int, packed: bytes, names: Sequence[str], on_end: Callable[[Any, Any], None]) -> None:
        """See `driver.Engine`."""
        contents = [self._contents[name] for name in names]
        task = self._client.submit(_run, VERSION, packed, list(names), contents, key=(self._run, number))
        self._tasks[number] = task
        task.add_done_callback(lambda task: self._end(number, task, on_end))

    def _end(self, number: int, task: Any, on_end: Callable[[Any, Any], None]) -> None:
        self._tasks.pop(number, None)
        if task.status == "finished":
            try:
                on_end(task.result(), None)
            except (OSError, CancelledError) as error:  # the scheduler went in between
                on_end(None, error)
        else:
            on_end(None, task.exception() if task.status == "error" else CancelledError())

    def cancel(self, numbers: Sequence[int]) -> None:
        """See `driver.Engine`."""
        found = [self._tasks.pop(number, None) for number in numbers]
        self._client.cancel([task for task in found if task is not None], force=True)

    def is_lost(self) -> bool:
        """See `driver.Engine`."""
        return bool(self._client.status != "running")

    def close(self) -> None:
        """See `driver.Engine`."""
        self._client.close(timeout=2)


def _run(version: str, packed: bytes, names: Sequence[str], contents: Sequence[Any]) -> bytes:
    """Do a task; Dask cannot stop it, so its searches look whether somebody still waits for what they find."""
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks[worker.get_current_task()]
    given_up, ended = threading.Event(), threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            if task.state == "cancelled":
                given_up.set()

    threading.Thread(target=look, daemon=True).start()
    try:
        with interrupted_by(given_up):
            return run_task(version, packed, names, contents)
    finally:
        ended.set()
