"""`schedopt.fit`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ..base.arrays import INT64_MAX
from ..base.errors import ProgramError, UsageError
from ..base.options import spelled
from ..base.tables import PrintedTable, number_table, titled
from ..base.units import Written, bytes_alike, format_bytes, parse_bytes
from ..bounds.bounds import memory_bound, recomputation_bound
from ..files.costgraph import SUFFIXES, read_graph
from ..files.schedule_json import reserved_fields
from ..graph.graph import CostGraph
from ..model.reserved import Requests, uses_cublas
from ..model.simulator import input_peak
from ..problem.machine import Machine
from ..problem.problem import Problem
from ..programs.importers import kind_by_name
from ..programs.options import ImportOptions, Size
from ..programs.runtime import load_runtime, runtime_kind
from ..report.result import Result
from ..search.method_spec import parse_method
from ..search.options import FitOptions
from ..search.registry import DEFAULT_METHOD, INPUT_METHOD, listed
from ..solve.placed import solve_and_place
from ..solve.solve import solve
from .graphs import Note
from .import_ import import_model

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from torch import nn
    from torch.export import ExportedProgram

    from ..programs.tflite.runtime import TfliteRuntime


AS_IT_IS, AS_TRACED = "as it is", "as traced, in program order"
IN_ANOTHER_ORDER, WITH_RECOMPUTATION = "in another order", "with recomputation"
ON_ALL_DEVICES = "on all devices"
SMALLEST, LARGEST = 1, 65_536
_STEP = 8
_NOT_PROVEN = "No way to fit it was found, and none is proven impossible."


@dataclass(frozen=True)
class FitOption:
    """A way to run a model, and the bytes that it needs on the fullest device."""

    # `as it is`, `as traced, in program order` (of PyTorch, whose own call is `as it is`), `in another order`,
    # `with recomputation`, `on 2 devices`, or `on all devices` of a machine
    name: str
    memory: int  # bytes that each device has; on a machine `device`, 2^63 - 1 if that has no limit
    # bytes that the best schedule found needs, verified; None if none was looked for, since the bound tells
    peak: int | None
    lower_bound: int | None  # bytes that no schedule of this way is below; None on all devices of a machine
    measured: int | None = None  # bytes that a run took; None if there was none
    result: Result | None = None  # the schedule, for all but program order
    device: str = ""  # of a machine, the one device, or that of all which has least room
    retries: int = 0  # how often in each run an allocator gives cached segments back and tries again

    @property
    def label(self) -> str:
        """The name with the device of a machine."""
        least = ", least room on " if self.name == ON_ALL_DEVICES else " on "
        return self.name + least * bool(self.device) + self.device

    @property
    def verdict(self) -> str:
        """`yes`, `no` (proven, or measured), or `not found`."""
        if self.measured is not None and self.measured > self.memory:
            return "no"
        if self.peak is not None and self.peak <= self.memory:
            return "yes"
        return "no" if self.is_proven_not or self.name == AS_IT_IS else "not found"

    @property
    def is_proven_not(self) -> bool:
        """Whether no schedule of this way fits."""
        is_below = self.lower_bound is None or self.lower_bound <= self.memory
        return not is_below or (self.result is not None and self.result.is_proven_infeasible)

    @property
    def added(self) -> str:
        """What it takes: repeated runs, of all ops' time or else of their number; retries; an opening block."""
        said = [f"{self.retries} retr{'y' if self.retries == 1 else 'ies'} a run"] if self.retries else []
        if self.result is not None and self.result.problem.recompute and self.verdict == "yes":
            unit = "runs" if self.result.problem.counts_runs else "time"
            said.insert(0, f"+{100 * self.result.added_share:.2f}% {unit}")
        reserved = None if self.result is None else self.result.reserved
        if reserved is not None and reserved.opening_block and self.verdict == "yes":
            place = "before the weights" if reserved.is_before_weights else "after the weights"
            said.append(f"opening block of {format_bytes(reserved.opening_block)} {place}")
            said += ["or none"] if self.retries else []
        return ", ".join(said)


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch with which a model fits in one way."""

    name: str  # as in `FitOption`
    batch: int  # the largest that fits, 0 if none does: the next one was tried, too
    peak: int | None  # bytes that it needs; None if there is none
    # bytes that one more needs, and whether it is proven not to fit: then these are what no schedule is below, else
    # those of the best one found. None and True if there is no such model.
    next_peak: int | None
    next_is_proven: bool
    limit: str = ""  # why there is no larger model, if that is so
    measured: int | None = None  # bytes that a run took with the largest; None if there was none


@dataclass(frozen=True, repr=False)
class Fit(PrintedTable):
    """Whether a model fits into the memory of a device, and how; prints as in `schedopt fit`."""

    name: str  # what the model is called
    memory: int | None  # bytes that each device has; None if a machine alone says it
    # in which ways it was tried, in the order of `name` in `FitOption`; recomputation and several devices only where it
    # does not fit otherwise. Empty if the largest batch was asked for.
    ways: tuple[FitOption, ...]
    batch: str | None = None  # the name of the size that was varied; None if none was
    batches: tuple[LargestBatch, ...] = ()  # the largest batch of each way, if that was asked for
    # bytes of weights, inputs and all else that stays throughout; 0 if the largest batch was asked for
    persistent: int = 0
    left_out: tuple[str, ...] = ()  # what takes memory, too, and is in no number that was not measured
    machine: Machine | None = None  # the devices that were asked about, if they are those of a machine

    @property
    def needs(self) -> str:
        """The heading of what is needed."""
        return "predicted" if self.left_out else "needs"

    @property
    def fits(self) -> bool:
        """Whether it fits in some way, or with some batch."""
        return any(way.verdict == "yes" for way in self.ways) or any(row.batch > 0 for row in self.batches)

    def _sizes(self) -> list[int]:
        """Return all bytes of the table."""
        ways = ((way.peak, way.lower_bound, way.measured) for way in self.ways)
        batches = ((row.peak, row.next_peak, row.measured) for row in self.batches)
        return [size for row in (*ways, *batches) for size in row if size is not None]

    def _written(self, alike: bool = False) -> Written:
        """Return how to write bytes: alike, also where one that is needed would read the same as the memory."""
        sizes, memory = self._sizes(), self.memory
        if memory is not None and any(size != memory and format_bytes(size) == format_bytes(memory) for size in sizes):
            return bytes_alike([*sizes, memory])
        return bytes_alike(sizes) if alike else format_bytes

    def title(self) -> str:
        """Return the line above the table."""
        if self.machine is not None:
            return f"{self.name}: does it fit on {listed([device.name for device in self.machine.devices], 'and')}?"
        assert self.memory is not None
        memory = self._written()(self.memory)
        return f"{self.name}: " + (f"largest {self.batch} in {memory}" if self.batch else f"does it fit into {memory}?")

    def _predicted(self, measured: int | None) -> str:
        """Return the words for a prediction that leaves something out, if there was no run."""
        return f" (predicted, without {listed(self.left_out, 'and')})" if self.left_out and measured is None else ""

    def sentence(self) -> str:
        """Return the answer."""
        if self.batch is not None:
            return self._batch_sentence()
        written = self._written()
        for way in self.ways:
            if way.verdict == "yes" and way.peak is not None:
                added = f", {way.added}" if way.added else ""
                of = "" if way.memory == INT64_MAX else f" of {written(way.memory)}"
                needed = written(max(way.peak, way.measured or 0))
                return f"It fits {way.label}: {needed}{of}{added}{self._predicted(way.measured)}."
        said = {way.name: way for way in self.ways}
        if self.machine is not None:
            return "No schedule fits (proven)." if said[ON_ALL_DEVICES].is_proven_not else _NOT_PROVEN
        assert self.memory is not None
        if self.persistent > self.memory:
            return f"Not on one device: weights and all else that stays take {written(self.persistent)}."
        order, recomputed = said[IN_ANOTHER_ORDER], said[WITH_RECOMPUTATION]
        if recomputed.lower_bound is not None and recomputed.lower_bound > self.memory:
            least = written(recomputed.lower_bound)
            return f"Not on one device: even with recomputation nothing is below {least} (proven)."
        if recomputed.is_proven_not:
            return f"Not on one device: no recomputation keeps {written(self.memory)} (proven)."
        if order.is_proven_not and order.lower_bound is not None:
            least = written(order.lower_bound)
            return f"No order is below {least} (proven), and no recomputation was found that fits; one may exist."
        return _NOT_PROVEN

    def _batch_sentence(self) -> str:
        best = max(self.batches, key=lambda row: row.batch)
        if not best.batch:
            return f"It does not fit with any {self.batch}."
        text = f"It fits with {self.batch} {best.batch:,} {best.name}"
        if (first := self.batches[0]) is not best:
            text += f"; {first.name} with {first.batch:,}" if first.batch else f"; not {first.name}"
        limit = f" No larger one is possible: {best.limit}" if best.limit else ""
        return f"{text}{self._predicted(best.measured)}.{limit}"

    def table(self) -> Table:
        """Return the table of `schedopt fit`, for Rich to print."""
        return _batch_table(self) if self.batch is not None else _way_table(self)

    def report(self) -> Iterator[RenderableType]:
        """Return the output of `schedopt fit`, for Rich to print."""
        return titled(self.title(), self.table(), self.sentence())

    def document(self) -> dict[str, Any]:
        """Return everything as plain Python values, bytes as whole numbers."""
        ways = [
            {
                **{"way": way.name, "verdict": way.verdict, "peak_memory": way.peak, "lower_bound": way.lower_bound},
                **({"device": way.device, "memory": way.memory} if way.device else {}),
                **({} if way.measured is None else {"measured_peak": way.measured}),
                **({"retries": way.retries} if way.retries else {}),
                **(reserved_fields(way.result.reserved) if way.result else {}),
                **({"added_share": way.result.added_share} if way.result and way.added.startswith("+") else {}),
            }
            for way in self.ways
        ]
        batches = [
            {
                **{"way": row.name, "batch": row.batch, "peak_memory": row.peak, "next_peak_memory": row.next_peak},
                **{"next_is_proven": row.next_is_proven, "limit": row.limit or None},
                **({} if row.measured is None else {"measured_peak": row.measured}),
            }
            for row in self.batches
        ]
        head: dict[str, Any] = {"model": self.name, "memory": self.memory, "fits": self.fits}
        measured = [*(way.measured for way in self.ways), *(row.measured for row in self.batches)]
        head |= {"predicted": not any(measured), "left_out": list(self.left_out)} if self.left_out else {}
        head |= {} if self.machine is None else {"machine": self.machine.document()}
        return {**head, "batch": self.batch, "batches": batches} if self.batch is not None else {**head, "ways": ways}


def _way_table(fit: Fit) -> Table:
    from rich.table import Table

    table = Table("")
    is_measured = any(way.measured is not None for way in fit.ways)
    is_added = any(way.added for way in fit.ways)
    for column in ("fits", fit.needs, "bound", *(("added",) if is_added else ()), *(("measured",) * is_measured)):
        table.add_column(column, justify="left" if column == "fits" else "right", no_wrap=True)
    memory = fit._written(alike=True)
    for way in fit.ways:
        is_predicted = way.verdict == "yes" and fit.left_out and way.measured is None
        how = " (predicted)" if is_predicted else " (proven)" * (way.verdict == "no" and way.is_proven_not)
        needs, bound = _optional(way.peak, memory), _optional(way.lower_bound, memory)
        cells = [way.label, f"[bold]{way.verdict}[/]{how}", needs, bound]
        cells += [way.added] * is_added
        table.add_row(*cells, *((_optional(way.measured, memory),) if is_measured else ()))
    return table


def _batch_table(fit: Fit) -> Table:
    is_measured = any(row.measured is not None for row in fit.batches)
    measures = ("measured",) if is_measured else ()
    table = number_table("", f"largest {fit.batch}", fit.needs, *measures, "one more needs")
    memory = fit._written(alike=True)
    for row in fit.batches:
        more = "no such model" if row.next_peak is None else memory(row.next_peak)
        if row.next_peak is not None and row.name not in (AS_IT_IS, AS_TRACED):
            more = f"at least {more}" if row.next_is_proven else f"{more} (found)"
        measured = (_optional(row.measured, memory),) if is_measured else ()
        table.add_row(row.name, f"[bold]{row.batch:,}[/]", _optional(row.peak, memory), *measured, more)
    return table


def _optional(value: int | None, written: Written) -> str:
    return "" if value is None else written(value)


class Need(NamedTuple):
    """Bytes that a batch needs."""

    peak: int  # bytes by the best schedule found
    bound: int  # bytes that no schedule is below


def largest_batch(name: str, need: Callable[[int], Need], memory: int, start: int = 2) -> LargestBatch:
    """Find the largest batch whose peak is within a memory, taking for granted that a larger one needs no less.

    The batch returned was tried, and so was the next one; a batch of which there is no model is one that does not fit.
    """
    needs = {start: need(start)}
    low, high = (start, LARGEST + 1) if needs[start].peak <= memory else (SMALLEST - 1, start)
    limit = ""
    while low + 1 < high:
        batch = _guess(needs, low, high, memory)
        try:
            needs[batch] = need(batch)
        except (ProgramError, UsageError) as error:
            if batch < min(needs):  # no smaller model: the smallest does not fit
                low = batch
            else:
                high, limit = batch, str(error)
            continue
        if needs[batch].peak <= memory:
            low = batch
        else:
            high, limit = batch, ""
    if low == LARGEST:
        peak = format_bytes(needs[low].peak)
        raise UsageError(f"with {LARGEST:,} the model needs {peak} and fits: its peak hardly grows with the batch")
    here, more = needs.get(low), needs.get(high)
    is_proven = more is None or more.bound > memory
    next_peak = None if more is None else more.bound if is_proven else more.peak
    return LargestBatch(name, low if here else 0, here.peak if here else None, next_peak, is_proven, limit)


def _guess(needs: dict[int, Need], low: int, high: int, memory: int) -> int:
    """Return the next batch to try, between one that fits and one that does not."""
    if low < SMALLEST:
        return (low + high) // 2
    most = min(high - 1, low * _STEP)
    if low + 1 == most or high - low <= 2:
        return low + 1
    if high <= LARGEST and len(needs) % 3 == 0:  # where the peak is no line, halves end sooner than lines do
        return (low + high) // 2
    known = sorted(needs)
    place = known.index(low)
    pair = known[place : place + 2] if place + 1 < len(known) else known[max(0, place - 1) : place + 1]
    if len(pair) < 2:
        return low + 1
    slope = (needs[pair[1]].peak - needs[pair[0]].peak) / (pair[1] - pair[0])
    if slope <= 0:
        return most
    return max(low + 1, min(most, low + int((memory - needs[low].peak) / slope)))


Progress = Callable[[str], None]


def _silent(text: str) -> None:
    """Drop a remark."""


def fit(
    model: CostGraph | str | os.PathLike[str] | nn.Module | ExportedProgram,
    memory: int | str | None = None,
    inputs: Any = None,
    *,
    devices: int = 1,
    machine: Machine | str | os.PathLike[str] | None = None,
    batch: str | None = None,
    training: str = "none",
    shapes: Mapping[str, Size] | None = None,
    device: str = "cpu",
    confirm: bool = False,
    allocator: str | None = None,
    time_limit: float | str | None = None,
    seed: int = 0,
    jobs: int = 1,
    note: Note = _silent,
    progress: Progress = _silent,
) -> Fit:
    """Say whether a model fits into a memory, as it is or otherwise, or the largest batch that does.

    Of a TFLite model, the least arena must fit in which TensorFlow Lite for Microcontrollers starts and runs it
    here; if it does not, its tensors alone, by a prediction that is marked as such.

    Parameters
    ----------
    model
        A graph, the path of its file, or a model as in `import_model`.
    memory
        Of each device, as `"8GiB"` or a number of bytes. Beside a machine that states the memories of its devices it
        may be left out, and limits each of them further.
    inputs, training, shapes, device
        The arguments of a PyTorch module, and the options of the import, as in `import_model`.
    devices
        The most devices to try, 1 to 64; 1 by default. It ends with the first number of them on which the model fits.
    machine
        A machine, or the path of its file: first the fastest of its devices that can run all ops is tried alone, then
        all of them together. By default equal devices.
    batch
        Instead, find the largest size of this name that fits: a symbolic dimension (ONNX, exported programs), or a
        keyword argument of `module:function`. By default the model has the size that it has.
    confirm
        Whether the order that fits on one device is run in a new process and its peak measured; not by default.
        Program order is run beside any other, since both must give the same results.
    allocator
        `"cuda"`, with options as in `solve`: the answer is about the bytes that PyTorch's caching allocator reserves,
        and says where it fits only as cached segments are given back in each run; by default live bytes.
    time_limit, seed, jobs
        Of each search for an order, as in `solve`; by default the time of `auto`, 0 and 1.
    note, progress
        Called with each remark worth showing, and with the present work; by default they are dropped.

    Returns
    -------
    Fit
        A row per way: as it is, in another order, with recomputation, on several devices; or per way the largest
        batch, without recomputation. Printed, it is a table and a sentence.

    Raises
    ------
    UsageError
        If a value is not understood, there is no size of this name, or the peak does not grow with it.
    FormatError, GraphError, ProgramError
        If the model cannot be read, traced or run.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("chain")
    >>> source = builder.add_op("source", outputs=[1024])
    >>> sink = builder.add_op("sink", inputs=[(source, 0)], outputs=[2048])
    >>> fit = schedopt.fit(builder.build(), "4KiB")
    >>> fit.fits, fit.sentence()
    (True, 'It fits as it is: 3.00 KiB of 4.00 KiB.')
    """
    asked = FitOptions.picked(locals())
    imported = {"training": training, "shapes": dict(shapes or {}), "device": device}
    if memory is None and asked.machine is None:
        raise UsageError(f"give {spelled('memory')}, as 8GiB, or {spelled('machine')}")
    limit = INT64_MAX if memory is None else parse_bytes(memory, spelled("memory"))
    question = _Question(model, inputs, limit, asked, imported, note, progress)
    question.check(batch)
    if asked.machine is not None:
        return question.fit_on_machine(asked.machine)
    return question.fit() if batch is None else question.fit_of_batches(batch)


@dataclass
class _Question:
    """The question, the model, and the options of its import."""

    model: Any
    inputs: Any
    memory: int
    asked: FitOptions
    options: dict[str, Any]
    note: Note
    progress: Progress
    graphs: dict[int, CostGraph] = field(default_factory=dict)

    def check(self, batch: str | None) -> None:
        """Refuse impossible questions, before anything is imported."""
        if self.memory == 0:
            raise UsageError("the memory must be more than 0; write it like 8GiB")
        if self.is_graph:
            given = [*ImportOptions(**self.options).changed]
            if self.inputs is not None or given:
                what = "inputs" if self.inputs is not None else given[0]
                raise UsageError(f"a graph has its sizes and costs; {what} is for a model that is imported")
        if self.asked.confirm:
            if not isinstance(self.model, (str, os.PathLike)) or self.is_graph:
                raise UsageError("a run in a new process needs a model in a file or as module:function")
            runtime_kind(os.fspath(self.model))
        if batch is not None and (self.is_graph or not isinstance(self.model, (str, os.PathLike))):
            raise UsageError("the largest batch is found for an .onnx or .pt2 file, or module:function")
        if self.asked.allocator is not None and self.arenas is not None:
            raise UsageError(f"{self.model}: a TFLite model has an arena; leave {spelled('allocator')} out")
        if batch is not None and self.arenas is not None:
            raise UsageError(f"{self.model}: a TFLite model has fixed sizes; there is no batch to find")
        if batch in self.options["shapes"]:
            raise UsageError(f"'{batch}' is the size to find; leave its value out")

    @property
    def is_graph(self) -> bool:
        """Whether the model is a graph already."""
        if isinstance(self.model, (str, os.PathLike)):
            path = os.fspath(self.model)
            return path == "-" or path.endswith(tuple(SUFFIXES))
        return isinstance(self.model, CostGraph)

    @property
    def _program_order(self) -> str:
        """The name of program order: that of a trace is not how PyTorch runs the model itself."""
        is_file = isinstance(self.model, (str, os.PathLike))
        is_torch = not self.is_graph and (not is_file or kind_by_name(os.fspath(self.model)) == "pytorch")
        return AS_TRACED if is_torch else AS_IT_IS

    @cached_property
    def arenas(self) -> TfliteRuntime | None:
        """The program, if its runtime keeps all its tensors in one arena, which then must fit."""
        if not isinstance(self.model, (str, os.PathLike)) or kind_by_name(os.fspath(self.model)) != "tflite":
            return None
        return cast("TfliteRuntime", load_runtime(os.fspath(self.model), ImportOptions(**self.options), self.note))

    def fit(self) -> Fit:
        """Try every way."""
        graph = self._graph()
        bound = self._predicted(graph)
        least = None if self.arenas is None else self.arenas.arena(graph)
        first = FitOption(self._program_order, self.memory, bound if least is None else least, bound)
        if (allocator := self.asked.allocator) is not None:
            requests = Requests(graph, allocator)
            run = requests.events(graph.input_order)
            first = replace(first, peak=requests.reserved(run))
            if first.verdict == "no":
                peak, retries = requests.least_capacity(run, bound, [(0, True)])
                first = replace(first, peak=peak, retries=retries) if peak <= self.memory else first
        ways = self._confirmed(first, self._solved(IN_ANOTHER_ORDER, graph, 1))
        if not any(way.verdict == "yes" for way in ways):
            ways.append(self._recomputed(graph))
        for devices in range(2, self.asked.devices + 1):
            if any(way.verdict == "yes" for way in ways):
                break
            ways.append(self._solved(f"on {devices} devices", graph, devices))
        held, left_out = int(graph.persistent.sum()), self._left_out(graph)
        return Fit(graph.name, self.memory, tuple(ways), persistent=held, left_out=left_out)

    def fit_on_machine(self, machine: Machine) -> Fit:
        """Try every way on the fastest device that can run all ops, and then all devices together."""
        if self.arenas is not None:
            raise UsageError(f"{self.model}: a TFLite model runs on one device; give {spelled('memory')} alone")
        given = None if self.memory == INT64_MAX else self.memory
        problem = Problem(self._graph(), machine=machine, memory_limit=given)
        if not problem.is_limited:
            raise UsageError(f"no device of the machine has a memory; give {spelled('memory')}")
        ways: list[FitOption] = []
        limits = [INT64_MAX if limit is None else limit for limit in problem.memory_limits]
        totals = np.where(problem.rules.allowed, problem.rules.times, np.inf).sum(axis=0)
        alone = min(range(len(totals)), key=lambda device: (totals[device], -machine.devices[device].speed))
        if np.isfinite(totals[alone]):
            self.memory = limits[alone]
            ways += (replace(way, device=machine.devices[alone].name) for way in self.fit().ways)
        if not any(way.verdict == "yes" for way in ways):
            result = self._result(problem, ON_ALL_DEVICES)
            peaks = result.simulation.peak_per_device.tolist()
            full = max(range(len(limits)), key=lambda device: peaks[device] / limits[device])
            name = machine.devices[full].name
            ways.append(FitOption(ON_ALL_DEVICES, limits[full], peaks[full], None, result=result, device=name))
        left_out = self._left_out(self._graph())
        return Fit(problem.graph.name, given, tuple(ways), left_out=left_out, machine=machine)

    def fit_of_batches(self, batch: str) -> Fit:
        """Find the largest batch of each way, the later ones from the earlier on."""

        def program_order(size: int) -> Need:
            peak = input_peak(self._graph(batch, size))
            return Need(peak, peak)

        ways: list[tuple[str, Callable[[int], Need]]] = [(self._program_order, program_order)]
        for devices in range(1, self.asked.devices + 1):
            name = IN_ANOTHER_ORDER if devices == 1 else f"on {devices} devices"
            ways.append((name, lambda size, d=devices: self._need(batch, size, d)))  # type: ignore[misc]
        rows: list[LargestBatch] = []
        start = 2
        for name, need in ways:
            rows.append(largest_batch(name, need, self.memory, start))
            start = max(start, rows[-1].batch)
        if self.asked.confirm:
            rows[:2] = self._confirmed_batches(batch, rows[0], rows[1])
        graph = next(iter(self.graphs.values()))
        return Fit(graph.name, self.memory, (), batch, tuple(rows), left_out=self._left_out(graph))

    def _left_out(self, graph: CostGraph) -> tuple[str, ...]:
        """Return what takes memory, too, and is not in the needs; a TFLite model that runs here needs what it takes."""
        annotations = graph.annotations
        if self.arenas is not None:
            return () if self.arenas.arena(graph) is not None else (*annotations.left_out, "the runtime's own bytes")
        unread = sum(resident.size for resident in annotations.residents if resident.op < 0)
        others = [f"{format_bytes(unread)} that no op reads"] if unread else []
        if (allocator := self.asked.allocator) and not allocator.cublas_workspace and uses_cublas(graph):
            others.append("cuBLAS's workspaces (cublas_workspace:default counts them)")
        return (*annotations.left_out, *others)

    def _graph(self, batch: str = "", size: int = 0) -> CostGraph:
        """Return the model's graph, of a size if one is asked for; remarks are made of the first alone."""
        if size not in self.graphs:
            self.progress(f"importing{f' {batch}={size:,}' if batch else ''}")
            self.graphs[size] = self._imported({batch: size} if batch else {})
            self.note = _silent
        return self.graphs[size]

    def _imported(self, sizes: Mapping[str, int]) -> CostGraph:
        if isinstance(self.model, CostGraph):
            return self.model
        if self.arenas is not None:
            graph = self.arenas.graph("roofline", self.note)
            self.note((_PREDICTED if self.arenas.arena(graph) is None else _LEAST).format(self.model))
            return graph
        if self.is_graph:
            return read_graph(os.fspath(self.model), self.note)
        options = {**self.options, "shapes": {**self.options["shapes"], **sizes}}
        return import_model(self.model, self.inputs, **options, note=self.note)

    def _solved(self, name: str, graph: CostGraph, devices: int) -> FitOption:
        """Look for a schedule, unless none can fit on these several devices."""
        problem = Problem(graph, devices=devices)
        bound = memory_bound(problem)
        if devices > 1 and bound > self.memory:
            return FitOption(name, self.memory, None, bound)
        result = self._result(problem, name)
        return self._option(name, result, int(result.lower_bound))

    def _option(self, name: str, result: Result, bound: int) -> FitOption:
        """Return the row of a schedule; what an allocator reserves may be more than it cannot do without."""
        reserved, peak, retries = result.reserved, self._needed(result), 0
        if reserved is not None:
            peak = reserved.peak
            if reserved.least_capacity <= self.memory < peak:
                peak, retries = reserved.least_capacity, reserved.retries
        return FitOption(name, self.memory, peak, bound, result=result, retries=retries)

    def _needed(self, result: Result) -> int:
        """Return the need of a schedule: its peak, or the least arena in which its order runs, or is predicted to."""
        if self.arenas is None or result.problem.devices > 1:
            return result.peak_memory
        graph, order = result.problem.graph, result.schedule.op_order().tolist()
        least = self.arenas.arena(graph, order)
        return self._predicted(graph, order) if least is None else least

    def _predicted(self, graph: CostGraph, order: Sequence[int] | None = None) -> int:
        """Return the peak of an order by the model, or of program order; of an arena without a run's extra bytes."""
        if self.arenas is None:
            return input_peak(graph)
        return self.arenas.predicted(graph, order)[0] + int(graph.persistent.sum())

    def _recomputed(self, graph: CostGraph) -> FitOption:
        """Look for a schedule in which ops run again, unless none can fit; run it, if that is asked for."""
        least, _ = recomputation_bound(graph)
        if least > self.memory:
            return FitOption(WITH_RECOMPUTATION, self.memory, None, least)
        beside = 0 if self.arenas is None else self.arenas.tail - int(graph.persistent.sum())
        limit = max(least, self.memory - beside)
        problem = Problem(graph, task="runtime", memory_limit=limit, recompute=True)
        result = self._result(problem, WITH_RECOMPUTATION)
        way = self._option(WITH_RECOMPUTATION, result, least)
        if self.arenas is not None and result.is_proven_infeasible:
            way = replace(way, result=None)  # the proof is of the tail here, which is smaller elsewhere
        if self.asked.confirm and way.verdict == "yes":
            way = replace(way, measured=self._measured(result, {})[-1])
        return way

    def _need(self, batch: str, size: int, devices: int) -> Need:
        """Return the need of a size on one or several devices; looks for an order only where that can matter."""
        graph = self._graph(batch, size)
        problem = Problem(graph, devices=devices)
        bound, now = memory_bound(problem), input_peak(graph)
        if now <= self.memory or bound > self.memory:
            return Need(now if now <= self.memory else bound, bound)
        result = self._result(problem, f"{batch}={size:,}")
        return Need(result.peak_memory, int(result.lower_bound))

    def _result(self, problem: Problem, about: str) -> Result:
        limit = problem.memory_limit
        now = format_bytes(input_peak(problem.graph))
        wanted = f"less than {now}" if limit is None else f"at most {format_bytes(limit)}"
        self.progress(f"{about}: looking for a schedule of {wanted}")
        return solve_and_place(problem, parse_method(DEFAULT_METHOD), None, self.asked.allocator, **self.asked.budget)

    def _confirmed(self, first: FitOption, order: FitOption) -> list[FitOption]:
        """Return the ways on one device with the peak of a run, if it is asked for and they should fit."""
        assert order.result is not None
        if not self.asked.confirm or order.verdict != "yes":
            return [first, order]
        own, *runs = self._measured(order.result, {})
        if first.verdict == "yes":
            first = replace(first, measured=runs[0])
        ways = [first, replace(order, measured=runs[-1])]
        if own is None:
            return ways
        try:
            needs = own if self.asked.allocator is None else self._own_reserved()
        except ProgramError as error:
            self.note(f"{error}; what it reserves {AS_IT_IS} is left out")
            return ways
        return [FitOption(AS_IT_IS, self.memory, needs, int(self._graph().persistent.sum()), measured=own), *ways]

    def _own_reserved(self) -> int:
        """Return what an allocator reserves in two of the user's own calls; a run tells no more than live bytes."""
        from ..programs.pytorch.program import call_function
        from .testing import count_peak

        options = ImportOptions(**self.options)
        call, inputs = call_function(self.model, options.plain_shapes)
        return count_peak(call, inputs, self.asked.allocator, self.model, options.device, self.note).memory

    def _confirmed_batches(
        self, batch: str, first: LargestBatch, order: LargestBatch
    ) -> tuple[LargestBatch, LargestBatch]:
        """Return the rows of both ways on one device with the peak of a run of their largest batch."""
        if order.batch:
            problem = Problem(self._graph(batch, order.batch))
            runs = self._measured(self._result(problem, f"{batch}={order.batch:,}"), {batch: order.batch})
            order = replace(order, measured=runs[-1])
            if first.batch == order.batch:
                return replace(first, measured=runs[1]), order
        if first.batch:
            problem = Problem(self._graph(batch, first.batch))
            first = replace(first, measured=self._measured(solve(problem, INPUT_METHOD), {batch: first.batch})[1])
        return first, order

    def _measured(self, result: Result, sizes: Mapping[str, int]) -> list[int | None]:
        """Run the model itself, in program order and in another one, each in a new process; return peaks in bytes."""
        model = os.fspath(self.model)
        options = ImportOptions(**{**self.options, "shapes": {**self.options["shapes"], **sizes}})
        self.progress("running it to measure its peak")
        runtime = self.arenas or load_runtime(model, options, self.note)
        graph = runtime.graph("measured", _silent)
        order = result.schedule.op_order().tolist()
        rows = runtime.measure(graph, {"the order found": order}, 1, self.note, lambda *_: None)
        if len(rows) < 2:  # Ctrl-C keeps what is done, which tells nothing here
            raise KeyboardInterrupt
        if not all(row.is_equal for row in rows):
            raise ProgramError(f"{model}: its results differ from run to run, or in the order that was found")
        if self.arenas is not None:
            found = (self.arenas.arena(graph), self.arenas.arena(graph, order))
            return [None, *(arena for arena in found if arena is not None)]
        return [rows[0].own_peak, *(row.measured_peak for row in rows)]


_LEAST = (
    "{0}: needs is the least arena in which it starts and runs on this 64-bit machine; a microcontroller needs less. "
    "The bound leaves out the runtime's own bytes"
)
_PREDICTED = (
    "{0}: does not run here; needs is predicted from its tensors and the runtime's planner, without the runtime's own "
    "bytes"
)
