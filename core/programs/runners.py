"""Which kinds of model can be put in another order and run, and the functions that do so."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import UsageError
from .importers import kind_by_name


class Runner(NamedTuple):
    """Entry points for one kind of model, imported only when called for.

    Parameters
    ----------
    apply
        `apply(model, schedule, output, options, note, force=False)`: write the model in the order of a schedule file.
    measure
        `measure(model, schedules, repeats, options, note, force=False) -> list[Measurement]`: run it in program
        order, which is the first row, and in the order of each schedule file.
    """

    apply: str
    measure: str


ONNX = Runner("schedopt.core.programs.onnx.apply:apply", "schedopt.core.programs.onnx.measure:measure")
TORCH = Runner("schedopt.core.programs.pytorch.apply:apply", "schedopt.core.programs.pytorch.measure:measure")
RUNNERS = {"onnx": ONNX, "pytorch": TORCH}


def runner_of(model: str) -> Runner:
    """Return the entry points for a model, by its name.

    Raises
    ------
    UsageError
        If a model of this kind cannot be run.
    """
    kind = kind_by_name(model)
    if kind not in RUNNERS:
        raise UsageError(f"{model}: not a program that can be run; name an .onnx or .pt2 file or module:function")
    return RUNNERS[kind]
