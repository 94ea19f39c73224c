"""Which kinds of model can be put in another order and run, and the functions that do so."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UsageError


class Runner(NamedTuple):
    """Entry points for one kind of model, imported only when called for.

    Parameters
    ----------
    apply
        `apply(model, schedule, output, options, note)`: write the model in the order of a schedule file.
    measure
        `measure(model, schedules, repeats, options, note) -> list[Measurement]`: run it in program order, which is
        the first row, and in the order of each schedule file.
    """

    apply: str
    measure: str


ONNX = Runner("schedopt.core.programs.onnx_apply:apply", "schedopt.core.programs.onnx_measure:measure")
TORCH = Runner("schedopt.core.programs.torch_apply:apply", "schedopt.core.programs.torch_measure:measure")
RUNNERS = {".onnx": ONNX, ".pt2": TORCH, "module:function": TORCH}


def runner_of(model: str) -> Runner:
    """Return the entry points for a model, by its name.

    Raises
    ------
    UsageError
        If a model of this kind cannot be run.
    """
    suffix = Path(model).suffix
    if suffix in RUNNERS:
        return RUNNERS[suffix]
    module, colon, function = model.partition(":")
    if colon and function.isidentifier() and all(part.isidentifier() for part in module.split(".")):
        return RUNNERS["module:function"]
    raise UsageError(f"{model}: not a program that can be run; name one of {', '.join(RUNNERS)}")


def load(entry: str) -> Any:
    """Import a function by its entry point."""
    module, _, function = entry.partition(":")
    return getattr(import_module(module), function)
