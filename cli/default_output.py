"""Where a graph goes whose output is not named: through a pipe as ever, but into a file instead of over a terminal."""

from __future__ import annotations

import re
import sys
from itertools import count
from pathlib import Path

HELP = "(default: standard output; on a terminal, a new file)"


def output_of(given: str | None, name: str, suffix: str) -> str:
    """Return what is given, `-` for standard output, or on a terminal the name of a file that is not there yet."""
    if given is not None:
        return given
    if not sys.stdout.isatty():
        return "-"
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "graph"
    files = (f"{stem}{f'-{number}' if number > 1 else ''}{suffix}" for number in count(1))
    return next(file for file in files if not Path(file).exists())
