"""Finished runs of a comparison on disk, so that it goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .errors import FormatError
from .formats import format_graph
from .graph import CostGraph
from .statistics import Cell

_LINE_START = b'{"key": "'


def graph_hash(graph: CostGraph) -> str:
    """Return the SHA-256 of what a graph holds, but for its name.

    It is that of the graph as binary CostGraphDef, which has whole microseconds; other runtimes, which no
    file can hold, are added.
    """
    digest = hashlib.sha256(format_graph(graph, "binary"))
    if np.any(graph.runtime != np.round(graph.runtime)):
        digest.update(graph.runtime.tobytes())
    return digest.hexdigest()


class ResumeFile:
    """Finished cells on disk, one JSON line each, so that a comparison goes on where it stopped.

    A last line that a stop cut short is dropped. Failed runs are kept for the record and tried again.

    Parameters
    ----------
    path
        The file; made if it does not exist.

    Raises
    ------
    FormatError
        If the file is something else, or cannot be read or written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.records: dict[str, dict[str, Any]] = {}
        try:
            data = self.path.read_bytes() if self.path.exists() else b""
            whole = data.rfind(b"\n") + 1
            if not (data[whole:].startswith(_LINE_START) or _LINE_START.startswith(data[whole:])):
                self._refuse(data.count(b"\n") + 1)
            for number, line in enumerate(data[:whole].splitlines(), start=1):
                self._read(number, line)
            if whole < len(data):
                os.truncate(self.path, whole)
            self._file = self.path.open("ab")
        except OSError as error:
            raise FormatError(f"{path}: cannot be used to resume: {error.strerror or error}") from error

    def _read(self, number: int, line: bytes) -> None:
        try:
            record = json.loads(line)
            self.records[record.pop("key")] = record
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._refuse(number)

    def _refuse(self, number: int) -> None:
        raise FormatError(f"{self.path}: line {number} is not of a comparison; name a new file to resume from")

    def find(self, key: str, graph: str, method: str) -> Cell | None:
        """Return the finished cell of a run, unless it failed, under the names that graph and method have now."""
        record = self.records.get(key)
        if record is None or record.get("status") == "failed":
            return None
        try:
            return Cell(**{**record, "graph": graph, "method": method})
        except TypeError as error:
            raise FormatError(f"{self.path}: a line lacks fields of a comparison ({error}); name a new file") from error

    def append(self, key: str, cell: Cell) -> None:
        """Write a finished cell through to the disk."""
        try:
            self._file.write(json.dumps({"key": key, **asdict(cell)}).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise FormatError(f"{self.path}: cannot be written: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
