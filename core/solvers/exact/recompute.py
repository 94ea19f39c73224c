"""Recomputation as constraint programming: retention intervals (Bartan et al., MOCCASIN, ICML 2023), the order free.

Each op has up to `copies` runs; the outputs of a run are kept from its place to the last run that reads them. Unlike in
`variables` an op has several steps on one device, of which each reader chooses the latest before it. No schedule has to
run an op oftener than its readers run, and once more if it makes something final. So few ops need more than `copies`
runs, and where one has them its runtimes bound the added time: so a bound of this model becomes one of every schedule.
"""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import IndexArray
from ...graph.graph import CostGraph
from ...problem.problem import RUNTIME_TOLERANCE
from ...problem.schedule import Schedule
from ...search.search import Search
from .variables import LARGEST_ENERGY, LARGEST_TIME, Model, byte_unit, bytes_of_devices, floor_times, time_unit

MOST_RUNS = 1_000_000


def most_useful_runs(graph: CostGraph) -> list[int]:
    """Return how often each op runs at most in a schedule of which no run can be left out, shape `(ops,)`."""
    pointers, tensors = (a.tolist() for a in graph.inputs)
    producer = graph.tensor_producer.tolist()
    most = [0] * graph.num_ops
    for op in set(graph.tensor_producer[graph.is_final].tolist()):
        most[op] = 1
    for op in reversed(graph.input_order.tolist()):
        most[op] = 1 if graph.runs_once[op] else min(max(1, most[op]), MOST_RUNS)
        for maker in {producer[t] for t in tensors[pointers[op] : pointers[op + 1]] if not graph.is_control[t]}:
            most[maker] += most[op]
    return most


class Run(NamedTuple):
    """A run of an op: whether there is one, and its place in the sequence."""

    present: Any
    place: Any


class RetentionModel(Model):
    """The variables and constraints of a problem, hinted with the best schedule known."""

    def __init__(self, search: Search, copies: int, is_fixed: bool) -> None:
        super().__init__(search)
        times, useful = self.problem.op_times, most_useful_runs(self.graph)
        self.copies = [min(copies, most) for most in useful]
        # Microseconds that every schedule adds in which an op runs oftener than here and that could not do without.
        self.least_outside = copies * min(
            (float(times[op]) for op, most in enumerate(useful) if most > copies), default=math.inf
        )
        self.horizon = sum(self.copies)
        self.alias = self.graph.alias_of.tolist()
        self.time_unit = time_unit(times, float(times.sum()), LARGEST_TIME // copies)
        self.times = floor_times(times / self.time_unit).tolist()
        self.byte_unit = byte_unit(self.problem, LARGEST_ENERGY // self.horizon)
        self._add_runs()
        self._separate_runs(is_fixed)
        self._readers_read_the_latest_run()
        self._add_retentions()
        self._limit_memory()
        self._add_objective()

    def _add_runs(self) -> None:
        """Each op runs once at least; its runs are in order, and there is no later one without the earlier ones."""
        assert self.search.best is not None
        places: dict[int, list[int]] = {}
        for place, op in enumerate(self.search.best.op_order().tolist()):
            places.setdefault(op, []).append(place)
        self.runs: list[list[Run]] = []
        for op, copies in enumerate(self.copies):
            self.check_time()
            known = places[op][: copies - 1] + places[op][-1:]
            runs: list[Run] = []
            for copy in range(copies):
                present = self.literal(copy < len(known)) if copy else self.model.new_constant(1)
                place = self.number(0, self.horizon - 1, known[copy] if copy < len(known) else None)
                if copy:
                    self.model.add_implication(present, runs[-1].present)
                    self.model.add(place > runs[-1].place).only_enforce_if(present)
                runs.append(Run(present, place))
            self.runs.append(runs)

    def _separate_runs(self, is_fixed: bool) -> None:
        """Give each run a place of its own, after all runs that it waits for; keep the order of first runs if asked."""
        interval = self.model.new_optional_fixed_size_interval_var
        self.model.add_no_overlap([interval(r.place, 1, r.present, "") for runs in self.runs for r in runs])
        for op, tensors in enumerate(self.reads):
            for tensor in tensors:
                for run in self.runs[self.producer[tensor]] if self.graph.is_control[tensor] else ():
                    self.model.add(run.place < self.runs[op][0].place).only_enforce_if(run.present)
        for op, following in pairwise(self.graph.input_order.tolist()) if is_fixed else ():
            self.model.add(self.runs[op][0].place < self.runs[following][0].place)

    def _readers_read_the_latest_run(self) -> None:
        """Each run reads one run of each op that it reads from: the last one before it."""
        self.read_from: dict[tuple[int, int, int, int], Any] = {}
        for op, tensors in enumerate(self.reads):
            self.check_time()
            for maker in sorted({self.producer[t] for t in tensors if not self.graph.is_control[t]}):
                for copy, run in enumerate(self.runs[op]):
                    chosen = [self.model.new_bool_var("") for _ in self.runs[maker]]
                    self.model.add(sum(chosen) == run.present)
                    for other, literal in enumerate(chosen):
                        made, later = self.runs[maker][other], self.runs[maker][other + 1 : other + 2]
                        self.model.add_implication(literal, made.present)
                        self.model.add(made.place < run.place).only_enforce_if(literal)
                        for after in later:
                            self.model.add(after.place > run.place).only_enforce_if(literal, after.present)
                        self.read_from[maker, other, op, copy] = literal

    def _add_retentions(self) -> None:
        """Keep a run's outputs to the last run that reads them or a view of them, or to the end."""
        self.kept_to: dict[tuple[int, int], Any] = {}
        data = [tensor for tensor in range(self.graph.num_tensors) if not self.graph.is_control[tensor]]
        for tensor in data:
            for copy, run in enumerate(self.runs[self.producer[tensor]]):
                end = self.model.new_int_var(0, self.horizon, "")
                self.model.add(end >= run.place + 1)
                self.kept_to[tensor, copy] = end
                if self.graph.is_final[tensor]:
                    later = self.runs[self.producer[tensor]][copy + 1 : copy + 2]
                    given = [run.present, *(~r.present for r in later)]
                    self.model.add(end == self.horizon).only_enforce_if(given)
        for (maker, other, op, copy), literal in self.read_from.items():
            self.check_time()
            for tensor in self.reads[op]:
                if self.producer[tensor] == maker and not self.graph.is_control[tensor]:
                    end = self.kept_to[tensor, other]
                    self.model.add(end >= self.runs[op][copy].place + 1).only_enforce_if(literal)
            for view in self.graph.outputs(op):
                base = self.alias[view]
                if base >= 0 and self.producer[base] == maker:
                    self.model.add(self.kept_to[base, other] >= self.kept_to[view, copy]).only_enforce_if(literal)

    def _limit_memory(self) -> None:
        """At each place: persistent bytes, kept outputs, and the workspace of the run, within the peak."""
        unit, problem = self.byte_unit, self.problem
        size, workspace = (self.graph.tensor_size // unit).tolist(), (self.graph.workspace // unit).tolist()
        persistent = int(self.graph.persistent.sum()) // unit
        most = bytes_of_devices(problem, unit) * max(self.copies)
        high = most if problem.memory_limit is None else min(most, problem.memory_limit // unit)
        self.peak = self.model.new_int_var(min(persistent, high), max(persistent, high), "")
        intervals, demands = [], []
        for (tensor, copy), end in self.kept_to.items():
            if self.alias[tensor] < 0 and size[tensor]:
                run, length = self.runs[self.producer[tensor]][copy], self.model.new_int_var(0, self.horizon, "")
                intervals.append(self.model.new_optional_interval_var(run.place, length, end, run.present, ""))
                demands.append(size[tensor])
        for op, runs in enumerate(self.runs):
            for run in runs if workspace[op] else ():
                intervals.append(self.model.new_optional_fixed_size_interval_var(run.place, 1, run.present, ""))
                demands.append(workspace[op])
        self.model.add_cumulative(intervals, demands, self.peak - persistent)

    def _add_objective(self) -> None:
        """Minimise the peak within the time that may be added, or the time."""
        again = [(self.times[op], r.present) for op, runs in enumerate(self.runs) for r in runs[1:]]
        added, limit = sum(time * present for time, present in again), self.problem.runtime_limit
        if self.problem.task == "runtime":
            self.model.minimize(added)
            return
        if limit is not None:
            spare = limit * (1 + RUNTIME_TOLERANCE) - float(self.problem.op_times.sum())
            self.model.add(added <= math.floor(max(0.0, spare) / self.time_unit + 1e-9))
        self.model.minimize(self.peak)

    def schedule(self, value: Any) -> Schedule:
        """Return the schedule of a solution."""
        there = [(value(r.place), op) for op, runs in enumerate(self.runs) for r in runs if value(r.present)]
        order: IndexArray = np.array([op for _, op in sorted(there)], np.int32)
        return Schedule.single_device(order)

    def bound(self, objective: float) -> float:
        """Return the bound of all schedules of this model, bytes or microseconds, of a bound on the objective."""
        least = math.ceil(objective - 1e-6)
        if self.problem.task == "memory":
            return least * self.byte_unit
        return math.fsum(self.problem.op_times.tolist()) + least * self.time_unit

    def bound_of_all(self, bound: float) -> float:
        """Return the bound of all schedules, however often their ops run, given that of this model's schedules."""
        total, limit = math.fsum(self.problem.op_times.tolist()), self.problem.runtime_limit
        if self.problem.task == "runtime":
            return min(bound, total + self.least_outside)
        is_enough = limit is not None and total + self.least_outside > limit * (1 + 2 * RUNTIME_TOLERANCE)
        return bound if is_enough or math.isinf(self.least_outside) else 0
