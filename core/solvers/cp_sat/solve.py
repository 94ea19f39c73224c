"""Constraint programming with OR-Tools' CP-SAT (REGAL A.10): order, tensor lifetimes and cumulative memory."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import SchedoptError
from ...graph import IntArray
from ...problem import Problem
from ...schedule import Schedule
from ...search import parameters as base
from ...search.parameters import parameter
from ...search.search import Search
from .. import auto

LARGEST_MEMORY = 2**40
LARGEST_TIME = 2**30  # beyond 2^31 the solver was seen to prove wrong optima (OR-Tools 9.15)
LARGEST_ENERGY = 2**62  # memory times time, which the solver adds up
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """Without a good hint the solver needs minutes for what other methods find at once (FINDINGS)."""

    hint: int = parameter(1000, "evaluations of auto for the schedule to be hinted with; 0: the input order", low=0)


def parts(problem: Problem) -> list[str]:
    """Return the methods used for a problem."""
    return [*auto.parts(problem), "cp-sat"]


def solve(search: Search, parameters: Parameters) -> None:
    """Offer each schedule that the solver finds, and raise the bound to what it proves.

    It is hinted with the best schedule known: that to start from, the input order, or what `auto` finds. For
    the makespan under a memory limit that none of them keeps, the peak is minimised first, down to the limit:
    the result is the next hint, or else the schedule of least excess. The solver's strategies take turns
    (`interleave_search`), so a run that ends by itself does not depend on the number of workers. Each schedule
    offered counts one evaluation.
    """
    search.offer_order(search.problem.graph.input_order)
    _find_hint(search, parameters.hint)
    if search.must_stop():
        return
    problem = search.problem
    try:
        if problem.task == "runtime" and search.best_fitness[0]:
            _minimise(search, "memory", problem.memory_limit)
        if (problem.task == "memory" or not search.best_fitness[0]) and not _is_over(search):
            _minimise(search, problem.task, problem.memory_limit)
    except _OutOfTimeError:
        return


def _find_hint(search: Search, evaluations: int) -> None:
    """Let `auto` improve the best schedule known."""
    search.max_evaluations = search.evaluations + evaluations
    if not search.must_stop():
        auto.solve(search, base.Parameters())
    search.max_evaluations, search.working = math.inf, "cp-sat"


class _OutOfTimeError(Exception):
    """Time ended while the model was built."""


def _is_over(search: Search) -> bool:
    """Whether time has run out or Ctrl-C was pressed; the solver sees by itself when the bound is met."""
    search.must_stop()
    return search.timed_out or search.interrupt.is_set()


def _minimise(search: Search, task: str, limit: int | None) -> None:
    """Build the model, solve it, and record what was proven."""
    from ortools.sat.python import cp_model

    units = _units(search.problem, task, limit)
    model = _Model(search, units, task, limit)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = search.jobs
    solver.parameters.interleave_search = True
    solver.parameters.random_seed = int(search.rng.integers(2**31))
    if search.is_timed:
        solver.parameters.max_time_in_seconds = max(0.0, search.seconds_left())
    status = _run(search, solver, model)
    if status == cp_model.MODEL_INVALID:
        raise SchedoptError(f"{search.problem.graph.name}: cp-sat cannot take this model: {model.model.validate()}")
    if task == search.problem.task and status != cp_model.INFEASIBLE:
        least = math.ceil(solver.best_objective_bound - 1e-6)
        if task == "memory":
            search.raise_lower_bound(least * units.bytes)
        else:
            search.raise_lower_bound(least // units.steps * units.microseconds)


def _run(search: Search, solver: Any, model: _Model) -> Any:
    """Solve on another thread while this one offers what is found and asks whether to stop."""
    from ortools.sat.python import cp_model

    found: list[Schedule] = []

    class Collect(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            found.append(model.schedule(self.value))

    outcome: list[Any] = []
    worker = threading.Thread(target=lambda: outcome.append(solver.solve(model.model, Collect())), daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(POLL_SECONDS)
        _offer(search, found)
        if _is_over(search):
            solver.stop_search()
    _offer(search, found)
    return outcome[0]


def _offer(search: Search, found: list[Schedule]) -> None:
    while found:
        search.evaluations += 1
        search.offer(found.pop(0))


# Whole numbers ------------------------------------------------------------------------------------------------


class _Units(NamedTuple):
    """How bytes and microseconds become the solver's whole numbers.

    A time is `microseconds` times whole units, rounded down, times `steps`, and each step lasts one more:
    so steps without duration have an order too, and no schedule has enough of them to make up one unit. What
    is rounded down keeps every bound valid; where sizes have a common divisor and runtimes are whole in
    microseconds, nanoseconds or picoseconds nothing is.

    Parameters
    ----------
    bytes, microseconds
        Of one unit.
    steps
        More than any schedule has; 1 where only the order matters.
    op, transfer
        Shape `(ops,)`, `(tensors,)`: durations.
    horizon
        The latest end of any step.
    """

    bytes: int
    microseconds: float
    steps: int
    op: list[int]
    transfer: list[int]
    horizon: int


def _units(problem: Problem, task: str, limit: int | None) -> _Units:
    graph = problem.graph
    copies = np.minimum(np.diff(graph.consumers[0]), problem.devices - 1).astype(np.int64)
    steps = graph.num_ops + int(copies.sum()) + 1
    if task == "memory":
        op, transfer = np.ones(graph.num_ops, np.int64), np.ones(graph.num_tensors, np.int64)
        return _Units(_byte_unit(problem, LARGEST_ENERGY // steps), 1.0, 1, op.tolist(), transfer.tolist(), steps)
    sending = problem.latency + graph.tensor_size * problem.microseconds_per_byte
    total = float(graph.runtime.sum() + (sending * copies).sum())
    unit = _time_unit(np.concatenate((graph.runtime, sending)), total, LARGEST_TIME // steps)
    op = _floor(graph.runtime / unit) * steps + 1
    transfer = _floor(sending / unit) * steps + 1
    horizon = int(op.sum() + (transfer * copies).sum())
    return _Units(_byte_unit(problem, LARGEST_ENERGY // horizon), unit, steps, op.tolist(), transfer.tolist(), horizon)


def _floor(times: NDArray[Any]) -> IntArray:
    """Round down, but take a number that is whole but for its last bits as whole."""
    whole = np.rint(times)
    floored: IntArray = np.where(np.abs(times - whole) <= 1e-15 * whole, whole, np.floor(times)).astype(np.int64)
    return floored


def _time_unit(times: NDArray[Any], total: float, most: int) -> float:
    """Return a unit in which all times are whole, if their total is then no more than `most`, else a fine one."""
    for unit in (1.0, 1e-3, 1e-6):
        if total / unit <= most and np.all(np.abs(times / unit - np.rint(times / unit)) <= 1e-15 * times / unit):
            return unit
    return total / most


def _sizes(problem: Problem) -> IntArray:
    graph = problem.graph
    return np.concatenate((graph.tensor_size, graph.workspace, graph.persistent))


def _common_divisor(problem: Problem) -> int:
    return int(np.gcd.reduce(_sizes(problem))) or 1


def _bytes_of_devices(problem: Problem, unit: int) -> int:
    """Return all sizes on all devices, at least 1, in units of so many bytes."""
    return max(1, int(_sizes(problem).sum()) * problem.devices // unit)


def _byte_unit(problem: Problem, most: int) -> int:
    """Return the common divisor of all sizes, or more if their sum would still be too large."""
    divisor = _common_divisor(problem)
    most = min(most, LARGEST_MEMORY)
    if _bytes_of_devices(problem, divisor) <= most:
        return divisor
    return -(-_bytes_of_devices(problem, 1) // most)


# The model ----------------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """When a step runs: its start (a variable) and its duration."""

    start: Any
    duration: int

    @property
    def end(self) -> Any:
        """When it ends, as an expression."""
        return self.start + self.duration


class _Buffer(NamedTuple):
    """A buffer on a device: since which step, whether it exists there, and its end."""

    since: _Step
    present: Any
    end: Any


class _Model:
    """Variables, constraints and objective; every variable is hinted with the best schedule known.

    Steps are ops, and optional transfers of a tensor to a device. Steps on one device, where a transfer is on
    both of its own, do not overlap; that and the precedences are all that the cost model asks of time, and
    the memory of a device changes by the steps on it alone, so no total order of all steps is needed.
    """

    def __init__(self, search: Search, units: _Units, task: str, limit: int | None) -> None:
        from ortools.sat.python import cp_model

        self.search, self.problem, self.units = search, search.problem, units
        self.graph, self.devices = self.problem.graph, range(self.problem.devices)
        self.producer = self.graph.tensor_producer.tolist()
        pointers, consumers = (a.tolist() for a in self.graph.consumers)
        self.readers = [consumers[a:b] for a, b in pairwise(pointers)]
        assert search.best is not None
        self.hint = _HintedTimes(search.best, self.graph.num_ops, self.problem.devices, units)
        self.model = cp_model.CpModel()

        self._add_placement()
        self._add_ops()
        self._add_transfers()
        self._needed_transfers_are_sent()
        self._inputs_are_there()
        self._devices_run_one_step_at_a_time()
        if task == "memory" or limit is not None:
            self._add_peak(limit if task == "runtime" else None)
            self._add_buffers()
            self._buffers_live_to_their_last_use()
            self._devices_hold_what_is_alive()
        if task == "memory":
            self._minimise_peak()
        else:
            self._minimise_makespan()

    # Variables

    def _bool(self, hint: bool) -> Any:
        variable = self.model.new_bool_var("")
        self.model.add_hint(variable, hint)
        return variable

    def _int(self, low: int, high: int, hint: int) -> Any:
        variable = self.model.new_int_var(low, high, "")
        self.model.add_hint(variable, min(max(low, hint), high))
        return variable

    def _add_placement(self) -> None:
        """Each op is on one device; devices are alike, so one op stays on device 0 (REGAL A.2)."""
        self.on: list[list[Any]] = []
        home = self.hint.device[self.problem.fixed_op]
        swap = {home: 0, 0: home}
        self.hint.rename([swap.get(device, device) for device in self.devices])
        for op in range(self.graph.num_ops):
            self._check_time()
            self.on.append([self._bool(self.hint.device[op] == device) for device in self.devices])
            self.model.add_exactly_one(self.on[op])
        self.model.add(self.on[self.problem.fixed_op][0] == 1)

    def _add_ops(self) -> None:
        """Each op has a start."""
        horizon = self.units.horizon
        self.ops = [
            _Step(self._int(0, horizon - duration, self.hint.op_start[op]), duration)
            for op, duration in enumerate(self.units.op)
        ]

    def _add_transfers(self) -> None:
        """Each tensor that is read may be sent to each device, at some start."""
        self.sent: dict[tuple[int, int], Any] = {}
        self.transfers: dict[tuple[int, int], _Step] = {}
        if len(self.devices) == 1:
            return
        for tensor, readers in enumerate(self.readers):
            self._check_time()
            duration = self.units.transfer[tensor]
            for device in self.devices if readers else ():
                start = self.hint.transfer_start.get((tensor, device))
                self.sent[tensor, device] = self._bool(start is not None)
                start = self._int(0, self.units.horizon - duration, start or 0)
                self.transfers[tensor, device] = _Step(start, duration)

    def _add_peak(self, limit: int | None) -> None:
        """Let the peak be one number for all devices, within the limit."""
        unit = self.units.bytes
        graph = self.graph
        self.most = _bytes_of_devices(self.problem, unit)
        high = self.most if limit is None else min(limit // unit, self.most)
        assert self.search.best_simulation is not None
        self.peak = self._int(0, high, self.search.best_simulation.peak // unit)
        self.persistent = (graph.persistent // unit).tolist()

    def _add_buffers(self) -> None:
        """Start a buffer for each tensor that is no view where it is produced, and for any where it is sent."""
        self.buffers: dict[tuple[bool, int, int], _Buffer] = {}
        sizes = (self.graph.tensor_size // self.units.bytes).tolist()
        self.size = sizes
        for tensor, producer in enumerate(self.producer):
            self._check_time()
            if sizes[tensor] == 0:
                continue
            for device in self.devices:
                if self.graph.alias_of[tensor] < 0:
                    self._add_buffer(False, tensor, device, self.ops[producer], self.on[producer][device])
                if (tensor, device) in self.sent:
                    step = self.transfers[tensor, device]
                    self._add_buffer(True, tensor, device, step, self.sent[tensor, device])

    def _add_buffer(self, is_copy: bool, tensor: int, device: int, since: _Step, present: Any) -> None:
        end = self.model.new_int_var(0, self.units.horizon, "")
        self.buffers[is_copy, tensor, device] = _Buffer(since, present, end)

    # Constraints

    def _needed_transfers_are_sent(self) -> None:
        """Send a tensor to a device if and only if a reader is there and its producer is not."""
        for (tensor, device), sent in self.sent.items():
            self._check_time()
            home = self.on[self.producer[tensor]][device]
            here = [self.on[reader][device] for reader in self.readers[tensor]]
            self.model.add_implication(sent, ~home)
            self.model.add_bool_or([*here, ~sent])
            for reader in here:
                self.model.add_bool_or([~reader, home, sent])

    def _inputs_are_there(self) -> None:
        """Run an op after what it reads is produced and sent, and a transfer after its tensor is produced."""
        for tensor, readers in enumerate(self.readers):
            self._check_time()
            produced = self.ops[self.producer[tensor]].end
            for reader in readers:
                self.model.add(self.ops[reader].start >= produced)
            for device in self.devices:
                if (tensor, device) in self.sent:
                    step, sent = self.transfers[tensor, device], self.sent[tensor, device]
                    self.model.add(step.start >= produced).only_enforce_if(sent)
                    for reader in readers:
                        both = [sent, self.on[reader][device]]
                        self.model.add(self.ops[reader].start >= step.end).only_enforce_if(both)

    def _devices_run_one_step_at_a_time(self) -> None:
        """Ops on a device, and transfers to it and from it, do not overlap."""
        interval = self.model.new_optional_fixed_size_interval_var
        for device in self.devices:
            steps = [interval(s.start, s.duration, self.on[op][device], "") for op, s in enumerate(self.ops)]
            for (tensor, target), step in self.transfers.items():
                self._check_time()
                busy = self.sent[tensor, target]
                if target != device:
                    busy = self._both(busy, self.on[self.producer[tensor]][device])
                steps.append(interval(step.start, step.duration, busy, ""))
            self.model.add_no_overlap(steps)

    def _both(self, one: Any, other: Any) -> Any:
        both = self.model.new_bool_var("")
        self.model.add_bool_or([~one, ~other, both])
        self.model.add_implication(both, one)
        self.model.add_implication(both, other)
        return both

    def _buffers_live_to_their_last_use(self) -> None:
        """Keep a buffer through every step on its device that reads or sends it or a view of it, or to the end."""
        views: list[list[int]] = [[] for _ in self.producer]
        for tensor, viewed in enumerate(self.graph.alias_of.tolist()):
            if viewed >= 0:
                views[viewed].append(tensor)
        for (is_copy, tensor, device), buffer in self.buffers.items():
            self._check_time()
            self.model.add(buffer.end >= buffer.since.end)
            members = [(tensor, not is_copy, [buffer.present])]
            while members:
                member, is_produced_here, given = members.pop()
                self._member_is_used(buffer, member, is_produced_here, given, device)
                members += [(v, True, [*given, self.on[self.producer[v]][device]]) for v in views[member]]

    def _member_is_used(
        self, buffer: _Buffer, tensor: int, is_produced_here: bool, given: list[Any], device: int
    ) -> None:
        """Keep a buffer for the uses of a tensor that lives in it if the literals `given` hold."""
        for reader in self.readers[tensor]:
            self._lasts_to(buffer, self.ops[reader].end, [*given, self.on[reader][device]])
        if not is_produced_here:
            return
        for target in self.devices:
            if target != device and (tensor, target) in self.sent:
                self._lasts_to(buffer, self.transfers[tensor, target].end, [*given, self.sent[tensor, target]])
        if self.graph.is_final[tensor]:
            self._lasts_to(buffer, self.units.horizon, given)

    def _lasts_to(self, buffer: _Buffer, end: Any, given: list[Any]) -> None:
        self.model.add(buffer.end >= end).only_enforce_if(given)

    def _devices_hold_what_is_alive(self) -> None:
        """On each device: persistent bytes, buffers alive and the workspace of the op that runs, within the peak."""
        workspace = (self.graph.workspace // self.units.bytes).tolist()
        for device in self.devices:
            held = [self._lifetime(key, buffer) for key, buffer in self.buffers.items() if key[2] == device]
            for op, step in enumerate(self.ops):
                if workspace[op]:
                    present = self.on[op][device]
                    running = self.model.new_optional_fixed_size_interval_var(step.start, step.duration, present, "")
                    held.append((running, workspace[op]))
            room = self.model.new_int_var(0, self.most, "")
            weights = [size * on[device] for size, on in zip(self.persistent, self.on, strict=True) if size]
            self.model.add(room + sum(weights) <= self.peak)
            self.model.add_cumulative([interval for interval, _ in held], [size for _, size in held], room)

    def _lifetime(self, key: tuple[bool, int, int], buffer: _Buffer) -> tuple[Any, int]:
        length = self.model.new_int_var(0, self.units.horizon, "")
        interval = self.model.new_optional_interval_var(buffer.since.start, length, buffer.end, buffer.present, "")
        return interval, self.size[key[1]]

    # Objective

    def _minimise_peak(self) -> None:
        """Minimise the peak of the fullest device."""
        known = self.search.lower_bound if self.problem.task == "memory" else self.problem.memory_limit or 0
        self.model.add(self.peak >= min(int(known) // self.units.bytes, self.most))
        self.model.minimize(self.peak)

    def _minimise_makespan(self) -> None:
        """Minimise the end of the last op; what is sent is read later."""
        bound = math.floor(self.search.lower_bound / self.units.microseconds * (1 - 1e-12))
        low = min(max(0, bound) * self.units.steps, self.units.horizon)
        makespan = self._int(low, self.units.horizon, self.hint.makespan)
        for step in self.ops:
            self.model.add(makespan >= step.end)
        self.model.minimize(makespan)

    def _check_time(self) -> None:
        if _is_over(self.search):
            raise _OutOfTimeError

    def schedule(self, value: Any) -> Schedule:
        """Return the schedule of a solution: steps by their start; none that wait for each other start together."""
        device = [next(d for d in self.devices if value(on[d])) for on in self.on]
        steps = [(value(step.start), op, device[op], device[op]) for op, step in enumerate(self.ops)]
        for (tensor, target), step in self.transfers.items():
            if value(self.sent[tensor, target]):
                steps.append((value(step.start), ~tensor, device[self.producer[tensor]], target))
        steps.sort()
        return Schedule.from_steps(*zip(*(step[1:] for step in steps), strict=True))


class _HintedTimes:
    """Device and start of each step of a known schedule, each as early as it can."""

    def __init__(self, schedule: Schedule, ops: int, devices: int, units: _Units) -> None:
        self.device, self.op_start = [0] * ops, [0] * ops
        self.transfer_start: dict[tuple[int, int], int] = {}
        clock = [0] * devices
        columns = (schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist())
        for item, source, target in zip(*columns, strict=True):
            start = max(clock[source], clock[target])
            if item >= 0:
                self.device[item], self.op_start[item] = target, start
                clock[target] = start + units.op[item]
            else:
                self.transfer_start[~item, target] = start
                clock[source] = clock[target] = start + units.transfer[~item]
        self.makespan = max(clock)

    def rename(self, new: list[int]) -> None:
        """Give the devices other numbers."""
        self.device = [new[device] for device in self.device]
        self.transfer_start = {(t, new[device]): start for (t, device), start in self.transfer_start.items()}
