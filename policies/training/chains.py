"""Recipes: files that make weights from nothing, by runs that start from the best weights of the one before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.base.errors import FormatError, UsageError
from ...core.files.yaml_files import read_yaml
from ...core.search.settings import from_plain, plain, with_settings
from ..networks.shipped import WEIGHTS

RECIPES = WEIGHTS / "recipes"
_KEYS, _RUN_KEYS = {"method", "settings", "runs"}, {"name", "phases", "set", "given"}


@dataclass(frozen=True)
class ChainedRun:
    """A run of a recipe."""

    name: str  # name of its folder in that of the recipe
    settings: Any  # of the method's kind, but for what it starts from
    is_given: bool  # whether it is trained on given graphs


def read_chain(recipe: str, method: str, kind: type[Any]) -> list[ChainedRun]:
    """Read the runs of a recipe, in turn."""
    shipped = RECIPES / f"{recipe}.yaml"
    path = shipped if shipped.exists() else Path(recipe)
    values = read_yaml(path)
    if not (isinstance(values, dict) and values.keys() == _KEYS and isinstance(values["runs"], list)):
        raise FormatError(f"{path}: is no recipe, which has {', '.join(sorted(_KEYS))}, and runs in a list")
    if values["method"] != method:
        raise UsageError(f"{path}: is a recipe of {values['method']}, not {method}")
    settings = values["settings"]
    if isinstance(settings, str):
        settings = read_yaml(WEIGHTS / f"{settings}.yaml")["recipe"] | {"device": "cpu"}
    base = plain(from_plain(kind, settings, str(path)))
    runs = [_run(path, base, run, kind) for run in values["runs"]]
    if not runs or len({run.name for run in runs}) < len(runs):
        raise FormatError(f"{path}: needs runs, each with a name of its own")
    return runs


def _run(path: Path, base: dict[str, Any], run: Any, kind: type[Any]) -> ChainedRun:
    if not (isinstance(run, dict) and {"name", "phases"} <= run.keys() <= _RUN_KEYS):
        raise FormatError(f"{path}: a run has a name and phases, and may have set and given")
    name, phases, given = str(run["name"]), run["phases"], run.get("given", False)
    if not name or set(name) & set("/\\.") or type(given) is not bool:
        raise FormatError(f"{path}: run '{name}': a name is one of a folder, and given is true or false")
    if not (isinstance(phases, list) and phases and all(at in range(len(base["phases"])) for at in phases)):
        raise FormatError(f"{path}: run '{name}': phases must be numbers from 0 to {len(base['phases']) - 1}")
    changes = run.get("set", {})
    if not isinstance(changes, dict):
        raise FormatError(f"{path}: run '{name}': set must be names and values")
    values = with_settings(base, [f"{setting}={value}" for setting, value in changes.items()])
    values["phases"] = [values["phases"][at] for at in phases]
    return ChainedRun(name, from_plain(kind, values, f"{path}, run '{name}'"), given)
