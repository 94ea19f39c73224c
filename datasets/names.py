"""Names of the graphs of a data set: what made them, and a number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_DIGITS, _COPY_DIGITS = 4, 3
_LONGEST = 100


def numbered(family: str, index: int, count: int = 1) -> str:
    """Return the name of a generated graph, such as `layered-500-0001`: numbers begin with 1.

    Parameters
    ----------
    family
        What the graphs are called.
    index
        Which graph it is, from 0 on.
    count
        How many there are: from 10,000 on numbers have more digits, so that names sort as numbers do; 1 by default.
    """
    return f"{family}-{index + 1:0{max(_DIGITS, len(str(count)))}d}"


def names_of_copies(originals: Sequence[str], copies: int) -> list[list[str]]:
    """Return per original what it and then its copies are called: `unet`, `unet-copy-001`, and so on.

    No two names are the same, even where capital letters count as small ones, and each is that of a file: other
    characters than letters, digits, `.`, `_`, `+` and `-` are replaced.

    Parameters
    ----------
    originals
        Names of the originals.
    copies
        Number of copies of each.
    """
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
