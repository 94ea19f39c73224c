"""Files written whole or not at all."""

import errno
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..base.errors import FormatError, UnwrittenError, UsageError
from .reading import path_of

_LONGEST = 200
"""Letters of a name that its temporary file has, too, for names have an end."""


def write_atomically(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Write `data` to a temporary file beside `path`, then rename it into place."""
    if isinstance(data, str):
        data = data.encode()
    file = path_of(path)
    try:
        file.write_bytes(data) if file.exists() and not file.is_file() else _replace(file.resolve(), data)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise UnwrittenError(_refusal(path, error), os.fspath(file), data) from error


def write_out(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to a file as `write_atomically` does, or to standard output where the path is `-`."""
    if str(path) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        write_atomically(path, data)


def write_as(path: str | os.PathLike[str], suffixes: Mapping[str, str], text_of: Callable[[str], str]) -> None:
    """Write the text that the ending of a name asks for."""
    write_atomically(path, text_of(check_suffix(path, suffixes)))


def check_suffix(path: str | os.PathLike[str], suffixes: Mapping[str, str]) -> str:
    """Return the ending of a name; UsageError if it is none of these."""
    suffix = path_of(path).suffix
    if suffix not in suffixes:
        known = ", ".join(f"{suffix} ({what})" for suffix, what in suffixes.items())
        raise UsageError(f"{os.fspath(path)}: the name must end in one of {known}")
    return suffix


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """Make a folder, and those that it is in, where there is none; return it."""
    place = path_of(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FormatError(f"{place}: cannot be made: {error.strerror or error}") from error
    return place


def check_writable(path: str | Path) -> None:
    """Find before the work any obstacle to writing its result, by making a file beside it for a moment."""
    if not os.fspath(path):
        raise FormatError("the name of a file to write is empty")
    try:
        file = Path(path)
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        if file.exists() and not file.is_file():
            if not os.access(file, os.W_OK):
                raise PermissionError(errno.EACCES, "Permission denied")
            return
        target = file.resolve()
        if not target.parent.is_dir():
            raise FormatError(f"{path}: the folder does not exist")
        temporary = _beside(target)
        temporary.touch(exist_ok=False)
        temporary.unlink()
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise FormatError(_refusal(path, error)) from error


def is_same_file(one: str | Path, other: str | Path) -> bool:
    """Whether two names are of one file, which need not be there."""
    try:
        first, second = Path(one), Path(other)
        return first.resolve() == second.resolve() or (first.exists() and second.exists() and first.samefile(second))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links in a circle
        return False


def check_apart(outputs: Iterable[str | None], inputs: Iterable[str | None]) -> None:
    """Raise `UsageError` where a result would be written over another one, or over what the command reads."""
    taken = [name for name in inputs if name is not None]
    for output in outputs:
        if output is None or (Path(output).exists() and not Path(output).is_file()):
            continue
        if any(is_same_file(output, name) for name in taken):
            raise UsageError(f"{output}: is an input or another output of this command; name another file")
        taken.append(output)


def _refusal(path: str | os.PathLike[str], error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else None
    return f"{os.fspath(path)}: cannot be written: {reason or error}"


def _beside(target: Path) -> Path:
    """Return a name for a temporary file in the same folder."""
    return target.with_name(f".{target.name[:_LONGEST]}.{secrets.token_hex(8)}")


def _replace(target: Path, data: bytes) -> None:
    """Put a new file in the place of one that may be there."""
    temporary = _beside(target)
    try:
        with temporary.open("xb") as file:
            file.write(data)
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
