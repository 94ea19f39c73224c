"""Settings of a training run as YAML: parameters that hold other parameters, lists and mappings of them."""

import contextlib
import copy
import dataclasses
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import yaml

from ..base.errors import FormatError, UsageError
from ..files.reading import shown
from ..files.yaml_files import parse_yaml, read_yaml
from ..problem.problem import Task
from .parameters import WANTED, Parameters, from_texts, types_of

T = TypeVar("T")


def from_plain(kind: type[T], values: Any, where: str) -> T:
    """Build a dataclass from nested dicts and lists; fields left out keep their defaults."""
    if not isinstance(values, dict):
        raise UsageError(f"{where} must be a mapping of settings, not {shown(values)}")
    kinds = types_of(kind, values, where, "setting")
    built = {name: _converted(kinds[name], value, f"{where}: {name}") for name, value in values.items()}
    try:
        return kind(**built)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def _converted(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is typing.Literal:
        if value not in arguments:
            raise UsageError(f"{where} must be one of {', '.join(map(str, arguments))}, not {shown(value)}")
        return value
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _converted(next(a for a in arguments if a is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise UsageError(f"{where} must be a list, not {shown(value)}")
        kinds = arguments if arguments[-1] is not Ellipsis else (arguments[0],) * len(value)
        if len(kinds) != len(value):
            raise UsageError(f"{where} must have {len(kinds)} entries, not {len(value)}")
        pairs = zip(kinds, value, strict=True)
        return tuple(_converted(k, v, f"{where}.{at}") for at, (k, v) in enumerate(pairs))
    if origin is dict:
        if not isinstance(value, dict):
            raise UsageError(f"{where} must be a mapping, not {shown(value)}")
        return {key: _converted(arguments[1], entry, f"{where}: {key}") for key, entry in value.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return from_plain(kind, value, where)
    if kind is float and isinstance(value, (int, str)) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):  # YAML reads 1e-4 as a text
            return float(value)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise UsageError(f"{where} must be {WANTED[kind]}, not {shown(value)}")
    return value


def read_config(path: str | Path, kind: type[T]) -> T:
    """Read a YAML file of all settings, or of those that are not the default."""
    values = read_yaml(path)
    return from_plain(kind, {} if values is None else values, str(path))


def with_settings(values: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Return nested dicts and lists with some values replaced."""
    changed = copy.deepcopy(values)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"'{setting}' is not written name=value, as in phases.0.epochs=2")
        *parents, last = (int(name) if name.isdecimal() else name for name in path.strip().split("."))
        try:
            within: Any = changed
            for name in parents:
                within = within[name]
            within[last]  # a name that is not there must not be made
            within[last] = parse_yaml(text)
        except (KeyError, IndexError, TypeError) as error:
            raise UsageError(f"there is no setting '{path.strip()}'; config.yaml of a run shows them all") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise UsageError(f"{shown(text)} in {shown(setting)} is not a value of YAML") from error
    return changed


def differences(first: Any, second: Any, name: str = "") -> list[str]:
    """Return the names of all settings that two configs in plain values do not share, as `phases.0.epochs`."""
    pairs: list[tuple[Any, Any, Any]]
    if isinstance(first, dict) and isinstance(second, dict):
        pairs = [(key, first.get(key), second.get(key)) for key in {**first, **second}]
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = [(at, *pair) for at, pair in enumerate(zip(first, second, strict=True))]
    else:
        return [] if first == second else [name]
    return [found for key, one, other in pairs for found in differences(one, other, f"{name}.{key}".lstrip("."))]


def plain(config: Any) -> dict[str, Any]:
    """Turn a dataclass into plain values for YAML and JSON."""

    def listed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: listed(entry) for key, entry in value.items()}
        return [listed(entry) for entry in value] if isinstance(value, tuple) else value

    return {name: listed(value) for name, value in dataclasses.asdict(config).items()}


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
