"""Names of the graphs of a data set: what made them, and a number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_DIGITS, _COPY_DIGITS = 4, 3
_LONGEST = 100


def numbered(family: str, index: int, count: int = 1) -> str:
    """Return the name of a generated graph, such as `layered-500-0001`; from 10,000 graphs on with more digits."""
    return f"{family}-{index + 1:0{max(_DIGITS, len(str(count)))}d}"


def names_of_copies(originals: Sequence[str], copies: int) -> list[list[str]]:
    """Return per original a file name that is its own, then those of its copies: `unet`, `unet-copy-001`, ..."""
    taken: set[str] = set()
    owns = [_untaken(_as_file_name(name), taken) for name in originals]
    digits = max(_COPY_DIGITS, len(str(copies)))
    return [[own, *_copies_of(own, range(1, copies + 1), digits, taken)] for own in owns]


def _copies_of(name: str, numbers: Iterable[int], digits: int, taken: set[str]) -> list[str]:
    return [_untaken(f"{name}-copy-{number:0{digits}d}", taken) for number in numbers]


def _as_file_name(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", name)[:_LONGEST].strip("-.") or "graph"


def _untaken(name: str, taken: set[str]) -> str:
    """Return the name, with a number behind it if it is taken, and take it."""
    free, number = name, 1
    while free.casefold() in taken:
        number += 1
        free = f"{name}-{number}"
    taken.add(free.casefold())
    return free
