"""Read a file whole."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import FormatError, UsageError


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return what a file holds.

    Raises
    ------
    UsageError
        If it is no path.
    FormatError
        If the file cannot be read.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"the path of a file is wanted, not a {type(path).__name__}")
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = error.strerror if isinstance(error, OSError) else None
        raise FormatError(f"{path}: cannot be read: {reason or error}") from error
