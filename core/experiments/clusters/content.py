"""Values as bytes in which a graph is only named by a hash of its content, so that it can travel once by itself."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable
from typing import Any

from ...graph.graph import CostGraph

NameOf = Callable[[CostGraph], "str | None"]


def graph_content(graph: CostGraph) -> tuple[str, bytes]:
    """Return a hash of all that a graph is, its name and annotations included, and the bytes that it is made from."""
    content = pickle.dumps(graph, 5)
    return hashlib.sha256(content).hexdigest(), content


def pack(value: Any, name_of: NameOf) -> bytes:
    """Return a value as bytes; graphs for which `name_of` has a name are only named."""
    file = io.BytesIO()
    _Packer(file, name_of).dump(value)
    return file.getvalue()


def unpack(packed: bytes, graph_of: Callable[[str], CostGraph]) -> Any:
    """Return the value that was packed; `graph_of` gives the graphs that are named."""
    return _Unpacker(io.BytesIO(packed), graph_of).load()


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, name_of: NameOf) -> None:
        super().__init__(file, 5)
        self._name_of = name_of

    def persistent_id(self, value: Any) -> str | None:
        return self._name_of(value) if isinstance(value, CostGraph) else None


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, graph_of: Callable[[str], CostGraph]) -> None:
        super().__init__(file)
        self._graph_of = graph_of

    def persistent_load(self, name: str) -> CostGraph:
        return self._graph_of(name)
