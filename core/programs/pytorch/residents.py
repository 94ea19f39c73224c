"""The storages that the caller of a program gives and keeps: who reads and writes them, and where they count."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ...graph.annotations import Resident


@dataclass
class _Held:
    """A storage, the op whose persistent bytes hold it, and whether only views have been made of it so far."""

    name: str
    role: str
    size: int
    op: int = -1
    only_viewed: bool = True
    readers: list[int] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)


class Residents:
    """The storages given, by what tells them apart.

    Each is among the persistent bytes of the first op that reads it and is no view; if all are, of the first of them.
    """

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}

    def __contains__(self, storage: int) -> bool:
        return storage in self._held

    def hold(self, storage: int, name: str, role: str, size: int) -> None:
        """Take a storage that the caller gives; of several tensors that share it, the first gives its name."""
        self._held.setdefault(storage, _Held(name, role, size))

    def access(self, op: int, read: Collection[int], written: Collection[int], is_view: bool) -> None:
        """Note which storages an op reads, some of which it may write to as well."""
        for storage in read:
            held = self._held.get(storage)
            if held is None:
                continue
            (held.writers if storage in written else held.readers).append(op)
            if held.op < 0 or (held.only_viewed and not is_view):
                held.op, held.only_viewed = op, is_view

    def list(self) -> tuple[Resident, ...]:
        """Return them all, in the order in which they were given."""
        return tuple(
            Resident(held.name, held.role, held.size, held.op, tuple(held.readers), tuple(held.writers))
            for held in self._held.values()
        )
