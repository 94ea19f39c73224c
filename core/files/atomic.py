"""Write a file whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from ..errors import FormatError
from .reading import path_of

_LONGEST = 200
"""Letters of a name that its temporary file has, too, for names have an end."""


def write_atomically(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Write `data` to a temporary file beside `path`, then rename it into place.

    A link stays one: what it points to is written. A file that is there keeps its permissions. Devices and pipes such
    as `/dev/null` are written to directly.

    Raises
    ------
    UsageError
        If it is no path.
    FormatError
        If the folder does not exist or cannot be written to, the path is a folder, or the disk is full.
    """
    if isinstance(data, str):
        data = data.encode()
    file = path_of(path)
    try:
        _write(file, data)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = error.strerror if isinstance(error, OSError) else None
        raise FormatError(f"{path}: cannot be written: {reason or error}") from error


def check_writable(path: str | Path) -> None:
    """Find before the work what would keep its result from being written.

    Raises
    ------
    FormatError
        If the folder does not exist, or the path is a folder.
    """
    if not Path(path).absolute().parent.is_dir():
        raise FormatError(f"{path}: the folder does not exist")
    if Path(path).is_dir():
        raise FormatError(f"{path}: cannot be written: Is a directory")


def _write(path: Path, data: bytes) -> None:
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    target = path.resolve()
    temporary = target.with_name(f".{target.name[:_LONGEST]}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
