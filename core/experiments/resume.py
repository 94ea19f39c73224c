"""Finished runs of a comparison on disk, so that it goes on where it stopped."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

from ..base.errors import FormatError, UsageError
from ..files.json_lines import JsonLines
from ..report.summaries import Cell
from ..search.settings import from_plain


class ResumeFile(JsonLines):
    """Finished cells on disk, so that a comparison goes on where it stopped.

    Failed runs are kept for the record and tried again.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, "a comparison", "name a new file to resume from")

    def find(self, key: str, graph: str, method: str) -> Cell | None:
        """Return the finished cell of a run, unless it failed, under the names that graph and method have now."""
        record = self.records.get(key)
        if record is None or record.get("status") == "failed":
            return None
        written = {**record, "graph": graph, "method": method}
        try:
            read = asdict(from_plain(Cell, written, "a line"))
            if any(isinstance(value, str) != isinstance(read[name], str) for name, value in written.items()):
                raise UsageError("a number is written as a text")
            if not all(0 <= value < math.inf for value in written.values() if isinstance(value, (int, float))):
                raise UsageError("a number is negative or not finite")
            return Cell(**written)
        except (TypeError, UsageError) as error:
            raise FormatError(
                f"{self.path}: a line lacks fields of a comparison, or has others ({error}); name a new file"
            ) from error

    def append(self, key: str, cell: Cell) -> None:
        """Write a finished cell through to the disk."""
        self.write(key, asdict(cell))
