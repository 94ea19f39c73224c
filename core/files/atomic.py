"""Write a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..errors import FormatError


def check_writable(path: str | Path) -> None:
    """Refuse what cannot be a file to write, before the work whose result goes there.

    Raises
    ------
    FormatError
        If the path is a folder, or in one that does not exist.
    """
    if Path(path).is_dir():
        raise FormatError(f"{path}: is a folder; name a file")
    if not Path(path).absolute().parent.is_dir():
        raise FormatError(f"{path}: the folder does not exist")


def write_atomically(path: str | Path, data: bytes | str) -> None:
    """Write `data` to a temporary file beside `path`, then rename it into place.

    Raises
    ------
    FormatError
        If the path is a folder, its folder does not exist or cannot be written to, or the disk is full.
    """
    path = Path(path)
    if path.is_dir():
        raise FormatError(f"{path}: cannot be written: it is a folder; name a file")
    if isinstance(data, str):
        data = data.encode()
    if path.exists() and not path.is_file():  # a device or a pipe such as /dev/null
        path.write_bytes(data)
        return
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except OSError as error:
        raise FormatError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
