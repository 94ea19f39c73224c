"""Settings of a training run as YAML: parameters that hold other parameters, lists and mappings of them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import types
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml

from ..base.errors import UsageError
from ..files.reading import shown
from ..files.yaml_files import parse_yaml, read_yaml
from .parameters import WANTED, types_of

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
    """Turn a dataclass into what YAML and JSON can hold."""

    def listed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: listed(entry) for key, entry in value.items()}
        return [listed(entry) for entry in value] if isinstance(value, tuple) else value

    return {name: listed(value) for name, value in dataclasses.asdict(config).items()}
