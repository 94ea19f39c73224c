"""The process that drives a cluster's engine for a command, by messages on its standard input and output.

The engine has a process of its own because it may end the one that it runs in when its head is gone (Ray), prints to
standard error what is no sentence, and takes its time to leave; this one is ended at any moment without harm.
"""

from __future__ import annotations

import importlib
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ....version import VERSION
from ...base.errors import WorkerRefusedError
from .worker import other_version

ENGINES = {"dask": "dask_engine", "ray": "ray_engine"}
LOST, NO_WORKERS = "lost", "no workers"
_LOOK_SECONDS = 0.5
_COUNT_LOOKS = 10
_PATIENCE = 60.0


class Engine(Protocol):
    """What this process must know of an engine."""

    name: str

    def workers(self) -> int:
        """Return how many tasks the cluster does at once."""
        ...

    def versions(self) -> dict[str, str]:
        """Return the version of schedopt that each worker has, by what it is; empty if it has none."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Hold the content of a graph for tasks to come."""
        ...

    def drop(self, name: str) -> None:
        """Hold it no longer than tasks that have begun need it."""
        ...

    def start(self, number: int, packed: bytes, names: Sequence[str], on_end: Callable[[Any, Any], None]) -> None:
        """Begin a task that needs graphs of these names; `on_end` is called with its result or its error."""
        ...

    def cancel(self, numbers: Sequence[int]) -> None:
        """Give up tasks; what is on a worker already may go on there."""
        ...

    def is_lost(self) -> bool:
        """Whether the head of the cluster does not answer any more."""
        ...

    def close(self) -> None:
        """Leave the cluster."""
        ...


def main() -> None:
    """Connect to the cluster that the arguments name, then do what messages say until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    inbox, outbox = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0), os.dup2(2, 1)
    said: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_say, args=(said, outbox), daemon=True).start()
    kind, address = sys.argv[-2:]
    try:
        engine: Engine = importlib.import_module(f".{ENGINES[kind]}", __package__).Engine(address)
        _check_versions(engine)
        workers = engine.workers()
    except ImportError as error:
        said.put(("not installed", str(error)))
    except WorkerRefusedError as error:
        said.put(("refused", str(error)))
    except (OSError, RuntimeError, ValueError) as error:
        said.put(("failed", " ".join(f"{error}".split()) or type(error).__name__))
    else:
        said.put(("ready", workers))
        threading.Thread(target=_watch, args=(engine, said, workers), daemon=True).start()
        _do(engine, inbox, said)
        threading.Timer(2, os._exit, [0]).start()
        engine.close()
        os._exit(0)
    inbox.read()  # until the other side has read it


def _check_versions(engine: Engine) -> None:
    for who, version in sorted(engine.versions().items()):
        if version != VERSION:
            raise WorkerRefusedError(other_version(who, version, VERSION))


def _do(engine: Engine, inbox: Any, said: queue.SimpleQueue[Any]) -> None:
    """Do what messages say, each a name of a method below and its arguments."""

    def start(number: int, packed: bytes, names: Sequence[str]) -> None:
        def on_end(result: Any, error: Any) -> None:
            if error is not None and engine.is_lost():
                said.put((LOST,))
            elif error is None:
                said.put(("done", number, result))
            else:
                said.put(("raised", number, _sent(error)))

        engine.start(number, packed, names, on_end)

    actions: dict[str, Callable[..., None]] = {
        "start": start,
        "put": engine.put,
        "drop": engine.drop,
        "cancel": engine.cancel,
    }
    while True:
        try:
            name, *arguments = pickle.load(inbox)
        except EOFError:
            return
        actions[name](*arguments)


def _say(said: queue.SimpleQueue[Any], outbox: Any) -> None:
    while True:
        pickle.dump(said.get(), outbox, 5)
        outbox.flush()


def _watch(engine: Engine, said: queue.SimpleQueue[Any], workers: int) -> None:
    """Say when the number of workers changes, and when the cluster is gone, or all of its workers for long."""
    since = time.monotonic()
    look = 0
    while not engine.is_lost():
        time.sleep(_LOOK_SECONDS)
        look += 1
        if look % _COUNT_LOOKS == 0:
            before, workers = workers, engine.workers()
            if workers != before:
                said.put(("workers", workers))
        since = time.monotonic() if workers else since
        if time.monotonic() - since > _PATIENCE:
            said.put((NO_WORKERS,))
    said.put((LOST,))


def _sent(error: BaseException) -> BaseException | str:
    """Return an error as it can be sent: itself, or what it says."""
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == __name__.partition(".")[0]:
        return WorkerRefusedError(other_version("worker that came last", "", VERSION))
    text = " ".join(f"{type(error).__name__}: {error}".split())
    try:
        return error if type(pickle.loads(pickle.dumps(error))) is type(error) and _is_ours(error) else text
    except (pickle.PicklingError, TypeError, AttributeError):
        return text


def _is_ours(error: BaseException) -> bool:
    """Whether the process that asked knows the error's class: not one of the engine's."""
    return type(error).__module__.partition(".")[0] not in ("distributed", "dask", "ray")


if __name__ == "__main__":
    main()
