"""What a worker of a cluster does: a task, with graphs that it keeps from one to the next."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from ....version import VERSION
from ...base.errors import WorkerRefusedError
from ...graph.graph import CostGraph
from .content import pack, unpack

MOST_KEPT = 2**28
"""Bytes of the contents of graphs that a worker keeps, and that a cluster holds for workers to come."""


class Kept:
    """The graphs that came last to this process, by the hash of their content, up to so many bytes in all."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self.most, self.size, self.fetched = most, 0, 0
        self._graphs: OrderedDict[str, tuple[CostGraph, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str, fetch: Callable[[], bytes]) -> CostGraph:
        """Return a graph, made of what `fetch` gives if it is not here."""
        with self._lock:
            if name not in self._graphs:
                content = fetch()
                self._graphs[name] = pickle.loads(content), len(content)
                self.size += len(content)
                self.fetched += 1
            self._graphs.move_to_end(name)
            graph = self._graphs[name][0]
            while self.size > self.most and len(self._graphs) > 1:
                self.size -= self._graphs.popitem(last=False)[1][1]
            return graph


_kept = Kept()


def run_task(
    version: str, packed: bytes, names: Sequence[str], contents: Sequence[Any], fetch: Callable[[Any], bytes] = bytes
) -> bytes:
    """Call a function in a worker, and return what it returns, packed.

    Parameters
    ----------
    version
        The version of schedopt that asks.
    packed
        The function and its arguments.
    names, contents
        The graphs among the arguments: the hash of each, and what `fetch` makes its bytes of.
    fetch
        Gives the bytes of a content; by default it is these.

    Raises
    ------
    WorkerRefusedError
        If this is another version.
    """
    if version != VERSION:
        raise WorkerRefusedError(other_version(f"worker {os.getpid()} on {socket.gethostname()}", VERSION, version))
    graphs = {
        name: _kept.get(name, lambda content=content: fetch(content))  # type: ignore[misc]
        for name, content in zip(names, contents, strict=True)
    }
    function, arguments = unpack(packed, graphs.__getitem__)
    known = {id(graph): name for name, graph in graphs.items()}
    return pack(function(*arguments), lambda graph: known.get(id(graph)))


def other_version(who: str, found: str, wanted: str) -> str:
    """Say why a part of a cluster is refused."""
    has = f"has schedopt {found}" if found else "has no schedopt"
    return f"the {who} {has}, and this is {wanted}: install the same version there, or stop it"
