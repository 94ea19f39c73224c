"""Tasks on the nodes of a Ray cluster."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

from ....version import VERSION
from .dask_engine import FINDS_VERSION
from .worker import run_task

_CONNECT_ATTEMPTS = 3
_LOOK_SECONDS = 3
_VERSION_SECONDS = 60


class Engine:
    """A driver of a Ray cluster, see `driver.Engine`."""

    name = "Ray cluster"

    def __init__(self, address: str) -> None:
        import ray  # type: ignore[import-not-found, import-untyped]

        self._ray = ray
        for attempt in range(1, _CONNECT_ATTEMPTS + 1):
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
                break
            except ConnectionAbortedError:  # the head starts a server for each client, and some die as they start
                if attempt == _CONNECT_ATTEMPTS:
                    raise
        self._run = ray.remote(num_cpus=1, max_retries=3)(_run)
        self._contents: dict[str, Any] = {}
        self._tasks: dict[int, Any] = {}
        is_client = address.startswith("ray://")
        head = address.removeprefix("ray://") if is_client else ray.get_runtime_context().gcs_address
        self._head = head.rpartition(":")[0].strip("[]"), int(head.rpartition(":")[2])

    def workers(self) -> int:
        """See `driver.Engine`."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    def versions(self) -> dict[str, str]:
        """See `driver.Engine`; nodes are asked, since Ray starts workers when there are tasks."""
        from ray.util.scheduling_strategies import (  # type: ignore[import-not-found, import-untyped]
            NodeAffinitySchedulingStrategy,
        )

        asked = {}
        for node in self._ray.nodes():
            if node["Alive"] and node["Resources"].get("CPU"):
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                finds = self._ray.remote(num_cpus=0, scheduling_strategy=there)(lambda text: eval(text))
                asked[f"node {node['NodeManagerAddress']} ({node['NodeID'][:8]})"] = finds.remote(FINDS_VERSION)
        found = {}
        for node, version in asked.items():
            try:
                found[node] = str(self._ray.get(version, timeout=_VERSION_SECONDS))
            except self._ray.exceptions.RayTaskError:
                found[node] = ""
            except (self._ray.exceptions.TaskUnschedulableError, self._ray.exceptions.WorkerCrashedError):
                continue  # it died a moment ago, and is still said to be alive
        return found

    def put(self, name: str, content: bytes) -> None:
        """Hold a graph in the object store, from which each node takes it once."""
        self._contents[name] = self._ray.put(content)

    def drop(self, name: str) -> None:
        """See `driver.Engine`."""
        del self._contents[name]

    def start(self, number: int, packed: bytes, names: Sequence[str], on_end: Callable[[Any, Any], None]) -> None:
        """See `driver.Engine`."""
        task = self._run.remote(VERSION, packed, list(names), [self._contents[name] for name in names])
        self._tasks[number] = task

        def end(future: Any) -> None:
            self._tasks.pop(number, None)
            error = future.exception()
            on_end(None if error else future.result(), getattr(error, "cause", None) or error)

        task.future().add_done_callback(end)

    def cancel(self, numbers: Sequence[int]) -> None:
        """See `driver.Engine`."""
        for number in numbers:
            if (task := self._tasks.pop(number, None)) is not None:
                self._ray.cancel(task, force=True)

    def is_lost(self) -> bool:
        """See `driver.Engine`; Ray itself would wait for a minute, and then end this process."""
        try:
            socket.create_connection(self._head, _LOOK_SECONDS).close()
        except OSError:
            return True
        return False

    def close(self) -> None:
        """See `driver.Engine`."""
        self._ray.shutdown()


def _run(version: str, packed: bytes, names: Sequence[str], contents: Sequence[Any]) -> bytes:
    """Do a task; a graph is only fetched if this process does not have it."""
    import ray

    return run_task(version, packed, names, contents, ray.get)
