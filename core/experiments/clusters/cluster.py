"""A cluster of Dask or Ray as a pool of workers, as `core/base/parallel.py` has processes."""

from __future__ import annotations

import importlib.util
import pickle
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, TypeVar
from weakref import ref

from ...base.errors import ClusterError, UsageError, WorkerDiedError, WorkerRefusedError
from ...graph.graph import CostGraph
from .content import graph_content, pack, unpack
from .worker import MOST_KEPT

Result = TypeVar("Result")

EXAMPLES = {"dask": ("tcp://HOST:8786",), "ray": ("auto", "ray://HOST:10001")}
AHEAD = 4
"""Tasks on their way per worker: so a worker has the next one when it ends one, wherever the cluster is."""
_MODULES = {"dask": "distributed", "ray": "ray"}
_CONNECT_SECONDS, _READY_SECONDS = 3.0, 120.0
_WORDS = {"dask": "Dask scheduler", "ray": "Ray cluster"}


class Cluster:
    """The workers of a cluster; use it as a context manager, which leaves the cluster at its end.

    It is a pool for `parallel.using`, too: `submit` begins a task, whose result is that of the future it returns, and
    `shutdown` gives up all that has not ended.

    Parameters
    ----------
    kind
        The engine: `"dask"` or `"ray"`.
    address
        Where it is: `tcp://HOST:8786`, `ray://HOST:10001`, or `auto` for the Ray cluster that this machine is part of.
    jobs
        How many tasks to give it at once; by default as many as all its workers do, and some more.

    Raises
    ------
    UsageError
        If the engine is not installed, or nothing is found at the address.
    WorkerRefusedError
        If a worker has another version of schedopt.
    """

    def __init__(self, kind: str, address: str, jobs: int | None = None) -> None:
        self._where = f"the {_WORDS[kind]} at {address}"
        self._jobs, self._workers = jobs, 0
        self._failure: ClusterError | None = None
        self._lock = threading.RLock()
        self._names: dict[int, tuple[ref[CostGraph], str]] = {}
        self._held: OrderedDict[str, int] = OrderedDict()
        self._held_size = 0
        self._waiting: deque[int] = deque()
        self._begun: set[int] = set()
        self._tasks: dict[int, tuple[Future[Any], bytes, dict[str, CostGraph]]] = {}
        self._last = 0
        _check(kind, address, self._where)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = _start(kind, address, self._errors)
        self._ready = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            self._await_ready(kind, address)
        except BaseException:
            self.close()
            raise

    def _await_ready(self, kind: str, address: str) -> None:
        end = time.monotonic() + _READY_SECONDS
        while not self._ready.wait(0.1):
            if time.monotonic() > end:
                raise UsageError(f"{self._where} does not answer; look whether another program is at that address")
        if isinstance(self._failure, WorkerRefusedError):
            raise self._failure
        if self._failure is not None:
            raise UsageError(str(self._failure))
        if not self._workers:
            raise UsageError(f"{self._where} has no workers; start some, such as: {_starts_worker(kind, address)}")

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(at_once=error is not None)

    def close(self, at_once: bool = True) -> None:
        """Leave the cluster, giving up all that has not ended; at once, or as the engine likes it, in two seconds."""
        self._ready.set()
        self.shutdown()
        if at_once:
            self._process.kill()
        try:
            if self._process.stdin:
                self._process.stdin.close()
        except OSError:  # it has ended already
            pass
        self._process.wait()
        self._errors.close()

    @property
    def size(self) -> int:
        """How many tasks are done at once."""
        return self._jobs or max(1, self._workers)

    @property
    def ahead(self) -> int:
        """How many tasks to have on their way."""
        return self._jobs or AHEAD * self.size

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Begin a task, and return the future of its result.

        Its error is the task's own; `WorkerDiedError` if its workers died time and again; or `ClusterError`.
        """
        graphs: dict[str, CostGraph] = {}
        packed = pack((function, arguments), partial(self._name, graphs))
        future: Future[Result] = Future()
        with self._lock:
            if self._failure is not None:
                future.set_exception(self._failure)
                return future
            self._last += 1
            self._tasks[self._last] = (future, packed, graphs)
            self._waiting.append(self._last)
            self._send_waiting()
        return future

    def shutdown(self, wait: bool = True, kill_workers: bool = False) -> None:
        """Give up the tasks that have not ended; the cluster stays."""
        with self._lock:
            numbers, self._begun = sorted(self._begun), set()
            self._waiting.clear()
            given_up = [future for future, *_ in self._tasks.values()]
            self._tasks.clear()
            if numbers:
                self._send("cancel", numbers)
        for future in given_up:
            future.cancel()

    def _name(self, graphs: dict[str, CostGraph], graph: CostGraph) -> str:
        """Return the hash of a graph's content, and note that a task needs it."""
        known = self._names.get(id(graph))
        if known is None or known[0]() is not graph:  # another one may have had its place before
            forget = partial(_forget, self._names, id(graph))
            known = self._names[id(graph)] = ref(graph, forget), graph_content(graph)[0]
        graphs[known[1]] = graph
        return known[1]

    def _send_waiting(self) -> None:
        while self._waiting and len(self._begun) < self.ahead:
            number = self._waiting.popleft()
            future, packed, graphs = self._tasks[number]
            if future.cancelled():
                del self._tasks[number]
                continue
            for name, graph in graphs.items():
                self._hold(name, graph)
            self._begun.add(number)
            self._send("start", number, packed, list(graphs))
            self._drop_oldest()

    def _hold(self, name: str, graph: CostGraph) -> None:
        """Let the cluster hold a graph."""
        if name not in self._held:
            content = graph_content(graph)[1]
            self._send("put", name, content)
            self._held[name] = len(content)
            self._held_size += len(content)
        self._held.move_to_end(name)

    def _drop_oldest(self) -> None:
        """Let the cluster hold the graphs that were used longest ago no longer."""
        while self._held_size > MOST_KEPT and len(self._held) > 1:
            oldest, size = self._held.popitem(last=False)
            self._held_size -= size
            self._send("drop", oldest)

    def _send(self, *message: Any) -> None:
        assert self._process.stdin
        try:
            pickle.dump(message, self._process.stdin, 5)
            self._process.stdin.flush()
        except (OSError, ValueError):  # it has ended, which the listener will see
            pass

    def _listen(self) -> None:
        """Take the other process's messages until it ends."""
        assert self._process.stdout
        while True:
            try:
                name, *rest = pickle.load(self._process.stdout)
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):
                break
            if name in ("ready", "workers"):
                self._workers = rest[0]
                self._ready.set()
            elif name in ("done", "raised"):
                self._end(name == "done", *rest)
            else:
                self._fail(self._said(name, *rest))
        self._fail(ClusterError(f"{self._where} is gone{self._last_words()}"))

    def _end(self, is_done: bool, number: int, result: Any) -> None:
        with self._lock:
            self._begun.discard(number)
            future, _, graphs = self._tasks.pop(number, (None, b"", {}))
            self._send_waiting()
        if future is None or not future.set_running_or_notify_cancel():
            return
        if is_done:
            future.set_result(unpack(result, graphs.__getitem__))
        elif isinstance(result, WorkerRefusedError):
            future.set_exception(result)
            self._fail(result)
        else:
            future.set_exception(WorkerDiedError(result) if isinstance(result, str) else result)

    def _fail(self, failure: ClusterError) -> None:
        """End all tasks with a failure, and all that come."""
        with self._lock:
            self._failure = self._failure or failure
            tasks, self._tasks = self._tasks, {}
            self._waiting.clear()
            self._begun.clear()
        for future, *_ in tasks.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(self._failure)
        self._ready.set()

    def _said(self, name: str, text: str = "") -> ClusterError:
        if name == "refused":
            return WorkerRefusedError(text)
        if name == "no workers":
            return ClusterError(f"{self._where} has had no workers for a minute")
        if name == "lost":
            return ClusterError(f"{self._where} is gone")
        return ClusterError(f"{self._where} is not reached: {text}")

    def _last_words(self) -> str:
        """Return the last line that the other process left, if it ended before it was ready."""
        if self._ready.is_set():
            return ""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f" ({lines[-1].strip()})" if lines else ""


def _forget(names: dict[int, Any], place: int, gone: ref[CostGraph]) -> None:
    if place in names and names[place][0] is gone:
        del names[place]


def _check(kind: str, address: str, where: str) -> None:
    """Raise UsageError if the engine is not there, the address is not understood, or nobody listens at it."""
    if importlib.util.find_spec(_MODULES[kind]) is None:
        raise UsageError(f"{kind} is not installed; pip install 'schedopt[{kind}]'")
    if kind == "ray" and address == "auto":
        return
    scheme = "ray" if kind == "ray" else "(?:tcp|tls|ws|wss)"
    match = re.fullmatch(rf"(?:{scheme}://)?(\[[^\]]+\]|[^/:\s]+):(\d+)", address)
    if not match or not 0 < int(match[2]) < 2**16:
        raise UsageError(f"the address '{address}' is not understood; write {' or '.join(EXAMPLES[kind])}")
    try:
        socket.create_connection((match[1].strip("[]"), int(match[2])), _CONNECT_SECONDS).close()
    except OSError as error:
        said = error.strerror or str(error)
        raise UsageError(
            f"{where} is not reached: {said}; start it by: {_STARTS[kind]}, or give another --address"
        ) from error


_STARTS = {"dask": "dask scheduler", "ray": "ray start --head"}


def _starts_worker(kind: str, address: str) -> str:
    return f"dask worker {address} --nthreads 1" if kind == "dask" else "ray start --address HOST:6379"


def _start(kind: str, address: str, errors: Any) -> subprocess.Popen[bytes]:
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__package__}.driver import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, kind, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )
