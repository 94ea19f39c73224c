"""Clusters of Dask and Ray as pools of workers, as `core/base/parallel.py` has processes."""

import importlib.util
import logging
import queue
import re
import socket
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ...version import VERSION
from ..base.errors import ClusterError, UsageError, WorkerDiedError, WorkerRefusedError
from ..base.options import spelled
from ..search.search import interrupted_by

Result = TypeVar("Result")

EXAMPLES = {"dask": ("tcp://HOST:8786",), "ray": ("auto", "ray://HOST:10001")}
_AHEAD = 4  # tasks on their way per worker, which so has the next one when it ends one, wherever the cluster is
_WORDS = {"dask": "Dask scheduler", "ray": "Ray cluster"}
_STARTS = {"dask": "dask scheduler", "ray": "ray start --head"}
_FINDS_VERSION = "__import__('schedopt.version', fromlist=['VERSION']).VERSION"
"""The expression by which a worker tells its version: a text, since one without schedopt has no function of it."""
_BEGINS_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
_CONNECT_SECONDS, _SILENT_SECONDS, _VERSION_SECONDS, _LOOK_SECONDS, _CLOSE_SECONDS = 3.0, 10.0, 60.0, 0.5, 2.0


class Cluster:
    """The workers of a cluster of `kind` as a pool for `parallel.using`, at most `jobs` tasks at once, until closed."""

    def __init__(self, kind: str, address: str, jobs: int | None = None) -> None:
        self._where, self._jobs = f"the {_WORDS[kind]} at {address}", jobs
        self._failure: ClusterError | None = None
        self._is_closed = False
        self._lock = threading.RLock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._begun: dict[Future[Any], Future[Any]] = {}
        self._ended: queue.SimpleQueue[tuple[Future[Any], Future[Any]]] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        _check(kind, address, self._where)
        try:
            self._engine = _Dask(address) if kind == "dask" else _Ray(address)
            versions, self._workers = self._engine.versions(), self._engine.workers()
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            said = " ".join(f"{error}".split()) or type(error).__name__
            raise UsageError(f"{self._where} is not reached: {said}") from error
        try:
            for who, version in sorted(versions.items()):
                _refuse_other(who, version, VERSION)
            if not self._workers:
                starts = f"dask worker {address} --nthreads 1" if kind == "dask" else "ray start --address HOST:6379"
                raise UsageError(f"{self._where} has no workers; start some, such as: {starts}")
        except BaseException:
            self.close()
            raise
        self._listener.start()

    def close(self) -> None:
        """Leave the cluster within two seconds, giving up all that has not ended."""
        self._is_closed = True
        leaving = threading.Thread(target=self._leave, daemon=True)
        leaving.start()
        leaving.join(_CLOSE_SECONDS)

    def _leave(self) -> None:
        self.shutdown()
        self._listener.join() if self._listener.is_alive() else None
        self._engine.close()

    @property
    def size(self) -> int:  # noqa: D102 - see `parallel.using`
        return self._jobs or max(1, self._workers)

    @property
    def ahead(self) -> int:  # noqa: D102
        return self._jobs or _AHEAD * self.size

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Begin a task; its error is its own, `WorkerDiedError` if workers died time and again, or `ClusterError`."""
        future: Future[Result] = Future()
        with self._lock:
            self._waiting.append((future, partial(function, *arguments)))
            self._start_waiting() if self._failure is None else self._fail(self._failure)
        return future

    def shutdown(self, wait: bool = True, kill_workers: bool = False) -> None:
        """Give up the tasks that have not ended; the cluster stays."""
        with self._lock:
            tasks, futures = list(self._begun.values()), self._clear()
        for future in futures:
            future.cancel()
        if tasks and self._is_reachable():
            self._engine.cancel(tasks)

    def _clear(self) -> list[Future[Any]]:
        with self._lock:
            futures = [*self._begun, *(future for future, _ in self._waiting)]
            self._begun.clear()
            self._waiting.clear()
        return futures

    def _start_waiting(self) -> None:
        try:
            while self._waiting and len(self._begun) < self.ahead:
                future, call = self._waiting[0]
                if not future.cancelled():
                    self._begun[future] = task = self._engine.start(call)
                    task.add_done_callback(lambda task, future=future: self._ended.put((future, task)))  # type: ignore[misc]
                self._waiting.popleft()
        except Exception:
            if self._is_reachable():
                raise

    def _listen(self) -> None:
        """Take finished tasks, and look whether the cluster is there, until it is left or gone."""
        looked = time.monotonic()
        while not self._is_closed and self._failure is None:
            with suppress(queue.Empty):
                self._end(*self._ended.get(timeout=_LOOK_SECONDS))
            if time.monotonic() - looked > _LOOK_SECONDS and self._is_reachable():
                looked = time.monotonic()
                with self._lock:
                    self._start_waiting()

    def _is_reachable(self) -> bool:
        """Count the workers; without a head to ask for them, all tasks fail."""
        try:
            self._workers = self._engine.workers()
        except Exception:  # engines have many of their own
            self._fail(ClusterError(f"{self._where} is gone"))
        return self._failure is None

    def _end(self, future: Future[Any], task: Future[Any]) -> None:
        error = CancelledError() if task.cancelled() else task.exception()
        if error is not None and not self._is_reachable():
            return
        with self._lock:
            is_wanted = self._begun.pop(future, None) is not None and future.set_running_or_notify_cancel()
            self._start_waiting()
        if is_wanted:
            future.set_result(task.result()) if error is None else future.set_exception(_own(error))

    def _fail(self, failure: ClusterError) -> None:
        """End all tasks with a failure, and all that come."""
        self._failure = failure
        for future in self._clear():
            if future.set_running_or_notify_cancel():
                future.set_exception(failure)


class _Dask:
    def __init__(self, address: str) -> None:
        from dask import config
        from distributed import Client

        config.set({"distributed.admin.large-graph-warning-threshold": "1TB"})
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._client = Client(address, timeout=_SILENT_SECONDS, set_as_default=False, name="schedopt")
        self.start = partial(self._client.get_executor(pure=False).submit, _run_in_dask, VERSION)

    def workers(self) -> int:
        if self._client.status != "running":
            raise ConnectionError
        return sum(self._client.nthreads().values())

    def versions(self) -> dict[str, str]:
        found = {f"worker {at}": said for at, said in self._client.run(eval, _FINDS_VERSION, on_error="return").items()}
        found["scheduler"] = ""
        with suppress(ImportError):
            found["scheduler"] = self._client.run_on_scheduler(eval, _FINDS_VERSION)
        return {who: said if isinstance(said, str) else "" for who, said in found.items()}

    def cancel(self, tasks: Iterable[Future[Any]]) -> None:
        for task in tasks:
            task.cancel()

    def close(self) -> None:
        self._client.close(timeout=_CLOSE_SECONDS)


class _GivenUp(threading.Event):
    """Whether nobody waits any more for the task that this worker of Dask does, which Dask itself cannot stop."""

    def __init__(self) -> None:
        from distributed import get_worker

        super().__init__()
        self._task = get_worker().state.tasks[get_worker().get_current_task()]

    def is_set(self) -> bool:
        return bool(self._task.state == "cancelled")


def _run_in_dask(version: str, call: Callable[[], Any]) -> Any:
    with interrupted_by(_GivenUp()):
        return _run(version, call)


class _Ray:
    def __init__(self, address: str) -> None:
        import ray

        self._ray = ray
        for attempt in range(3):
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
                break
            except ConnectionAbortedError:  # the head starts a server for each client, and some die as they start
                if attempt == 2:
                    raise
        for name in ("ray", "ray.util.client.logsclient"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        warnings.filterwarnings("ignore", module=r"ray\.")  # of connections that are lost
        run = ray.remote(num_cpus=1, max_retries=3)(_run)
        self.start: Callable[[Any], Future[Any]] = lambda call: run.remote(VERSION, call).future()
        head = ray.get_runtime_context().gcs_address if address == "auto" else address.removeprefix("ray://")
        self._head = head.rpartition(":")[0].strip("[]"), int(head.rpartition(":")[2])

    def workers(self) -> int:
        socket.create_connection(self._head, _CONNECT_SECONDS).close()  # Ray would wait for a lost head for a minute
        return int(self._ray.cluster_resources().get("CPU", 0))

    def versions(self) -> dict[str, str]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        asked, found = {}, {}
        for node in self._ray.nodes():
            if node["Alive"] and node["Resources"].get("CPU"):
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                finds = self._ray.remote(num_cpus=0, scheduling_strategy=there)(lambda text: eval(text))
                asked[f"node {node['NodeManagerAddress']} ({node['NodeID'][:8]})"] = finds.remote(_FINDS_VERSION)
        for node, version in asked.items():
            try:
                found[node] = str(self._ray.get(version, timeout=_VERSION_SECONDS))
            except self._ray.exceptions.RayTaskError:
                found[node] = ""
            except (self._ray.exceptions.TaskUnschedulableError, self._ray.exceptions.WorkerCrashedError):
                continue  # it died a moment ago, and is still said to be alive
        return found

    def cancel(self, tasks: Iterable[Any]) -> None:
        for task in tasks:
            self._ray.cancel(task.object_ref, force=True)

    def close(self) -> None:
        self._ray.shutdown()


def _run(version: str, call: Callable[[], Any]) -> Any:
    """Call a function in a worker, unless another version of schedopt asks."""
    _refuse_other(f"worker on {socket.gethostname()}", VERSION, version)
    return call()


def _refuse_other(who: str, found: str, wanted: str) -> None:
    """Raise WorkerRefusedError if a part of a cluster has another version, or none."""
    if found != wanted:
        has = f"has schedopt {found}" if found else "has no schedopt"
        raise WorkerRefusedError(f"the {who} {has}, and this is {wanted}: install the same version there, or stop it")


def _own(error: BaseException) -> BaseException:
    """Return the task's own error, or the reason why the engine has ended it."""
    error = getattr(error, "cause", None) or error  # Ray's
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == __name__.partition(".")[0]:
        return WorkerRefusedError(f"a worker that came later has no schedopt, and this is {VERSION}: stop it")
    if type(error).__module__.partition(".")[0] in ("distributed", "dask", "ray", "concurrent"):
        return WorkerDiedError(" ".join(f"{type(error).__name__}: {error}".split()))
    return error


def _check(kind: str, address: str, where: str) -> None:
    """Raise UsageError if the engine is not there, the address is not understood, or nobody answers at it."""
    if importlib.util.find_spec("distributed" if kind == "dask" else kind) is None:
        raise UsageError(f"{kind} is not installed; pip install 'schedopt[{kind}]'")
    if kind == "ray" and address == "auto":
        return
    scheme = "ray" if kind == "ray" else "(?:tcp|tls|ws|wss)"
    match = re.fullmatch(rf"(?:{scheme}://)?(\[[^\]]+\]|[^/:\s]+):(\d+)", address)
    if not match or not 0 < int(match[2]) < 2**16:
        raise UsageError(f"the address '{address}' is not understood; write {' or '.join(EXAMPLES[kind])}")
    try:
        with socket.create_connection((match[1].strip("[]"), int(match[2])), _CONNECT_SECONDS) as opened:
            if not address.startswith(("tls", "ws")):  # both greet, and without a greeting wait for ever
                opened.settimeout(_SILENT_SECONDS)
                opened.sendall(_BEGINS_HTTP2 if kind == "ray" else b"")
                opened.recv(1)
    except OSError as error:
        said = f"{error.strerror or error}; start it by: {_STARTS[kind]}, or give another {spelled('address')}"
        raise UsageError(f"{where} is not reached: {said}") from error
