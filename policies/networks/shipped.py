"""Weights of networks: those that the package comes with, and those that are named."""

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from ...core.base.errors import FormatError, UsageError
from ...core.base.names import did_you_mean
from ...core.problem.problem import Problem
from ...core.search.parameters import Parameters
from ...core.search.registry import listed

WEIGHTS = Path(__file__).parents[1] / "weights"


def shipped(method: str) -> list[Path]:
    """Return the weights of a method that the package comes with: the files named after it, a shorter name first."""
    # `regal-runtime` comes before `regal-runtime-transfers`: the paper's before their extension.
    if files := sorted(WEIGHTS.glob(f"{method}-*.safetensors"), key=lambda file: file.stem):
        return files
    raise UsageError(
        f"{method} has no weights: none are installed; schedopt train {method} makes some, --weights FILE uses them"
    )


def weights_file(name: str) -> Path:
    """Return the shipped weights of this name, or else the file."""
    known = {file.stem: file for file in WEIGHTS.glob("*.safetensors")}
    file = known.get(name, Path(name))
    if file.is_dir():
        raise FormatError(f"{name}: is a folder; name the weights in it, as {file / 'weights.safetensors'}")
    if file.exists():
        return file
    near = did_you_mean(name, known)
    raise FormatError(f"{name}: cannot be read: no such file, and no weights of this name come with the package{near}")


def weights_of(method: str, name: str) -> list[Path]:
    """Return the weights that are named, or without a name all of a method that are shipped."""
    return [weights_file(name)] if name else shipped(method)


class WithWeights(Parameters):
    """Parameters of a method whose `weights` name those of its network; unreadable ones are refused before a run."""

    method: ClassVar[str]
    room: ClassVar[str]  # of this folder: its `network` has `load_network`
    needs: ClassVar[tuple[str, ...]] = ()  # of a problem, which the weights are for
    decoders: ClassVar[tuple[str, ...]] = ()  # values of `decode`, if there is such a parameter
    weights: str

    def __post_init__(self) -> None:
        decode = getattr(self, "decode", "")
        if self.decoders and decode not in self.decoders:
            known = f"decode must be {listed(self.decoders)}, not '{decode}'"
            raise UsageError(f"{known}{did_you_mean(decode, self.decoders)}")
        super().__post_init__()
        files = weights_of(self.method, self.weights)
        if self.weights:
            self.network(files[0])

    def network(self, file: Path) -> Any:
        """Return the network of a file, read once by each thread: its stop belongs to one search."""
        return _cached_network(self.room, file, modified(file), threading.get_ident())

    def identity(self) -> dict[str, Any]:
        """Return the parameters with hashes of the weights, since files may change under their names."""
        files = weights_of(self.method, self.weights)
        return {**asdict(self), "weights": [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]}

    def check(self, problem: Problem) -> None:
        """Raise UsageError if there are no weights for such a problem."""
        if self.needs:
            self.file(problem)

    def file(self, problem: Problem) -> Path:
        """Return the weights for a problem: those that are named, or else the first shipped ones that fit."""
        files = weights_of(self.method, self.weights)
        wanted = tuple(getattr(problem, name) for name in self.needs)
        found = [described(file, self.needs) for file in files]
        if wanted in found:
            return files[found.index(wanted)]
        have, lacking, remedy = [*map(_words, found)], _words(wanted), self.remedy(problem)
        if self.weights:
            lacking = lacking.removesuffix(" devices")
            raise UsageError(f"{self.weights}: these weights are for {have[0]}, not for {lacking}; {remedy}")
        only = ", ".join(dict.fromkeys(have))
        raise UsageError(f"{self.method} has no weights for {lacking}, only for {only}; {remedy}")

    def remedy(self, problem: Problem) -> str:
        """Say how there can be weights for a problem."""
        options = " ".join(f"--{name} {getattr(problem, name)}" for name in self.needs)
        return f"schedopt train {self.method} {options} makes some"


def _words(needs: tuple[Any, ...]) -> str:
    return " on ".join(map(str, needs)) + " devices" * (len(needs) > 1)


def described(file: Path, names: Sequence[str]) -> tuple[Any, ...]:
    """Return some parameters of a network that a file of weights names, as plain values."""
    parameters = _cached_description(file, modified(file))
    if missing := [name for name in names if name not in parameters]:
        raise FormatError(f"{file}: its network has no {' and no '.join(missing)}; train the weights again")
    return tuple(parameters[name] for name in names)


def modified(file: Path) -> int:
    """Return when a file was last changed, nanoseconds: its cached content belongs to that time."""
    return file.stat().st_mtime_ns if file.is_file() else 0


@lru_cache(maxsize=4)
def _cached_network(room: str, file: Path, changed: int, thread: int) -> Any:
    return import_module(f"...{room}.network", __name__).load_network(file)


@lru_cache(maxsize=64)
def _cached_description(file: Path, changed: int) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), "numpy") as opened:
            parameters = json.loads((opened.metadata() or {})["network"])
        return {**parameters}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"{file}: is not a file of weights ({type(error).__name__}: {error})") from error
