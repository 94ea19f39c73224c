"""A data set on disk: a folder with one file per graph and a dataset.json that says what made it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..core.errors import FormatError, UsageError
from ..core.files.atomic import make_folder, write_atomically
from ..core.files.costgraph import SUFFIXES
from .split import PARTS

DESCRIPTION = "dataset.json"
_GRAPH_FILE = re.compile(rf"[0-9a-f]{{16}}(-\d+)?({'|'.join(re.escape(suffix) for suffix in SUFFIXES)})")


class DatasetFolder:
    """Writes graphs, each file whole or not at all, and last of all their description.

    A folder without `dataset.json` thus holds a data set that was not finished.

    Parameters
    ----------
    path
        The folder, which is made if there is none.
    suffix
        File format of the graphs, a key of `SUFFIXES`.
    overwrite
        Whether to remove the data set that is there, and nothing else; by default it is left alone.

    Raises
    ------
    UsageError
        If the folder holds a data set already and is not to be overwritten, or is a file.
    FormatError
        If it cannot be made.
    """

    def __init__(self, path: str | Path, suffix: str, overwrite: bool = False) -> None:
        self.path = Path(path)
        self.suffix = suffix
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(
                f"{path}: is a file, not a folder; a single graph's name must end in {', '.join(SUFFIXES)}"
            )
        old = self._graph_files()
        described = (self.path / DESCRIPTION).exists()
        if (old or described) and not overwrite:
            what = "a data set" if described else "graphs of a data set that was not finished"
            raise UsageError(f"{path}: holds {what}; give --overwrite to replace it, or name another folder")
        if described:
            (self.path / DESCRIPTION).unlink()
        for file in old:
            file.unlink()
        make_folder(self.path)

    def _graph_files(self) -> list[Path]:
        folders = [self.path, *(self.path / part for part in PARTS)]
        return [
            file
            for folder in folders
            if folder.is_dir()
            for file in sorted(folder.iterdir())
            if _GRAPH_FILE.fullmatch(file.name)
        ]

    def _file(self, name: str, part: str) -> Path:
        return self.path / part / f"{name}{self.suffix}"

    def add(self, name: str, data: bytes, part: str = "") -> None:
        """Write one graph's file, into a part (`train`, `valid`, `test`) or beside them."""
        if part:
            make_folder(self.path / part)
        write_atomically(self._file(name, part), data)

    def move(self, name: str, part: str) -> None:
        """Move a graph that is beside the parts into one."""
        make_folder(self.path / part)
        self._file(name, "").replace(self._file(name, part))

    def finish(self, description: dict[str, Any]) -> None:
        """Write `dataset.json`."""
        text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
        write_atomically(self.path / DESCRIPTION, text)


def made_by(paths: Iterable[str | Path]) -> list[str]:
    """Return the commands that made those of some paths which are data set folders.

    Raises
    ------
    FormatError
        If a folder's description cannot be read.
    """
    commands = []
    for path in paths:
        file = Path(path) / DESCRIPTION
        if file.is_file():
            try:
                commands.append(str(json.loads(file.read_bytes())["command"]))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise FormatError(f"{file}: is not the description of a data set ({error})") from error
    return commands
