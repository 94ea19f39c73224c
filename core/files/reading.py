"""Files that anybody may have written: whole but not endless, gzip that does not explode, JSON as plain values."""

import gzip
import io
import json
import os
import reprlib
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..base.errors import FormatError, UsageError
from ..base.units import format_bytes, parse_bytes

GZIP = b"\x1f\x8b"
LARGEST_VARIABLE = "SCHEDOPT_LARGEST_FILE"
_LARGEST = 2**30
_SHOWN_LETTERS = 80
_MOST_BITS = 256


def path_of(given: str | os.PathLike[str]) -> Path:
    """Return the name of a file as a path."""
    if not isinstance(given, (str, os.PathLike)):
        raise UsageError(f"the path of a file is wanted, not {type(given).__name__}")
    return Path(given)


def largest_file() -> int:
    """Return how many bytes a file may hold, after gzip: those of the environment variable, or 1 GiB."""
    given = os.environ.get(LARGEST_VARIABLE)
    return parse_bytes(given, LARGEST_VARIABLE) if given else _LARGEST


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return a file's content, after gzip if it is that; `-` is standard input."""
    return unzipped(read_raw(path), str(path))


def read_raw(path: str | os.PathLike[str], head: int = 0) -> bytes:
    """Return a file's raw content, or so many bytes of its head; otherwise as `read_bytes`."""
    file, most = path_of(path), head or largest_file() + 1
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(most)
        else:
            with file.open("rb") as opened:
                if not head:
                    _check_size(os.fstat(opened.fileno()).st_size, str(path))
                data = opened.read(most)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = error.strerror if isinstance(error, OSError) else None
        raise FormatError(f"{path}: cannot be read: {reason or error}") from error
    if not head:
        _check_size(len(data), str(path))  # of a pipe
    return data


def unzipped(data: bytes, where: str) -> bytes:
    """Return a gzip's content, of as many members as it has, or the data themselves if they are none."""
    if not data.startswith(GZIP):
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            data = file.read(largest_file() + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(f"{where}: the gzip data is truncated or damaged ({error})") from error
    _check_size(len(data), where)
    return data


def _check_size(size: int, where: str) -> None:
    if size > (limit := largest_file()):
        raise FormatError(
            f"{where}: it holds more than {format_bytes(limit)}; to read it, set {LARGEST_VARIABLE}=8GiB or so, in "
            "the shell schedopt --largest-file 8GiB"
        )


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file, without a byte order mark."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not UTF-8 text at byte {error.start}") from error
    if not text.strip():
        raise FormatError(f"{path}: the file is empty")
    return text


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return a JSON file's content, plain or gzip."""
    return parse_json(read_text(path), lambda what: f"{path}: {what}")


def parse_json(
    text: str | bytes, tell: Callable[[str], str], pairs: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """Return the plain values of a JSON document; `tell` makes the text of an error."""
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        is_cut = error.pos >= len(error.doc.rstrip()) - 1 or error.msg.startswith("Unterminated string")
        what = "the JSON is truncated" if is_cut else f"not JSON: {error.msg}"
        what = f"{what} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        what = "the JSON is nested too deeply"
    except ValueError as error:  # letters that are no UTF-8, numbers of thousands of digits
        what = f"not JSON: {str(error).partition(';')[0]}"
    raise FormatError(tell(what))


def shown(value: Any) -> str:
    """Return a value as an error shows it: the beginning of a long one, and not all of a deep one."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of {int(value.bit_length() * 0.30103) + 1:,} digits"
    text = repr(value) if isinstance(value, (str, int, float)) else reprlib.repr(value)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."
