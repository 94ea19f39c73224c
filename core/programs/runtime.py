"""Runtimes: programs that run in the order of a schedule file, and the measurements of their runs."""

from __future__ import annotations

import math
import statistics
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np

from ..base.errors import OtherGraphError, ScheduleError, UsageError
from ..base.units import format_bytes, format_microseconds
from ..files.atomic import check_writable, is_same_file
from ..files.schedule_json import LoadedSchedule, read_schedule
from ..graph.graph import CostGraph
from ..model.simulator import Simulation, simulate
from ..model.verifier import verify
from ..problem.problem import RUNTIME_TOLERANCE, Problem
from ..problem.schedule import Schedule
from ..report.summaries import interval_factor
from .fresh_process import ask
from .importers import IMPORTERS, Importer, check_options, kind_by_name, load
from .options import ImportOptions, Roofline


@dataclass(frozen=True)
class TimeDifference:
    """How much longer one order takes than another, as shares: 0.1 is 10% longer."""

    change: float  # geometric mean of the rounds
    # 95% interval; None with a single round, which tells nothing of noise
    low: float | None = None
    high: float | None = None

    @property
    def is_noise(self) -> bool:
        """Whether the rounds do not tell the two apart."""
        return self.low is None or self.high is None or self.low <= 0 <= self.high

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{_percent(self.change)} in one round, so noise is unknown"
        interval = f"95% interval {_percent(self.low)} to {_percent(self.high)}"
        if self.is_noise:
            return f"no difference beyond noise ({interval})"  # the medians beside it may differ the other way
        return f"{abs(100 * self.change):.0f}% {'slower' if self.change > 0 else 'faster'} ({interval})"


def time_difference(before: Sequence[float], after: Sequence[float]) -> TimeDifference:
    """Compare the times of two orders in the same rounds, microseconds: Student's paired t-test of their log ratios."""
    ratios = [math.log(two / one) for one, two in zip(before, after, strict=False)]
    mean = statistics.fmean(ratios)
    if len(ratios) < 2:
        return TimeDifference(math.expm1(mean))
    half = interval_factor(len(ratios)) * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return TimeDifference(math.expm1(mean), math.expm1(mean - half), math.expm1(mean + half))


def _percent(share: float) -> str:
    return f"{100 * share:+.0f}%"


PROGRAM_ORDER = "program order"
_NOTED_FAULTS = 0.1

OnRun = Callable[[int, int, str], None]  # told before each run: its number, how many there are, and the order that runs


@dataclass(frozen=True)
class Measurement:
    """The runs of a program in one order, each in a process of its own."""

    order: str  # `program order`, or the schedule's file
    predicted_peak: int  # bytes, by the cost model with measured costs
    # bytes, one per process: held by the caller (parameters, buffers, inputs), and most held by the allocator
    measured_peaks: tuple[int, ...]
    microseconds: tuple[float, ...]  # median of the warm runs, one per process
    # outputs, and all that is updated in place, are bitwise those of program order in every run
    is_equal: bool
    runs: tuple[tuple[float, ...], ...] = ()  # microseconds of each warm run, a row per process
    page_faults: tuple[float, ...] = ()  # per run, one per process
    # as `microseconds`, with freed memory kept; see `time_runs`
    kept_microseconds: tuple[float, ...] = ()
    predicted_microseconds: float = 0.0  # of all ops, each as often as it runs
    memory_limit: int | None = None  # bytes
    own_peak: int | None = None  # of program order where that is a trace: bytes of a call of the model itself

    @property
    def measured_peak(self) -> int:
        """The largest peak of all runs, bytes."""
        return max(self.measured_peaks)

    @property
    def keeps_limit(self) -> bool | None:
        """Whether the memory limit was kept in every run; None where there is none."""
        return None if self.memory_limit is None else self.measured_peak <= self.memory_limit

    @property
    def error(self) -> float:
        """How far the predicted peak is from the measured one, relative to that."""
        return self.predicted_peak / self.measured_peak - 1 if self.measured_peak else 0.0

    @property
    def median_microseconds(self) -> float:
        """Median time of a run."""
        return statistics.median(self.microseconds)

    def time_against(self, other: Measurement) -> TimeDifference:
        """Return how much longer this order takes than another that ran in the same rounds."""
        return time_difference(other.microseconds, self.microseconds)


def time_sentences(row: Measurement, first: Measurement) -> list[str]:
    """Say whether an order takes more time than program order or less, and whether that is the work or the memory."""
    if row.runs and row.runs == first.runs:
        return [f"{row.order} is program order, so it was not run again."]
    said = [f"Time of {row.order}: {row.time_against(first)}."]
    if row.predicted_microseconds > first.predicted_microseconds * (1 + RUNTIME_TOLERANCE):
        added = 100 * (row.predicted_microseconds / first.predicted_microseconds - 1)
        took, before = (format_microseconds(one.predicted_microseconds) for one in (row, first))
        said.append(f"Predicted: +{added:.2f}%, because ops run again: {took} for all, {before} in program order.")
    if all(one.kept_microseconds in ((), one.microseconds) for one in (row, first)):
        return said
    faults, others = statistics.median(row.page_faults), statistics.median(first.page_faults)
    if abs(faults - others) > _NOTED_FAULTS * max(faults, others):
        kept = time_difference(first.kept_microseconds, row.kept_microseconds)
        said.append(f"It has {faults:,.0f} page faults a run, not {others:,.0f}: freed memory is given back.")
        said.append(f"If it is kept: {kept}.")
    return said


def limit_sentences(row: Measurement) -> list[str]:
    """Say whether an order kept its memory limit in every run; nothing where it has none."""
    if row.memory_limit is None:
        return []
    limit = format_bytes(row.memory_limit)
    if row.keeps_limit:
        return [f"Memory limit of {row.order}: {limit}, kept in every run."]
    excess = format_bytes(row.measured_peak - row.memory_limit)
    runs = f"{sum(peak > row.memory_limit for peak in row.measured_peaks)} of {len(row.measured_peaks)} runs"
    return [f"Memory limit of {row.order}: {limit}, exceeded by up to {excess} in {runs}."]


def run_rounds(
    run: Callable[[str], Mapping[str, Any]], orders: Sequence[str], repeats: int, on_run: OnRun
) -> dict[str, list[Mapping[str, Any]]]:
    """Run the orders in turn, each round beginning with another one; Ctrl-C leaves the reports of finished runs."""
    reports: dict[str, list[Mapping[str, Any]]] = {order: [] for order in orders}
    number, total = 0, repeats * len(orders)
    try:
        for beginning in range(repeats):
            shift = beginning % len(orders)
            for order in (*orders[shift:], *orders[:shift]):
                number += 1
                on_run(number, total, order)
                reports[order].append(run(order))
    except KeyboardInterrupt:
        if not reports[orders[0]]:
            raise
    return reports


def problem_of(graph: CostGraph, order: Sequence[int]) -> Problem:
    """Return the problem that an order of a program's ops is a schedule of: one in which ops run again if some do."""
    return Problem(graph, recompute=len(set(order)) < len(order))


def check_order(graph: CostGraph, order: Sequence[int]) -> None:
    """Have an order of a program's ops verified, in which some may run several times."""
    verify(problem_of(graph, order), Schedule.single_device(np.array(order)))


def cost_of(graph: CostGraph, order: Sequence[int]) -> Simulation:
    """Return the cost of an order of a program's ops on one device."""
    return simulate(problem_of(graph, order), Schedule.single_device(np.array(order)))


def read_order(path: str, graph: CostGraph, *, force: bool = False) -> tuple[list[int], LoadedSchedule]:
    """Read a schedule of a program's graph: its ops as they run, some several times perhaps, and the whole file."""
    loaded = read_program_schedule(path, graph, force=force)
    used = len({*loaded.schedule.sources.tolist(), *loaded.schedule.targets.tolist()})  # be it for a transfer alone
    if used > 1:
        raise UsageError(
            f"{path}: the schedule uses {used} devices, and a program runs on one; solve with --devices 1, or write "
            "the modules of a PyTorch model with apply --format device-map"
        )
    return [op for op in loaded.schedule.op_order().tolist() if op < graph.num_ops], loaded


def read_program_schedule(path: str, graph: CostGraph, *, force: bool = False) -> LoadedSchedule:
    """Read a schedule of a program's graph."""
    try:
        return read_schedule(path, graph, force=force)
    except OtherGraphError as error:
        raise type(error)(f"{error}: it is of another model, or imported with other --training or --shape") from None


Note = Callable[[str], None]
Version = TypeVar("Version")  # a program in another order, as its framework has it


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

    def check_file(self) -> None:
        """Refuse a program that no file can hold."""

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
        """Return the question to `runs` for a run in an order, or in program order; `file` is free to be written.

        It answers with `peak`, the bytes held at most beside those of `held`; `digests` of the results; and the output
        of `time_runs`.
        """

    def held(self, graph: CostGraph) -> int:
        """Return the bytes that the caller holds throughout: parameters, buffers, inputs."""
        return int(graph.persistent.sum())

    def predicted(self, graph: CostGraph, order: Sequence[int] | None) -> tuple[int, float]:
        """Return the bytes that an order holds at most beside those of `held`, and its microseconds."""
        cost = cost_of(graph, graph.input_order.tolist() if order is None else order)
        return cost.peak - int(graph.persistent.sum()), cost.runtime

    def own_peak(self) -> int | None:
        """Run the model itself and return the most bytes held; None where program order is all that can be run."""
        return None

    def reason(self) -> str:
        """Return why results may differ, to end a sentence; empty where nothing is known."""
        return ""

    def remark(self, reports: Mapping[str, Sequence[Mapping[str, Any]]], note: Note) -> None:
        """Return the remarks on the runs of each order."""

    def source(self, note: Note) -> str:
        """Return the reference of the program's results: the model, unless a note says why not."""
        return self.model

    def write(self, graph: CostGraph, order: Sequence[int], output: str, note: Note) -> str:
        """Write the program in an order of its graph's ops, after a run that gave bitwise equal results of `source`.

        Raises `ScheduleError` if this is no order of the program, or its results would differ; then nothing is written.
        """
        self.check_file()
        check_order(graph, order)
        version = self.reordered(graph, order)
        check_equal(self.model, self.results(None), self.results(version), self.reason())
        self.save(version, output, note)
        return self.source(note)

    def record(self, graph: CostGraph, order: Sequence[int] | None, snapshot: str) -> None:
        """Run an order on a GPU, and write the snapshot of its allocator."""
        with tempfile.TemporaryDirectory(prefix="schedopt-") as folder:
            question = self.question(graph, order, Path(folder) / "code")
            ask(self.runs, {**question, "snapshot": str(Path(snapshot).absolute())}, self.model)

    def measure(
        self,
        graph: CostGraph,
        orders: Mapping[str, Sequence[int]],
        repeats: int,
        note: Note,
        on_run: OnRun = lambda number, total, order: None,
        limits: Mapping[str, int | None] = MappingProxyType({}),
    ) -> list[Measurement]:
        """Run the program in program order and in `orders` of its graph, which has measured costs.

        In each of `repeats` rounds every order runs once, in a process of its own; one that is program order has the
        runs of that. Program order comes first; Ctrl-C leaves only finished runs. Raises `ProgramError` if a run fails.
        """
        every: dict[str, Sequence[int] | None] = {PROGRAM_ORDER: None, **orders}
        first = graph.input_order.tolist()  # a version that is planned anew may be another than the program as it is
        same = [
            label
            for label, order in orders.items()
            if list(order) == first and self.predicted(graph, order) == self.predicted(graph, None)
        ]
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
            run = lambda label: ask(self.runs, questions[label], f"{self.model}, {label}")  # noqa: E731
            reports = run_rounds(run, [label for label in every if label not in same], repeats, on_run)
        self.remark(reports, note)
        reports.update((label, reports[PROGRAM_ORDER]) for label in same)
        rows = []
        for label in filter(reports.get, every):
            peak, microseconds = self.predicted(graph, every[label])
            names = ("microseconds", "page_faults", "kept_microseconds")
            row = Measurement(
                order=label,
                predicted_peak=held + peak,
                predicted_microseconds=microseconds,
                measured_peaks=tuple(held + report["peak"] for report in reports[label]),
                is_equal=all(report["digests"] == reports[PROGRAM_ORDER][0]["digests"] for report in reports[label]),
                runs=tuple(tuple(report["runs"]) for report in reports[label]),
                memory_limit=limits.get(label),
                own_peak=own_peak if label == PROGRAM_ORDER else None,
                **{name: tuple(report[name] for report in reports[label]) for name in names},
            )
            rows.append(row)
        return rows


def check_equal(name: str, expected: Mapping[str, str], found: Mapping[str, str], reason: str = "") -> None:
    """Raise `ScheduleError` if the digest of a result differs; the message names the result."""
    for result, digest in expected.items():
        if found[result] != digest:
            raise ScheduleError(f"{name}: {result} would not be bitwise what it is in program order{reason}")


def runtime_kind(model: str) -> Importer:
    """Return the kind of a model by its name; raise `UsageError` if such models cannot be run."""
    importer = IMPORTERS.get(kind_by_name(model) or "")
    if importer is None or not importer.suffix:
        what = "not a program that can be run; name an .onnx, .tflite or .pt2 file or module:function"
        raise UsageError(f"{model}: {what}")
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
    if is_same_file(output, model) and not overwrite:
        raise UsageError(f"{output}: is the model itself; name another file, or write over it by --overwrite")
    check_writable(output)
