"""Result of solving a problem: a verified schedule, how good it is, and how to read, save and draw it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...version import VERSION
from ..base.names import one_line
from ..base.tables import PrintedTable, escape
from ..base.units import Written, bytes_alike, format_bytes, format_change, shares_alike, times_alike
from ..bounds.bounds import memory_bound
from ..files.atomic import write_atomically
from ..files.costgraph import structure_hash
from ..files.schedule_json import FORMAT, add_offsets, address_fields, format_document, reserved_fields, steps_document
from ..model.simulator import Simulation, input_peak, simulate
from ..model.timeline import Timeline, timeline_of
from ..problem.problem import Problem
from ..problem.residents import first_home, model_of
from ..problem.schedule import Addresses, Reserved, Schedule
from ..search.plans import Plans
from ..search.registry import INPUT_METHOD, method_of
from .explanation import explain, explain_makespan, layers_again, runs_again

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table


IN_INPUT_ORDER, OPENING = "reserved in the input order", "opening block: "
"""What is reserved without a plan, and how a note begins that says what to open."""
CHANGED = "the order was changed for "


def reference_value(problem: Problem, *, keeps_limits: bool = False) -> float:
    """Return the least value, as results have it, of the input order on one device, the first if they are equal."""
    found = (value for excess, value, _ in _in_input_order(problem) if not (keeps_limits and excess))
    return problem.shown(min(found, default=math.inf))


def reference_timeline(problem: Problem) -> Timeline:
    """Record the input order on one device, the best one for it."""
    schedule = min(_in_input_order(problem), key=lambda found: found[1])[2]
    return timeline_of(INPUT_METHOD, problem, schedule)


def _in_input_order(problem: Problem) -> Iterator[tuple[float, float, Schedule]]:
    """Yield by how much the input order on a device exceeds the limits, its value, and its schedule."""
    order = problem.graph.input_order
    schedules = [Schedule.single_device(order)] if problem.machine.is_equal else Plans(problem).schedules_along(order)
    for schedule in schedules:
        cost = simulate(problem, schedule)
        time = problem.time_of(problem.graph.num_ops, cost.runtime)
        yield *problem.fitness(cost.peak_per_device.tolist(), time), schedule


@dataclass(frozen=True, eq=False, repr=False)
class Result(PrintedTable):
    """A verified schedule and how good it is; printed, it is the table of `schedopt solve`.

    Parameters
    ----------
    problem, schedule, simulation
        The problem, the best schedule found, and its cost.
    method, found_by
        The method asked for, and the one that produced the schedule.
    status
        `optimal` (value equals the bound), `feasible`, `infeasible` (it is proven that no schedule keeps the limit),
        `limit-not-met` (none was found that does) or `interrupted`. Above the limit, it is the schedule of least
        excess.
    lower_bound
        Bytes, a share of a device's memory, or microseconds that no schedule can beat, as the value is.
    evaluations, seconds, seed
        Complete schedules priced, wall time once the kernels are compiled, and the seed of every random choice.
    is_repeatable
        Whether the same call gives the same schedule: not if time ended or steered the search.
    notes
        Notes on the run, a sentence each.
    is_proven_infeasible
        Whether it is proven that no schedule keeps the memory limit, with recomputation however much runs again; the
        last note says why.
    addresses
        The offsets of each step's outputs, and the arenas that this takes; None if that was not asked for.
    reserved, reserved_otherwise
        What an allocator reserves, None if that was not asked for; and in which other ways how many bytes.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("chain")
    >>> source = builder.add_op("source", outputs=[1024])
    >>> sink = builder.add_op("sink", inputs=[(source, 0)], outputs=[2048])
    >>> result = schedopt.solve(builder.build(), "input")
    >>> result.peak_memory, result.lower_bound, result.status
    (3072, 3072, 'optimal')
    >>> result.order
    ('source', 'sink')
    """

    problem: Problem
    schedule: Schedule
    simulation: Simulation
    method: str
    found_by: str
    status: str
    lower_bound: float
    evaluations: float
    seconds: float
    seed: int
    is_repeatable: bool
    notes: tuple[str, ...] = ()
    is_proven_infeasible: bool = False
    addresses: Addresses | None = None
    reserved: Reserved | None = None
    reserved_otherwise: Mapping[str, int] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The objective of the task: peak bytes, a share of a memory, microseconds, or runs where all count alike."""
        return self.problem.shown(self.problem.fitness(self.simulation.peak_per_device.tolist(), self._time)[1])

    @property
    def _time(self) -> float:
        return self.problem.time_of(len(self.schedule), self.simulation.runtime)

    @property
    def peak_memory(self) -> int:
        """Bytes on the fullest device."""
        return self.simulation.peak

    @property
    def runtime(self) -> float:
        """Makespan in microseconds."""
        return self.simulation.runtime

    @property
    def gap(self) -> float:
        """Relative distance from the lower bound: 0 is optimal."""
        return self.value / self.lower_bound - 1 if self.lower_bound else math.inf if self.value else 0.0

    @property
    def is_feasible(self) -> bool:
        """Whether the schedule keeps the memory limit, and that of the time."""
        return self.problem.is_feasible(self._limited, self._time)

    @property
    def _limited(self) -> list[int]:
        """Bytes per device that a memory limit is about: live ones, or what an allocator reserves."""
        return [self.reserved.peak] if self.reserved else self.simulation.peak_per_device.tolist()

    @property
    def limited_peak(self) -> int:
        """Bytes of the fullest device that a memory limit is about."""
        return max(self._limited)

    @property
    def excess(self) -> int:
        """Bytes above the limit of the worst device, or microseconds above that of the time, if that is more."""
        return self.problem.fitness(self._limited, self._time)[0]

    @property
    def added_share(self) -> float:
        """The repeated runs, as a share of the time of all ops once; of their number where no op has a runtime."""
        total = float(self.problem.op_times.sum())
        return self._time / total - 1 if len(self.schedule) > self.problem.graph.num_ops else 0.0

    @cached_property
    def input_value(self) -> float:
        """Value of the input order with all ops on device 0."""
        return reference_value(self.problem)

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the ops in the order they run, on whatever device."""
        names, own = self.problem.graph.op_names, first_home(self.problem.graph)
        return tuple(names[op] for op in self.schedule.op_order().tolist() if op < own)

    @property
    def placement(self) -> dict[str, int]:
        """The device of each op, by its name, in the order of the graph; then that of each resident with a home."""
        graph = self.problem.graph
        return dict(zip(graph.op_names, self.schedule.placement(graph).tolist(), strict=True))

    def table(self) -> Table:
        """Return the table of `schedopt solve`, for Rich to print."""
        return _recompute_table(self) if self.problem.recompute else _table(self)

    def title(self) -> str:
        """Return the line above the table, which names the graph."""
        graph = model_of(self.problem.graph)
        return f"{one_line(graph.name)}: {graph.num_ops:,} ops, {graph.num_data_tensors:,} tensors"

    def explain(self) -> str:
        """Return the causes of the peak or the makespan, a sentence a line, as below the table of `schedopt solve`.

        Where ops may run again: which of them do, and how much each adds. Empty for the peak on several devices.
        """
        if self.problem.recompute:
            said = (runs_again(self.problem, self.schedule), layers_again(self.problem, self.schedule))
            return "\n".join(filter(None, said))
        if self.problem.task == "runtime" and self.runtime:
            what = (self.problem, self.schedule, self.simulation, self.input_value, self.lower_bound)
            return "\n".join(explain_makespan(*what)[0 if self.is_feasible else 1 :])
        if self.problem.task == "runtime" or self.problem.devices > 1:
            return ""

        bound, before = (self.in_bytes(value) for value in (self.lower_bound, self.input_value))
        limit = self.problem.memory_limits[0]
        if not self.is_feasible and limit is not None:  # what is proven of orders that keep it; all others are above it
            bound = max(memory_bound(self.problem), min(bound, limit + 1))
        bound, is_optimal = min(bound, self.peak_memory), self.status == "optimal"
        found = explain(self.problem, self.schedule, self.simulation, before, bound, is_optimal)
        return "\n".join(found[1 if self.is_proven_infeasible else 0 :])  # the last note says more

    def in_bytes(self, value: float) -> int:
        """Return a value of the memory task on one device in bytes."""
        return round(value * self.problem.whole) if self.problem.counts_shares else int(value)

    def document(self) -> dict[str, Any]:
        """Return the schedule file as plain Python values; `docs/concepts/formats.md` defines them."""
        problem, graph = self.problem, self.problem.graph
        peaks = self.simulation.peak_per_device.tolist()
        evaluations = round(self.evaluations, 3)
        bounds = {"peak_share": self.value, "peak_share_bound": self.lower_bound}
        if not problem.counts_shares:
            bounds = {"lower_bound": int(self.lower_bound) if problem.task == "memory" else self.lower_bound}
        steps = steps_document(problem, self.schedule, self.simulation)
        if self.addresses is not None:
            add_offsets(steps, graph, self.schedule, self.addresses)
        return {
            "schedopt": VERSION,
            "format": FORMAT,
            "graph": graph.name,
            **({"imported": dict(graph.annotations.imported)} if graph.annotations.imported else {}),
            "graph_sha256": structure_hash(model_of(graph)),
            "method": self.method,
            "status": self.status,
            **problem.document(),
            "seed": self.seed,
            "repeatable": self.is_repeatable,
            "peak_memory": max(peaks),
            "peak_memory_per_device": peaks,
            "runtime_us": self.simulation.runtime,
            **bounds,
            **address_fields(self.addresses),
            **reserved_fields(self.reserved),
            "evaluations": int(evaluations) if evaluations.is_integer() else evaluations,
            "seconds": round(self.seconds, 3),
            "found_by": self.found_by,
            "steps": steps,
        }

    def json(self) -> str:
        """Return the schedule file, with one step a line."""
        return format_document(self.document())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schedule file, as `schedopt solve --output` does; FormatError if it cannot be written."""
        write_atomically(path, self.json())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the memory over the steps, on several devices a Gantt chart; in a notebook the chart shows itself."""
        from .plots.draw import plot_schedule

        return plot_schedule(timeline_of(self.method, self.problem, self.schedule, self.addresses), ax)


def _table(result: Result) -> Table:
    """Return the table of a result in which every op runs once."""
    from rich.table import Column, Table

    problem, before = result.problem, result.input_value
    memory, time = _writers(result)
    is_memory = problem.task == "memory"
    value, name = (memory, "peak memory") if is_memory else (time, "makespan")
    if problem.counts_shares:
        value, name = shares_alike((result.value, before, result.lower_bound)), "largest share"
    table = Table("", Column(name, justify="right"), Column("against input", justify="right"))
    where = "device 0" if problem.machine.is_equal else "the best device"
    table.add_row(f"input order, {where}", value(before), "")
    table.add_row(_name(result), f"[bold]{value(result.value)}[/]", f"[bold]{format_change(result.value, before)}[/]")
    table.add_row("lower bound", value(result.lower_bound), format_change(result.lower_bound, before))
    table.add_section()
    table.add_row("status", *_status(result))
    other = ("makespan", time(result.runtime)) if is_memory else ("peak memory", memory(result.peak_memory))
    table.add_row(*other, "")
    kept = f"exceeded by {memory(result.excess)}" if result.excess else "kept"
    if not problem.machine.is_anonymous and problem.is_limited:
        table.add_row("memory of the devices", "", kept)
    elif problem.memory_limit is not None:
        table.add_row("memory limit per device", _limit(problem.memory_limit, memory), kept)
    if problem.devices > 1:
        _add_devices(table, result, memory, time)
    _add_rest(table, result, memory, "time")
    return table


def _recompute_table(result: Result) -> Table:
    """Return the table of a result in which ops may run again."""
    from rich.table import Column, Table

    problem, graph, runs = result.problem, result.problem.graph, len(result.schedule)
    once, taken = float(problem.op_times.sum()), problem.time_of(runs, result.runtime)
    before, memory = input_peak(graph), _writers(result)[0]
    times = problem.format_time if problem.counts_runs else times_alike([once, taken, problem.runtime_limit or once])
    table = Table("", *(Column(name, justify="right") for name in ("peak memory", "time", "added time")))
    table.add_row("input order", memory(before), times(once), "")
    found = (memory(result.peak_memory), times(taken), _added(result, taken - once))
    table.add_row(_name(result), *(f"[bold]{text}[/]" for text in found))
    if result.is_proven_infeasible:
        table.add_row("lower bound", memory(memory_bound(problem)), "", "")
    else:
        bound = result.lower_bound if problem.task == "runtime" else once
        peak = result.lower_bound if problem.task == "memory" else memory_bound(problem)
        table.add_row("lower bound", memory(peak), times(bound), _added(result, bound - once))
    table.add_section()
    status, about = _status(result)
    table.add_row("status", status, "", about)
    if problem.memory_limit is not None:
        excess = max(result._limited) - problem.memory_limit
        kept = "kept" if excess <= 0 else f"exceeded by {memory(excess)}"
        table.add_row("memory limit", _limit(problem.memory_limit, memory), "", kept)
    if problem.runtime_limit is not None:
        kept = "kept" if result.is_feasible else "exceeded"
        table.add_row("limit of the time", "", times(problem.runtime_limit), kept)
    again = int((np.bincount(result.schedule.items, minlength=graph.num_ops) > 1).sum())
    more = runs - graph.num_ops
    table.add_row("ops that run again", f"{again:,} of {graph.num_ops:,}", f"{more:,} run{'s' * (more != 1)}", "")
    _add_rest(table, result, memory, "search")
    return table


def _name(result: Result) -> str:
    """Return the method's name in the table."""
    return f"[bold]{result.method}[/]" + (f" ({result.found_by})" if result.found_by != result.method else "")


def _limit(limit: int, memory: Written) -> str:
    """Write a limit as the table does, but for one of few bytes, which was perhaps not meant: it is to be seen."""
    text = memory(limit)
    return format_bytes(limit) if text.startswith("<") else text


def _writers(result: Result) -> tuple[Written, Written]:
    """Return how the table writes bytes and microseconds, each in one unit; compared values are told apart."""
    problem, limit = result.problem, result.problem.memory_limit
    arenas = result.addresses.arenas if result.addresses else ()
    sizes = [float(result.peak_memory), *(size for arena in arenas for size in (arena.size, arena.bound))]
    if result.reserved:
        sizes += (*result.reserved_otherwise.values(), result.reserved.peak, result.reserved.bound)
    times = [result.runtime]
    if problem.recompute:
        sizes += (input_peak(problem.graph), memory_bound(problem))
    elif not problem.counts_shares:
        (sizes if problem.task == "memory" else times).extend((result.input_value, result.lower_bound))
    if limit is not None:
        sizes.append(limit)
    return bytes_alike(sizes, also=result.simulation.peak_per_device.tolist()), times_alike(times)


def _add_devices(table: Table, result: Result, memory: Written, time: Written) -> None:
    schedule, graph, times = result.schedule, result.problem.graph, result.problem.rules.times
    is_op = (schedule.items >= 0) & (schedule.items < first_home(graph))
    for device, peak in enumerate(result.simulation.peak_per_device.tolist()):
        ops = schedule.items[is_op & (schedule.targets == device)]
        busy = time(float(times[ops, device].sum()))
        name = result.problem.machine.devices[device].name
        limit = None if result.problem.machine.is_anonymous else result.problem.memory_limits[device]
        room = "" if limit is None else f" of {format_bytes(limit)}"
        table.add_row(
            f"{escape(name)}: {len(ops):,} op{'s' * (len(ops) != 1)}", f"{memory(peak)}{room}", f"busy {busy}"
        )
    moved = schedule.items[schedule.items < 0]
    if len(moved):
        table.add_row("transfers", f"{len(moved):,}", memory(int(graph.tensor_size[~moved].sum())))


def _add_rest(table: Table, result: Result, memory: Written, seconds: str) -> None:
    """Add arenas with their distance from the bytes of one moment, what the allocator reserves, and the budget used."""
    arenas = result.addresses.arenas if result.addresses else ()
    for device, arena in enumerate(arenas):
        name = "arena" if len(arenas) == 1 else f"arena of device {device}"
        above = "optimal for this order" if arena.is_optimal else f"{100 * (arena.size / arena.bound - 1):.2f}% above"
        table.add_row(name, memory(arena.size), above)
        table.add_row("  alive at once, the bound", memory(arena.bound))
    if reserved := result.reserved:
        (what, before), *others = result.reserved_otherwise.items()
        table.add_section()
        table.add_row(what, memory(before))
        table.add_row(f"reserved by {reserved.allocator}", memory(reserved.peak), format_change(reserved.peak, before))
        if reserved.opening_block:
            place = "before the weights" if reserved.is_before_weights else "after the weights"
            table.add_row("  opening block", memory(reserved.opening_block), place)
        for what, size in (*others, ("lower bound", reserved.bound)):
            table.add_row(f"  {what}", memory(size), format_change(size, before))
        retries = f"{reserved.retries} retr{'y' if reserved.retries == 1 else 'ies'} a run"
        table.add_row("  least capacity", memory(reserved.least_capacity), retries)
        table.add_section()
    if method_of(result.method).counts_evaluations:
        table.add_row("evaluations", f"{result.evaluations:,.0f}")
    table.add_row(seconds, f"{result.seconds:.2f} s")


def _added(result: Result, time: float) -> str:
    """Return an added time with its share of that of all ops."""
    share = 100 * time / float(result.problem.op_times.sum())
    return "none" if share <= 1e-10 else f"+{share:.2f}%, {result.problem.format_time(time)}"


def _status(result: Result) -> tuple[str, str]:
    """Return the status, and how far the value is from its bound, if that says something."""
    if result.status == "infeasible":
        return result.status, "proven"
    if result.status == "optimal" or not result.is_feasible:
        return result.status, ""
    reserved = None if result.problem.recompute else result.reserved  # of which the status is then
    gap = reserved.peak / reserved.bound - 1 if reserved and reserved.bound else result.gap
    return result.status, "at the bound" if gap <= 0 else f"gap to bound {100 * gap:.2f}%"


def changed_order(what: str, more: int) -> str:
    """Return the note that an order was changed for something, and by how many bytes its peak rose."""
    above = f"; its peak is {format_bytes(more)} above that of the order which was found" if more > 0 else ""
    return f"{CHANGED}{what}{above}"
