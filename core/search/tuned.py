"""Parameters that a grid search chose, per task, as YAML (REGAL A.10)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from ..base.errors import FormatError, UsageError
from ..files.yaml_files import read_yaml
from ..problem.problem import Task
from .parameters import Parameters, from_texts

P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True)
class Tuned(Generic[P]):
    """The parameters of a method for each task that was searched, and the file that they were read from."""

    path: Path
    method: str
    tasks: dict[str, P]

    def parameters(self, task: Task) -> P:
        """Return those of a task, or raise UsageError if the file has none."""
        if task not in self.tasks:
            raise UsageError(
                f"{self.path}: holds no settings for the {task} task; "
                f"schedopt train {self.method} --task {task} --output {self.path} adds them"
            )
        return self.tasks[task]


def read_tuned(path: str | Path, method: str, kind: type[P]) -> Tuned[P]:
    """Read the parameters in a file of `schedopt train`; raises FormatError where it is no such file."""
    tasks, known = {}, [field.name for field in fields(kind) if field.name != "settings"]
    for task, entry in tasks_of(read_document(path, method)).items():
        try:
            texts = {name: str(value) for name, value in entry["settings"].items()}
            tasks[task] = from_texts(kind, texts, method, known)
        except UsageError as error:
            raise FormatError(f"{path}: the {task} task's settings cannot be used: {error}") from error
    return Tuned(Path(path), method, tasks)


@cache
def shipped(method: str, kind: type[P]) -> Tuned[P]:
    """Return the parameters that the package comes with."""
    folder = Path(__file__).parents[1] / "solvers" / "placements"
    return read_tuned(folder / f"{method.replace('-', '_')}_tuned.yaml", method, kind)


def tasks_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the entries of a document by task."""
    return {task: document[task] for task in get_args(Task) if task in document}


def read_document(path: str | Path, method: str) -> dict[str, Any]:
    """Read a file of `schedopt train` whole: the method, and per task its settings and how they were found."""
    document: dict[str, Any] = read_yaml(path)
    if not (
        isinstance(document, dict)
        and document.get("method") == method
        and tasks_of(document)
        and all(isinstance(e, dict) and isinstance(e.get("settings"), dict) for e in tasks_of(document).values())
    ):
        raise FormatError(f"{path}: is not a file that schedopt train {method} wrote")
    return document
