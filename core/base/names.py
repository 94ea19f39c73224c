"""Names that people give: what a wrong one may have meant, and what the tasks are called as well."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from .errors import UsageError

TASK_NAMES = {"peak": "memory", "makespan": "runtime", "time": "runtime"}
"""What the tasks are called as well."""


def task_of(name: str) -> str:
    """Return the task that a name means; names that mean none are returned as they are, and refused by `Problem`."""
    return TASK_NAMES.get(name.strip().lower(), name)


def unknown(what: str, given: str, names: Iterable[str], others: Iterable[str] = ()) -> UsageError:
    """Return the error of a name that is none of those known: it asks for the nearest one, or shows all but others."""
    known = list(names)
    if near := did_you_mean(given, [*known, *others]):
        return UsageError(f"unknown {what} '{given}'{near}")
    return UsageError(
        f"unknown {what} '{given}'; choose {'from ' + ', '.join(known) if known[2:] else ' or '.join(known)}"
    )


def did_you_mean(given: object, names: Iterable[str]) -> str:
    """Return the end of an error, which asks for the nearest name, if any is near."""
    near = nearest(str(given), names)
    return "" if near is None else f"; did you mean {near}?"


def nearest(given: str, names: Iterable[str]) -> str | None:
    """Return the name that was perhaps meant: the same but for case and `_`, or for few letters; None if none is."""
    plain = {_plain(name): name for name in names}
    near = get_close_matches(_plain(given), plain, n=1, cutoff=0.75)
    return plain[near[0]] if near else None


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")
