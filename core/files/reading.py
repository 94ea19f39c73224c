"""Read a file whole."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import FormatError, UsageError


def path_of(given: str | os.PathLike[str]) -> Path:
    """Return what names a file as a path.

    Raises
    ------
    UsageError
        If it is something else.
    """
    if not isinstance(given, (str, os.PathLike)):
        raise UsageError(f"the path of a file is wanted, not {type(given).__name__}")
    return Path(given)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return what a file holds.

    Raises
    ------
    UsageError
        If it is no path.
    FormatError
        If the file cannot be read.
    """
    file = path_of(path)
    try:
        return file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = error.strerror if isinstance(error, OSError) else None
        raise FormatError(f"{path}: cannot be read: {reason or error}") from error
