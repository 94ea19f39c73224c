"""YAML files: read with one sentence for each way to be wrong, written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ..errors import FormatError
from .atomic import write_atomically


def read_yaml(path: str | Path) -> Any:
    """Return what a file holds, None if it is empty.

    Raises
    ------
    FormatError
        If it cannot be read or is not YAML.
    """
    try:
        return yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FormatError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error


def write_yaml(path: str | Path, values: Any) -> None:
    """Write plain values in the order in which they are."""
    write_atomically(path, yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120))
