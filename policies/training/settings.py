"""Settings of a training run, those that made shipped weights, and recipes: runs that make weights from nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from ...core.base.errors import FormatError, UsageError
from ...core.files.yaml_files import read_yaml
from ...core.search.parameters import Parameters, parameter
from ...core.search.settings import from_plain, plain, with_settings
from ..networks.shipped import WEIGHTS

RECIPES = WEIGHTS / "recipes"
_KEYS, _RUN_KEYS = {"method", "settings", "runs"}, {"name", "phases", "set", "given"}


@dataclass(frozen=True)
class TrainingSettings(Parameters):
    """Settings of every training: everything that decides its weights, except given graphs."""

    command: ClassVar[str]  # of `schedopt train`, whose trainer they are for
    seed: int = parameter(0, "of every random choice", low=0)
    start: str = parameter("", "weights to start from, which decide the network: a file, or shipped ones by name")
    network: Any = None  # what a new network is made from
    phases: tuple[Any, ...] = ()  # done one after the other
    clip: float = parameter(1.0, "largest norm of a gradient", low=1e-9)
    threads: int = parameter(1, "of the network on a CPU; with several, the last bits depend on how busy it is", low=1)
    device: Literal["cpu", "cuda"] = parameter("cpu", "where the network is: cpu or cuda")
    checkpoint_seconds: float = parameter(60.0, "time between checkpoints", low=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.phases:
            raise UsageError("phases must not be empty")

    @classmethod
    def shipped(cls: type[Settings], name: str) -> Settings | None:
        """Return the settings that made shipped weights, but on a CPU; None if there are none of this name."""
        card = WEIGHTS / f"{name}.yaml"
        values = read_yaml(card)["recipe"] | {"device": "cpu"} if card.exists() else None
        return None if values is None else from_plain(cls, values, str(card))


Settings = TypeVar("Settings", bound=TrainingSettings)


@dataclass(frozen=True)
class ChainedRun:
    """A run of a recipe."""

    name: str  # name of its folder in that of the recipe
    settings: Any  # of the method's kind, but for what it starts from
    is_given: bool  # whether it is trained on given graphs


def read_chain(recipe: str, method: str, kind: type[TrainingSettings]) -> list[ChainedRun]:
    """Read the runs of a recipe, in turn."""
    shipped = RECIPES / f"{recipe}.yaml"
    path = shipped if shipped.exists() else Path(recipe)
    values = read_yaml(path)
    if not (isinstance(values, dict) and values.keys() == _KEYS and isinstance(values["runs"], list)):
        raise FormatError(f"{path}: is no recipe, which has {', '.join(sorted(_KEYS))}, and runs in a list")
    if values["method"] != method:
        raise UsageError(f"{path}: is a recipe of {values['method']}, not {method}")
    settings = values["settings"]
    known = kind.shipped(settings) if isinstance(settings, str) else None
    base = plain(known or from_plain(kind, settings, str(path)))
    runs = [_run(path, base, run, kind) for run in values["runs"]]
    if not runs or len({run.name for run in runs}) < len(runs):
        raise FormatError(f"{path}: needs runs, each with a name of its own")
    return runs


def _run(path: Path, base: dict[str, Any], run: Any, kind: type[TrainingSettings]) -> ChainedRun:
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
