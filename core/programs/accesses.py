"""Dependencies between ops that share memory: reads after writes, and writes after both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable


class StorageAccesses:
    """The accesses of a program's ops to storages, told in program order."""

    def __init__(self) -> None:
        self._writer: dict[int, int] = {}
        self._readers: defaultdict[int, list[int]] = defaultdict(list)  # since it was written last

    def add(self, op: int, read: Iterable[int], written: Collection[int]) -> set[int]:
        """Return the ops that `op` has to follow: who wrote what it reads, and who read what it writes."""
        before: set[int] = set()
        for storage in read:
            if storage in self._writer:
                before.add(self._writer[storage])
            if storage in written:
                before.update(self._readers.pop(storage, ()))
                self._writer[storage] = op
            else:
                self._readers[storage].append(op)
        return before
