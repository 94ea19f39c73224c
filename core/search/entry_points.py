"""Methods and generators of other packages, which name them as entry points; read when a name or a list is needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..base.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
Kind = Literal["method", "generator"]


@cache
def _found(kind: Kind) -> dict[str, EntryPoint]:
    """Return the entry points of the installed packages by name: of equal names the first."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in reversed(tuple(entry_points(group=f"schedopt.{kind}s")))}


def names(kind: Kind) -> list[str]:
    """Return the names that other packages add."""
    return sorted(_found(kind))


def load(kind: Kind, name: str, make: Callable[[Any], T]) -> T | None:
    """Import what a package adds and `make` of it what is needed; None without such a name, UsageError if broken."""
    entry = _found(kind).get(name)
    if entry is None:
        return None
    try:
        return make(entry.load())
    except Exception as error:
        package = entry.dist.name if entry.dist else entry.value
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{kind} '{name}' of package {package} cannot be used: {why}; mend or uninstall it") from error
