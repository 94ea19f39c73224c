"""Runtimes: programs that run in the order of a schedule file, and all that their frameworks have in common."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np

from ..base.errors import OtherGraphError, ScheduleError, UsageError
from ..base.units import format_bytes
from ..files.atomic import check_writable
from ..files.schedule_json import LoadedSchedule, read_schedule
from ..graph.graph import CostGraph
from ..model.simulator import simulate
from ..model.verifier import verify
from ..problem.problem import Problem
from ..problem.schedule import Schedule
from .fresh_process import ask
from .importers import IMPORTERS, Importer, check_options, kind_by_name, load
from .measurement import PROGRAM_ORDER, Measurement, OnRun, measurement, run_rounds
from .options import ImportOptions, Roofline


def problem_of(graph: CostGraph, order: Sequence[int]) -> Problem:
    """Return the problem that an order of a program's ops is a schedule of: one in which ops run again if some do."""
    return Problem(graph, recompute=len(set(order)) < len(order))


def check_order(graph: CostGraph, order: Sequence[int]) -> None:
    """Have an order of a program's ops verified, in which some may run several times."""
    verify(problem_of(graph, order), Schedule.single_device(np.array(order)))


def read_order(path: str, graph: CostGraph, *, force: bool = False) -> list[int]:
    """Read a schedule of a program's graph: its ops in the order they run, some several times perhaps."""
    return one_device_order(path, read_program_schedule(path, graph, force=force), graph)


def one_device_order(path: str, loaded: LoadedSchedule, graph: CostGraph) -> list[int]:
    """Return the ops of a graph in the order of a schedule that was read."""
    used = len(used_devices(loaded.schedule))
    if used > 1:
        raise UsageError(
            f"{path}: the schedule uses {used} devices, and a program runs on one; solve with --devices 1, or write "
            "the modules of a PyTorch model with apply --format device-map"
        )
    return [op for op in loaded.schedule.op_order().tolist() if op < graph.num_ops]


def used_devices(schedule: Schedule) -> set[int]:
    """Return the devices that a schedule uses, be it for a transfer alone."""
    return set(chain(schedule.sources.tolist(), schedule.targets.tolist()))


def read_program_schedule(path: str, graph: CostGraph, *, force: bool = False) -> LoadedSchedule:
    """Read a schedule of a program's graph."""
    try:
        return read_schedule(path, graph, force=force)
    except OtherGraphError as error:
        remark = "it is of another model, or imported with other --training or --shape"
        raise type(error)(f"{error}: {remark}") from None


Note = Callable[[str], None]
Version = TypeVar("Version")
"""A program in another order, as its framework has it."""


class Runtime(ABC, Generic[Version]):
    """A program, loaded once by the framework that runs it: imported, written in another order, measured.

    `model` is a file or `module:function`, `options` say how it is imported, and `note` is called with each remark.
    Raises `FormatError`, `ProgramError` or `UsageError` if it cannot be loaded.
    """

    runs: ClassVar[str]
    """The function that runs the program once, in a process of its own; see `fresh_process.ask`."""

    def __init__(self, model: str, options: ImportOptions, note: Note) -> None:
        self.model, self.options = model, options
        self.roofline = Roofline(options.flops, options.memory_bandwidth)
        self.load(note)

    @abstractmethod
    def load(self, note: Note) -> None:
        """Read the program."""

    @abstractmethod
    def graph(self, costs: str, note: Note) -> CostGraph:
        """Return the program's graph, with `costs` as in `ImportOptions`."""

    @abstractmethod
    def reordered(self, graph: CostGraph, order: Sequence[int]) -> Version:
        """Return the program in an order of its graph's ops, in which some may run several times."""

    @abstractmethod
    def results(self, version: Version | None) -> dict[str, str]:
        """Run a version, or the program as it is, on fixed inputs; return a digest by the name of each result."""

    @abstractmethod
    def save(self, version: Version, output: str, note: Note) -> None:
        """Write a version to a file."""

    @abstractmethod
    def question(self, graph: CostGraph, order: Sequence[int] | None, file: Path) -> dict[str, Any]:
        """Return what `runs` is asked for a run in an order, or in program order; `file` is free to be written.

        It answers with `peak`, the bytes held at most beside those of `held`; `digests` of the results; and what
        `time_runs` tells.
        """

    def held(self, graph: CostGraph) -> int:
        """Return the bytes that the caller holds throughout: parameters, buffers, inputs."""
        return int(graph.persistent.sum())

    def predicted(self, graph: CostGraph, order: Sequence[int] | None) -> tuple[int, float]:
        """Return the bytes that an order holds at most beside those of `held`, and its microseconds."""
        ops = np.asarray(graph.input_order if order is None else order)
        cost = simulate(problem_of(graph, ops.tolist()), Schedule.single_device(ops))
        return cost.peak - int(graph.persistent.sum()), cost.runtime

    def own_peak(self) -> int | None:
        """Run the model itself and return the most bytes held; None where program order is all that can be run."""
        return None

    def reason(self) -> str:
        """Return why results may differ, to end a sentence; empty where nothing is known."""
        return ""

    def remark(self, reports: Mapping[str, Sequence[Mapping[str, Any]]], note: Note) -> None:
        """Say what is worth knowing of the runs of each order."""

    def check(self, graph: CostGraph, order: Sequence[int]) -> None:
        """Raise `ScheduleError` unless this is an order of the program."""
        check_order(graph, order)

    def source(self, note: Note) -> str:
        """Return what the program's results are those of: the model, unless a note says why not."""
        return self.model

    def write(self, graph: CostGraph, order: Sequence[int], output: str, note: Note) -> str:
        """Write the program in an order of its graph's ops, after a run that gave bitwise equal results of `source`.

        Raises `ScheduleError` if this is no order of the program, or its results would differ; then nothing is written.
        """
        self.check(graph, order)
        version = self.reordered(graph, order)
        check_equal(self.model, self.results(None), self.results(version), self.reason())
        self.save(version, output, note)
        return self.source(note)

    def measure(
        self,
        graph: CostGraph,
        orders: Mapping[str, Sequence[int]],
        repeats: int,
        note: Note,
        on_run: OnRun = lambda number, total, order: None,
    ) -> list[Measurement]:
        """Run the program in program order and in `orders` of its graph, which has measured costs.

        In each of `repeats` rounds every order runs once, in a process of its own; one that is program order has the
        runs of that. Program order comes first; Ctrl-C leaves only what ran. Raises `ProgramError` if a run fails.
        """
        every: dict[str, Sequence[int] | None] = {PROGRAM_ORDER: None, **orders}
        same = [label for label, order in orders.items() if self._is_program_order(graph, order)]
        with tempfile.TemporaryDirectory(prefix="schedopt-") as folder:
            questions = {
                label: self.question(graph, order, Path(folder) / str(number))
                for number, (label, order) in enumerate(every.items())
            }
            held = self.held(graph)
            if unread := held - int(graph.persistent.sum()):
                what = f"{format_bytes(unread)} of parameters, buffers and inputs"
                note(f"{self.model}: {what} that no op reads are held too")

            own_peak = self.own_peak()  # before the rounds, whose runs an error or Ctrl-C here would take along

            def run_once(label: str) -> Any:
                return ask(self.runs, questions[label], f"{self.model}, {label}")

            reports = run_rounds(run_once, [label for label in every if label not in same], repeats, on_run)
        self.remark(reports, note)
        reports.update((label, reports[PROGRAM_ORDER]) for label in same)
        expected = reports[PROGRAM_ORDER][0]["digests"]
        rows = [
            measurement(label, self.predicted(graph, order), reports[label], held, expected)
            for label, order in every.items()
            if reports[label]
        ]
        return [replace(rows[0], own_peak=own_peak), *rows[1:]]

    def _is_program_order(self, graph: CostGraph, order: Sequence[int]) -> bool:
        """Whether the program in an order is the program as it is; one that is planned anew may be another."""
        is_same = list(order) == graph.input_order.tolist()
        return is_same and self.predicted(graph, order) == self.predicted(graph, None)


def check_equal(name: str, expected: Mapping[str, str], found: Mapping[str, str], reason: str = "") -> None:
    """Raise `ScheduleError` if the digest of a result differs; the message names the result."""
    for result, digest in expected.items():
        if found[result] != digest:
            raise ScheduleError(f"{name}: {result} would not be bitwise what it is in program order{reason}")


def runtime_kind(model: str) -> Importer:
    """Return the kind of a model by its name; raise `UsageError` if such models cannot be run."""
    importer = IMPORTERS.get(kind_by_name(model) or "")
    if importer is None or not importer.suffix:
        raise UsageError(
            f"{model}: not a program that can be run; name an .onnx, .tflite or .pt2 file or module:function"
        )
    return importer


def load_runtime(model: str, options: ImportOptions, note: Note) -> Runtime[Any]:
    """Load a program; raise `UsageError` if it cannot be run or has no use for an option, or as `Runtime`."""
    kind = runtime_kind(model)
    check_options(model, options)
    return cast("Runtime[Any]", load(kind.entry)(model, options, note))


def check_output(model: str, output: str, *, overwrite: bool = False, is_header: bool = False) -> None:
    """Raise an error before the work if a model, or its arena, could not be written here, or is here itself."""
    kind = runtime_kind(model)
    if is_header and kind.suffix != ".tflite":
        raise UsageError(f"{model}: a C header is of the arena of a TFLite model; leave out --format c-header")
    what, suffix = ("a C header", ".h") if is_header else (kind.what, kind.suffix)
    if not output.endswith(suffix):
        raise UsageError(f"{output}: {what} is written to a file whose name must end in {suffix}")
    one, other = Path(output), Path(model)
    is_same = one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))
    if is_same and not overwrite:
        raise UsageError(f"{output}: is the model itself; name another file, or write over it by --overwrite")
    check_writable(output)
