"""Fit of a model into a memory, and the largest batch: the search, the answers, their words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.arrays import INT64_MAX
from ..base.errors import ProgramError, UsageError
from ..base.tables import PrintedTable, number_table, titled
from ..base.units import Written, bytes_alike, format_bytes
from ..problem.machine import Machine
from ..report.result import Result
from ..search.registry import listed

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

AS_IT_IS, AS_TRACED = "as it is", "as traced, in program order"
IN_ANOTHER_ORDER, WITH_RECOMPUTATION = "in another order", "with recomputation"
ON_ALL_DEVICES = "on all devices"
SMALLEST, LARGEST = 1, 65_536
_STEP = 8
_NOT_PROVEN = "No way was found in which it fits; that none exists is not proven."


@dataclass(frozen=True)
class FitOption:
    """A way to run a model, and what it needs on the fullest device."""

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
        """What runs again, of the time of all ops or, where none has one, of their number; empty if nothing may."""
        if self.result is None or not self.result.problem.recompute or self.verdict != "yes":
            return ""
        return f"+{100 * self.result.added_share:.2f}% {'runs' if self.result.problem.counts_runs else 'time'}"


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
    """Whether a model fits into the memory of a device, and how; printed, it is what `schedopt fit` prints."""

    name: str  # what the model is called
    memory: int | None  # bytes that each device has; None if a machine alone says it
    # in which ways it was tried, in the order of `name` in `FitOption`; recomputation and several devices only where it
    # does not fit otherwise. Empty if the largest batch was asked for.
    ways: tuple[FitOption, ...]
    batch: str | None = None  # the name of the size that was varied; None if none was
    batches: tuple[LargestBatch, ...] = ()  # the largest batch of each way, if that was asked for
    # bytes of weights, inputs and all else that stays throughout; 0 if the largest batch was asked for
    persistent: int = 0
    is_predicted: bool = False  # a program that should run, to tell what it needs, and does not run here
    machine: Machine | None = None  # the devices that were asked about, if they are those of a machine

    @property
    def fits(self) -> bool:
        """Whether it fits in some way, or with some batch."""
        return any(way.verdict == "yes" for way in self.ways) or any(row.batch > 0 for row in self.batches)

    def title(self) -> str:
        """Return the line above the table."""
        if self.machine is not None:
            return f"{self.name}: does it fit on {listed([device.name for device in self.machine.devices], 'and')}?"
        assert self.memory is not None
        memory = format_bytes(self.memory)
        return f"{self.name}: " + (f"largest {self.batch} in {memory}" if self.batch else f"does it fit into {memory}?")

    def sentence(self) -> str:
        """Return the answer."""
        if self.batch is not None:
            return self._batch_sentence()
        for way in self.ways:
            if way.verdict == "yes" and way.peak is not None:
                added = f", {way.added}" if way.added else ""
                predicted = " (predicted)" if self.is_predicted else ""
                of = "" if way.memory == INT64_MAX else f" of {format_bytes(way.memory)}"
                return f"It fits {way.label}: {format_bytes(way.peak)}{of}{added}{predicted}."
        said = {way.name: way for way in self.ways}
        if self.machine is not None:
            is_proven = said[ON_ALL_DEVICES].is_proven_not
            return "No schedule fits (proven)." if is_proven else _NOT_PROVEN
        assert self.memory is not None
        if self.persistent > self.memory:
            return f"Not on one device: weights and all else that stays take {format_bytes(self.persistent)}."
        order, recomputed = said[IN_ANOTHER_ORDER], said[WITH_RECOMPUTATION]
        if recomputed.lower_bound is not None and recomputed.lower_bound > self.memory:
            least = format_bytes(recomputed.lower_bound)
            return f"Not on one device: even with recomputation nothing is below {least} (proven)."
        if recomputed.is_proven_not:
            return f"Not on one device: no recomputation keeps {format_bytes(self.memory)} (proven)."
        if order.is_proven_not and order.lower_bound is not None:
            least = format_bytes(order.lower_bound)
            return f"No order is below {least} (proven), and no recomputation was found that fits; one may exist."
        return _NOT_PROVEN

    def _batch_sentence(self) -> str:
        best = max(self.batches, key=lambda row: row.batch)
        if not best.batch:
            return f"It does not fit with any {self.batch}."
        text = f"It fits with {self.batch} {best.batch:,} {best.name}"
        if (first := self.batches[0]) is not best:
            text += f"; {first.name} with {first.batch:,}" if first.batch else f"; not {first.name}"
        return f"{text}." + (f" No larger one is possible: {best.limit}" if best.limit else "")

    def table(self) -> Table:
        """Return the table of `schedopt fit`, for Rich to print."""
        return _batch_table(self) if self.batch is not None else _way_table(self)

    def report(self) -> Iterator[RenderableType]:
        """Return what `schedopt fit` prints, for Rich to print."""
        return titled(self.title(), self.table(), self.sentence())

    def document(self) -> dict[str, Any]:
        """Return everything as plain Python values, bytes as whole numbers."""
        ways = [
            {
                **{"way": way.name, "verdict": way.verdict, "peak_memory": way.peak, "lower_bound": way.lower_bound},
                **({"device": way.device, "memory": way.memory} if way.device else {}),
                **({} if way.measured is None else {"measured_peak": way.measured}),
                **({"added_share": way.result.added_share} if way.result is not None and way.added else {}),
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
        head |= {"predicted": True} if self.is_predicted else {}
        head |= {} if self.machine is None else {"machine": self.machine.document()}
        return {**head, "batch": self.batch, "batches": batches} if self.batch is not None else {**head, "ways": ways}


def _way_table(fit: Fit) -> Table:
    from rich.table import Table

    table = Table("")
    is_measured = any(way.measured is not None for way in fit.ways)
    is_added = any(way.added for way in fit.ways)
    column_of_needs = "predicted" if fit.is_predicted else "needs"
    for column in ("fits", column_of_needs, "bound", *(("added",) if is_added else ()), *(("measured",) * is_measured)):
        table.add_column(column, justify="left" if column == "fits" else "right", no_wrap=True)
    sizes = [size for way in fit.ways for size in (way.peak, way.lower_bound, way.measured) if size is not None]
    memory = bytes_alike(sizes)
    for way in fit.ways:
        proven = " (proven)" if way.verdict == "no" and way.is_proven_not else ""
        needs, bound = _optional(way.peak, memory), _optional(way.lower_bound, memory)
        cells = [way.label, f"[bold]{way.verdict}[/]{proven}", needs, bound]
        cells += [way.added] * is_added
        table.add_row(*cells, *((_optional(way.measured, memory),) if is_measured else ()))
    return table


def _batch_table(fit: Fit) -> Table:
    is_measured = any(row.measured is not None for row in fit.batches)
    measures = ("measured",) if is_measured else ()
    table = number_table("", f"largest {fit.batch}", "needs", *measures, "one more needs")
    sizes = (size for row in fit.batches for size in (row.peak, row.next_peak, row.measured) if size is not None)
    memory = bytes_alike(sizes)
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
    """What a batch needs."""

    peak: int  # bytes by the best schedule found
    bound: int  # bytes that no schedule is below


def largest_batch(name: str, need: Callable[[int], Need], memory: int, start: int = 2) -> LargestBatch:
    """Find the largest batch whose peak is within a memory, taking for granted that a larger one needs no less.

    The peak is nearly linear in the batch, so from two batches a line says where to look; the batch returned was
    tried, and so was the next one. A batch of which there is no model (a size that the program excludes) ends the
    search like one that does not fit.
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
    at = low + int((memory - needs[low].peak) / slope)
    return max(low + 1, min(most, at))
