"""Records on disk, a line of JSON each, so that work goes on where it stopped."""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any, NoReturn

from ...version import VERSION
from ..base.errors import FormatError
from .reading import parse_json

_LINE_START = b'{"key": "'


def key_of(facts: dict[str, Any]) -> str:
    """Return the key of a record by all that decides it, of this version."""
    return digest_of({"schedopt": VERSION, **facts})


def digest_of(facts: dict[str, Any]) -> str:
    """Return the digest of a mapping, in whatever order it is."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


class JsonLines:
    """Records by key, each with its digest; a last line that a stop cut short is dropped, damage is refused."""

    def __init__(self, path: str | Path, kind: str, remedy: str) -> None:
        self.path, self._kind, self._remedy = Path(path), kind, remedy
        self.records: dict[str, dict[str, Any]] = {}
        try:
            if self.path.exists() and not (self.path.is_file() or self.path.is_dir()):
                raise FormatError(f"{path}: cannot be used to resume: it is no file")  # and may have no end
            data = self.path.read_bytes() if self.path.exists() else b""
            whole = data.rfind(b"\n") + 1
            if not (data[whole:].startswith(_LINE_START) or _LINE_START.startswith(data[whole:])):
                self.refuse(data.count(b"\n") + 1)
            for number, line in enumerate(data[:whole].splitlines(), start=1):
                try:
                    record = parse_json(line, str)
                    found = record.pop("digest", None)  # of older versions, whose records are of no use
                    is_right = found in (None, digest_of(record)) and isinstance(key := record.pop("key"), str)
                except (FormatError, KeyError, TypeError, AttributeError):
                    is_right = False
                if not is_right:
                    self.refuse(number)
                if found is not None:
                    self.records[key] = record
            if whole < len(data):
                os.truncate(self.path, whole)
            self._file = self.path.open("ab")
        except OSError as error:
            raise FormatError(f"{path}: cannot be used to resume: {error.strerror or error}") from error

    def refuse(self, line: int) -> NoReturn:
        """Raise FormatError for a line, numbered from 1."""
        raise FormatError(f"{self.path}: line {line} is not of {self._kind}, or damaged; {self._remedy}")

    def write(self, key: str, record: dict[str, Any]) -> None:
        """Write a record through to the disk."""
        try:
            line = {"key": key, **record}
            self._file.write(json.dumps({**line, "digest": digest_of(line)}).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise FormatError(f"{self.path}: cannot be written: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the file; unwritten lines have been reported."""
        with contextlib.suppress(OSError):
            self._file.close()
