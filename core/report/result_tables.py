"""Tables of `schedopt solve`: what was found, beside the input order and the bound."""

# ruff: noqa: D102 - `Result` says what each is

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..base.units import Written, bytes_alike, format_bytes, format_change, times_alike
from ..bounds.bounds import memory_bound
from ..model.simulator import Simulation, input_peak
from ..problem.addresses import Addresses
from ..problem.problem import Problem
from ..problem.residents import first_home
from ..problem.schedule import Schedule
from ..search.registry import method_of

if TYPE_CHECKING:
    from rich.table import Table


class Found(Protocol):
    """What the tables show of a `Result`."""

    @property
    def problem(self) -> Problem: ...
    @property
    def schedule(self) -> Schedule: ...
    @property
    def simulation(self) -> Simulation: ...
    @property
    def method(self) -> str: ...
    @property
    def found_by(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def lower_bound(self) -> float: ...
    @property
    def evaluations(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def is_proven_infeasible(self) -> bool: ...
    @property
    def addresses(self) -> Addresses | None: ...
    @property
    def value(self) -> float: ...
    @property
    def gap(self) -> float: ...
    @property
    def input_value(self) -> float: ...
    @property
    def peak_memory(self) -> int: ...
    @property
    def runtime(self) -> float: ...
    @property
    def is_feasible(self) -> bool: ...


def result_table(result: Found) -> Table:
    """Return the table of a result in which every op runs once."""
    from rich.table import Table

    problem, before = result.problem, result.input_value
    memory, time = _writers(result)
    value = memory if problem.task == "memory" else time
    table = Table()
    table.add_column("")
    table.add_column("peak memory" if problem.task == "memory" else "makespan", justify="right")
    table.add_column("against input", justify="right")
    where = "device 0" if problem.hardware.is_equal else "the best device"
    table.add_row(f"input order, {where}", value(before), "")
    table.add_row(_name(result), f"[bold]{value(result.value)}[/]", f"[bold]{format_change(result.value, before)}[/]")
    table.add_row("lower bound", value(result.lower_bound), format_change(result.lower_bound, before))
    table.add_section()
    table.add_row("status", *_status(result))
    if problem.task == "memory":
        table.add_row("makespan", time(result.runtime), "")
    else:
        table.add_row("peak memory", memory(result.peak_memory), "")
    if problem.machine is not None and problem.is_limited:
        excess = problem.fitness(result.simulation.peak_per_device.tolist(), 0.0)[0]
        table.add_row("memory of the devices", "", "kept" if not excess else f"exceeded by {memory(excess)}")
    elif problem.memory_limit is not None:
        excess = result.peak_memory - problem.memory_limit
        kept = "kept" if excess <= 0 else f"exceeded by {memory(excess)}"
        table.add_row("memory limit per device", _limit(problem.memory_limit, memory), kept)
    if problem.devices > 1:
        _add_devices(table, result, memory, time)
    _add_arenas(table, result, memory)
    if method_of(result.method).counts_evaluations:
        table.add_row("evaluations", f"{result.evaluations:,.0f}", "")
    table.add_row("time", f"{result.seconds:.2f} s", "")
    return table


def recompute_table(result: Found) -> Table:
    """Return the table of a result in which ops may run again."""
    from rich.table import Table

    problem, graph, runs = result.problem, result.problem.graph, len(result.schedule)
    once = float(problem.op_times.sum())
    taken = problem.time_of(runs, result.runtime)
    before = input_peak(graph)
    memory = _writers(result)[0]
    times = problem.format_time if problem.counts_runs else times_alike([once, taken, problem.runtime_limit or once])
    table = Table()
    for name in ("", "peak memory", "time", "added time"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("input order", memory(before), times(once), "")
    table.add_row(
        _name(result),
        f"[bold]{memory(result.peak_memory)}[/]",
        f"[bold]{times(taken)}[/]",
        f"[bold]{_added(result, taken - once)}[/]",
    )
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
        excess = result.peak_memory - problem.memory_limit
        kept = "kept" if excess <= 0 else f"exceeded by {memory(excess)}"
        table.add_row("memory limit", _limit(problem.memory_limit, memory), "", kept)
    if problem.runtime_limit is not None:
        kept = "kept" if result.is_feasible else "exceeded"
        table.add_row("limit of the time", "", times(problem.runtime_limit), kept)
    again = int((np.bincount(result.schedule.items, minlength=graph.num_ops) > 1).sum())
    more = runs - graph.num_ops
    table.add_row("ops that run again", f"{again:,} of {graph.num_ops:,}", f"{more:,} run{'s' * (more != 1)}", "")
    _add_arenas(table, result, memory)
    if method_of(result.method).counts_evaluations:
        table.add_row("evaluations", f"{result.evaluations:,.0f}", "", "")
    table.add_row("search", f"{result.seconds:.2f} s", "", "")
    return table


def _name(result: Found) -> str:
    """Return what the table calls the method."""
    return f"[bold]{result.method}[/]" + (f" ({result.found_by})" if result.found_by != result.method else "")


def _limit(limit: int, memory: Written) -> str:
    """Write a limit as the table does, but for one of few bytes, which was perhaps not meant: it is to be seen."""
    text = memory(limit)
    return format_bytes(limit) if text.startswith("<") else text


def _writers(result: Found) -> tuple[Written, Written]:
    """Return how the table writes bytes and microseconds, each in one unit; what it compares is told apart."""
    problem, limit = result.problem, result.problem.memory_limit
    arenas = result.addresses.arenas if result.addresses else ()
    sizes = [float(result.peak_memory), *(size for arena in arenas for size in (arena.size, arena.bound))]
    times = [result.runtime]
    if problem.recompute:
        sizes += (input_peak(problem.graph), memory_bound(problem))
    else:
        (sizes if problem.task == "memory" else times).extend((result.input_value, result.lower_bound))
    if limit is not None:
        sizes.append(limit)
    return bytes_alike(sizes, also=result.simulation.peak_per_device.tolist()), times_alike(times)


def _add_devices(table: Table, result: Found, memory: Written, time: Written) -> None:
    schedule, graph, times = result.schedule, result.problem.graph, result.problem.rules.times
    is_op = (schedule.items >= 0) & (schedule.items < first_home(graph))
    for device, peak in enumerate(result.simulation.peak_per_device.tolist()):
        ops = schedule.items[is_op & (schedule.targets == device)]
        busy = time(float(times[ops, device].sum()))
        name = result.problem.device_names[device]
        limit = None if result.problem.machine is None else result.problem.memory_limits[device]
        room = "" if limit is None else f" of {format_bytes(limit)}"
        table.add_row(f"{name}: {len(ops):,} op{'s' * (len(ops) != 1)}", f"{memory(peak)}{room}", f"busy {busy}")
    moved = schedule.items[schedule.items < 0]
    if len(moved):
        table.add_row("transfers", f"{len(moved):,}", memory(int(graph.tensor_size[~moved].sum())))


def _add_arenas(table: Table, result: Found, memory: Written) -> None:
    """Add what each device's arena takes, and how far that is from what lives at once."""
    if result.addresses is None:
        return
    for device, arena in enumerate(result.addresses.arenas):
        name = "arena" if len(result.addresses.arenas) == 1 else f"arena of device {device}"
        above = "optimal for this order" if arena.is_optimal else f"{100 * (arena.size / arena.bound - 1):.2f}% above"
        table.add_row(name, memory(arena.size), above)
        table.add_row("  alive at once, the bound", memory(arena.bound), "")


def _added(result: Found, time: float) -> str:
    """Return an added time with its share of that of all ops."""
    problem = result.problem
    share = 100 * time / float(problem.op_times.sum())
    return "none" if time <= 1e-12 * share else f"+{share:.2f}%, {problem.format_time(time)}"


def _status(result: Found) -> tuple[str, str]:
    """Return the status, and how far the value is from its bound, if that says something."""
    if result.status == "infeasible":
        return result.status, "proven"
    if result.status == "optimal" or not result.is_feasible:
        return result.status, ""
    return result.status, "at the bound" if result.gap <= 0 else f"gap to bound {100 * result.gap:.2f}%"
