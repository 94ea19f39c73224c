"""What has to come before what, for ops that share memory: reads after writes, and writes after both."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field


@dataclass
class _Accesses:
    """Who wrote to a storage last, and who has read it since."""

    writer: int | None = None
    readers: list[int] = field(default_factory=list)


class StorageAccesses:
    """The accesses of a program's ops to storages, told in program order."""

    def __init__(self) -> None:
        self._of: dict[int, _Accesses] = {}

    def add(self, op: int, read: Iterable[int], written: Collection[int]) -> set[int]:
        """Return the ops that `op` has to follow: who wrote what it reads, and who read what it writes."""
        before: set[int] = set()
        for storage in read:
            accesses = self._of.setdefault(storage, _Accesses())
            if accesses.writer is not None:
                before.add(accesses.writer)
            if storage in written:
                before.update(accesses.readers)
                self._of[storage] = _Accesses(op)
            else:
                accesses.readers.append(op)
        return before
