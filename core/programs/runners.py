"""Programs that can be put in another order and run: which class does so for which kind of model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ..base.errors import UsageError
from ..files.atomic import check_writable
from ..graph.graph import CostGraph
from .importers import check_options, kind_by_name, load
from .measurement import Measurement, OnRun
from .options import ImportOptions

Note = Callable[[str], None]


class Runner(Protocol):
    """A program, loaded once: to be imported, written in another order, and measured."""

    def graph(self, costs: str, note: Note) -> CostGraph:
        """Return the program's graph, with costs as in `ImportOptions`."""
        ...

    def write(self, graph: CostGraph, order: Sequence[int], output: str, note: Note) -> None:
        """Write the program in an order of its graph's ops, after a run that gave bitwise equal results.

        Raises
        ------
        ScheduleError
            If this is no order of the program, or its results would differ; then nothing is written.
        """
        ...

    def measure(
        self, graph: CostGraph, orders: Mapping[str, Sequence[int]], repeats: int, note: Note, on_run: OnRun
    ) -> list[Measurement]:
        """Run the program in program order, which is the first row, and in `orders` of its graph with measured costs.

        Raises
        ------
        ScheduleError
            If one is no order of the program.
        """
        ...


class RunnerKind(NamedTuple):
    """How programs of one kind are run.

    Parameters
    ----------
    entry
        The class, as `module:class`, which is made of a model, options and a function for notes; loaded when needed.
    suffix
        Of the file that it writes.
    written
        What that file is, for messages.
    repeats_ops
        Whether an op may stand in it several times.
    """

    entry: str
    suffix: str
    written: str
    repeats_ops: bool


_PACKAGE = "schedopt.core.programs"
RUNNERS = {
    "onnx": RunnerKind(f"{_PACKAGE}.onnx.runner:OnnxRunner", ".onnx", "an ONNX model is written as ONNX", False),
    "tflite": RunnerKind(
        f"{_PACKAGE}.tflite.runner:TfliteRunner", ".tflite", "a TFLite model is written as TFLite", True
    ),
    "pytorch": RunnerKind(
        f"{_PACKAGE}.pytorch.runner:TorchRunner", ".pt2", "a PyTorch program is written as an exported program", True
    ),
}


def runner_kind(model: str) -> RunnerKind:
    """Return how a model is run, by its name.

    Raises
    ------
    UsageError
        If a model of this kind cannot be run.
    """
    kind = kind_by_name(model)
    if kind not in RUNNERS:
        what = "an .onnx, .tflite or .pt2 file or module:function"
        raise UsageError(f"{model}: not a program that can be run; name {what}")
    return RUNNERS[kind]


def repeats_ops(model: str) -> bool:
    """Whether ops of a model may run again in what is written."""
    return runner_kind(model).repeats_ops


def load_runner(model: str, options: ImportOptions, note: Note) -> Runner:
    """Load a program.

    Raises
    ------
    UsageError
        If a model of this kind cannot be run, or has no use for an option.
    FormatError, ProgramError
        If it cannot be read.
    """
    kind = runner_kind(model)
    check_options(model, options)
    runner: Runner = load(kind.entry)(model, options, note)
    return runner


def check_output(model: str, output: str, *, overwrite: bool = False) -> None:
    """Find before the work what would keep a model from being written in another order.

    Parameters
    ----------
    model, output
        What is read, and where it is written.
    overwrite
        Whether the output may be the model itself, by this name or another one of the same file.

    Raises
    ------
    UsageError
        If the name does not end as it should, or is the model's own and that may not be overwritten.
    FormatError
        If the folder does not exist, or the output is one.
    """
    kind = runner_kind(model)
    if not output.endswith(kind.suffix):
        raise UsageError(f"{output}: {kind.written}; the name must end in {kind.suffix}")
    if not overwrite and _is_same(Path(output), Path(model)):
        raise UsageError(f"{output}: is the model itself; name another file, or write over it by --overwrite")
    check_writable(output)


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths are one file, by links of any kind."""
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))
