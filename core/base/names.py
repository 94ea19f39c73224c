"""Names that people give, and the names closest to a wrong one."""

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TypeVar

from .errors import UsageError

Name = TypeVar("Name", bound=str)
_MEANINGS = {"peak": "memory", "makespan": "runtime", "time": "runtime"}
_COMMANDS = {
    code: chr(code).encode("unicode_escape").decode()
    for code in range(0x2070)  # behind the last block of punctuation nothing commands a terminal
    if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp")
}


def one_line(name: str) -> str:
    r"""Return a name with each control, direction and line end character written as Python would, such as `\n`."""
    return name.translate(_COMMANDS)


def unknown(what: str, given: str, names: Iterable[str]) -> UsageError:
    """Return the error of a name that is none of those known: it asks for the nearest one, or shows all."""
    known = list(names)
    if near := did_you_mean(_MEANINGS.get(given, given) if what == "task" else given, known):
        return UsageError(f"unknown {what} '{given}'{near}")
    return UsageError(
        f"unknown {what} '{given}'; choose {'from ' + ', '.join(known) if known[2:] else ' or '.join(known)}"
    )


def one_of(what: str, given: str, names: Iterable[Name]) -> Name:
    """Return the known name that is given, or raise the error of `unknown`."""
    known = list(names)
    for name in known:
        if name == given:
            return name
    raise unknown(what, given, known)


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
