"""The makespan on a machine as constraint programming: devices of their own speeds, links, transfers of either kind.

Of memory the model knows only what lies on a device throughout. So what it proves holds with and without limits, and
a schedule that it finds may exceed one; that is seen when it is priced.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import FloatArray
from ...kernels.cost_model import replicated
from ...problem.problem import Problem
from ...problem.residents import first_home
from ...problem.schedule import Schedule
from ...search.search import Search
from .units import LARGEST_TIME, MOST_TIMES, in_units, unit_and_steps
from .variables import Model

HOLDS = -1  # when what holds a resident runs: before all steps
MOST_TRANSFERS = 1_000_000
"""Tensors times pairs of devices; more take gigabytes."""


class Moments(NamedTuple):
    """Start and end of an op, each a variable."""

    start: Any
    end: Any


class MachineModel(Model):
    """The variables and constraints of a problem, hinted with the best schedule known.

    Times are whole numbers as those of `Units`.

    Parameters
    ----------
    search
        The run, which has a schedule to hint.

    Attributes
    ----------
    model
        OR-Tools' `CpModel`.
    on
        Per op: whether it is on each device where it may be; ops that are together share it.
    ops
        Per op that is the model's own: when it runs.
    sent, transfers
        By tensor and device: whether it is sent there, and from when on.
    """

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self.machine, self.own = self.problem.hardware, first_home(self.graph)
        self._set_units()
        self._set_hint()
        self._add_ops()
        self._add_transfers()
        self._one_step_at_a_time()
        self._residents_fit()
        self._add_makespan()

    @staticmethod
    def is_too_large(problem: Problem) -> bool:
        """Whether a model of the problem would not fit into memory."""
        return problem.graph.num_tensors * problem.devices**2 > MOST_TRANSFERS

    def _set_units(self) -> None:
        """Choose the unit, the latest end of all, and what each op takes on each device, -1 where it cannot be."""
        graph, rules, machine = self.graph, self.problem.rules, self.machine
        times = np.where(rules.allowed, rules.times, np.inf)
        times[self.own :] = np.where(rules.allowed[self.own :], 0.0, np.inf)
        is_link = machine.has_link & ~np.eye(len(self.devices), dtype=bool)
        links = np.unique(np.stack((machine.latencies, machine.microseconds_per_byte), -1)[is_link], axis=0)
        copies = np.minimum(np.diff(graph.consumers[0]), len(self.devices) - 1).astype(np.int64)
        slowest, fastest = links.max(0, initial=0.0), links.min(0, initial=np.inf)
        total = float(np.where(np.isfinite(times), times, 0.0).max(1).sum())
        total += float(((slowest[0] + slowest[1] * graph.tensor_size) * copies).sum())
        if self._keeps_limits:
            total = min(total, self.search.best_value)
        self.total = total = max(total, 1e-9)
        sizes, most = np.unique(graph.tensor_size), graph.num_ops + int(copies.sum())
        if len(links) * len(sizes) > MOST_TIMES:
            self.unit, self.steps = total / (LARGEST_TIME // (1 + most)), 1 + most
        else:
            known = np.concatenate((times[times <= total], *(late + per_byte * sizes for late, per_byte in links)))
            may_be_zero = (fastest[0] == 0) & ((fastest[1] == 0) | (graph.tensor_size == 0))
            zeros = int((times[: self.own] == 0).any(1).sum()) + int((may_be_zero * copies).sum())
            self.unit, self.steps = unit_and_steps(known, total, zeros, most)
        self.horizon = (math.ceil(total / self.unit) + 1) * self.steps
        self.op_time = self._whole(times)

    def _sending(self, tensor: int) -> list[list[int]]:
        """Return what a tensor takes from each device to each, -1 without a link."""
        with np.errstate(invalid="ignore"):
            takes = self.machine.latencies + int(self.graph.tensor_size[tensor]) * self.machine.microseconds_per_byte
        return self._whole(np.where(self.machine.has_link, takes, np.inf))

    @property
    def _keeps_limits(self) -> bool:
        """Whether the best schedule known keeps the limits."""
        return not self.search.best_fitness[0]

    def _whole(self, times: FloatArray) -> list[list[int]]:
        """Return times in units, -1 for what is longer than all that is worth finding."""
        fits = times <= self.total * (1 + 1e-12)
        found: list[list[int]] = np.where(
            fits, in_units(np.where(fits, times, 0.0), self.unit, self.steps), -1
        ).tolist()
        return found

    def _set_hint(self) -> None:
        """Find when each step of the best schedule known runs, each as early as it can."""
        schedule = self.search.best
        assert schedule is not None
        self.hinted = schedule.placement(self.graph).tolist()
        self.hinted_start: dict[int | tuple[int, int], int] = {}
        clock, there = [0] * len(self.devices), dict[tuple[int, int], int]()
        link: dict[tuple[int, int], int] = {}
        columns = (schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist())
        outputs = [range(*pair) for pair in pairwise(self.graph.output_ptr.tolist())]
        for item, source, target in zip(*columns, strict=True):
            if item >= self.own:
                there |= dict.fromkeys(((t, d) for t in outputs[item] for d in self.devices), 0)
            elif item >= 0:
                start = max([clock[target], *(there[tensor, target] for tensor in self.reads[item])])
                self.hinted_start[item] = start
                clock[target] = start + max(1, self.op_time[item][target])
                there |= {(tensor, target): clock[target] for tensor in outputs[item]}
            else:
                start = max(there[~item, source], link.get((source, target), 0))
                if not self.machine.is_beside:
                    start = max(start, clock[source], clock[target])
                self.hinted_start[~item, target] = start
                end = there[~item, target] = start + max(1, self._sending(~item)[source][target])
                if not self.machine.is_beside:
                    clock[source] = clock[target] = end
                elif self.machine.contention:
                    link[source, target] = end
        self.hinted_makespan = max(clock)

    def _moment(self, hint: int) -> Any:
        return self.number(0, self.horizon, hint)

    def _add_ops(self) -> None:
        """Each op is on one device where it may be, and lasts what it takes there."""
        self.on: list[dict[int, Any]] = []
        self.ops: list[Moments] = []
        group = self.problem.rules.group.tolist()
        for op, first in enumerate(group):
            self.check_time()
            members = self.problem.rules.groups.get(first, [first])
            able = [d for d in self.devices if all(self.op_time[member][d] >= 0 for member in members)]
            if first < op:
                self.on.append(self.on[first])
            else:
                self.on.append({device: self.literal(self.hinted[op] == device) for device in able})
                self.model.add_exactly_one(self.on[op].values())
            if op < self.own:
                start = self.hinted_start.get(op, 0)
                takes = {device: self.op_time[op][device] for device in able}
                moments = Moments(self._moment(start), self._moment(start + takes.get(self.hinted[op], 0)))
                lasts = sum(takes[device] * literal for device, literal in self.on[op].items())
                self.model.add(moments.end == moments.start + lasts)
                self.ops.append(moments)

    def _made(self, tensor: int) -> Any:
        """Return when a tensor is made."""
        return 0 if self.producer[tensor] >= self.own else self.ops[self.producer[tensor]].end

    def _add_transfers(self) -> None:
        """Readers elsewhere wait for a tensor to be made and sent, those at home for it to be made."""
        self.sent: dict[tuple[int, int], Any] = {}
        self.transfers: dict[tuple[int, int], Any] = {}
        self.busy: list[tuple[int, int, Any, Any, int]] = []  # source, target, whether, start, duration
        is_everywhere = replicated(self.problem)
        for tensor, readers in enumerate(self.readers):
            self.check_time()
            for reader in readers if self.producer[tensor] < self.own else ():
                self.model.add(self.ops[reader].start >= self._made(tensor))
            if is_everywhere[tensor]:
                continue
            sending = self._sending(tensor) if readers else []
            for device in self.devices:
                here = {reader: self.on[reader][device] for reader in readers if device in self.on[reader]}
                if here:
                    self._may_be_sent(tensor, device, here, [row[device] for row in sending])

    def _may_be_sent(self, tensor: int, device: int, here: dict[int, Any], sending: list[int]) -> None:
        made_on, made_at = self.on[self.producer[tensor]], self.hinted[self.producer[tensor]]
        start = self.hinted_start.get((tensor, device))
        sent = self.sent[tensor, device] = self.literal(start is not None)
        at_home = made_on.get(device)
        if at_home is not None:
            self.model.add_implication(sent, ~at_home)
        self.model.add_bool_or([*here.values(), ~sent])
        for literal in here.values():
            self.model.add_bool_or([~literal, sent, *([] if at_home is None else [at_home])])
        lasts = max(1, sending[made_at]) if start is not None else 0
        begin = self.transfers[tensor, device] = self._moment(start or 0)
        end = self._moment((start or 0) + lasts)
        self.model.add(begin >= self._made(tensor)).only_enforce_if(sent)
        for source, literal in made_on.items():
            takes = sending[source]
            if source == device:
                continue
            if takes < 0:
                self.model.add_bool_or([~literal, ~sent])
                continue
            is_link = sent if len(made_on) == 1 else self.both(sent, literal, start is not None and made_at == source)
            self.busy.append((source, device, is_link, begin, takes))
            self.model.add(end == begin + takes).only_enforce_if(is_link)
        for reader, is_here in here.items():
            self.model.add(self.ops[reader].start >= end).only_enforce_if([sent, is_here])

    def _one_step_at_a_time(self) -> None:
        """Let no steps of a device overlap, blocking transfers among them, nor transfers of a contended link."""
        interval = self.model.new_optional_fixed_size_interval_var
        self.on_device: list[list[tuple[Any, Any, int]]] = [[] for _ in self.devices]
        on_link: dict[tuple[int, int], list[tuple[Any, Any, int]]] = {}
        for op, moments in enumerate(self.ops):
            for device, literal in self.on[op].items():
                self.on_device[device].append((literal, moments.start, self.op_time[op][device]))
        for source, target, literal, start, takes in self.busy:
            if not self.machine.is_beside:
                for device in (source, target):
                    self.on_device[device].append((literal, start, takes))
            elif self.machine.contention:
                on_link.setdefault((source, target), []).append((literal, start, takes))
        for steps in (*self.on_device, *on_link.values()):
            self.check_time()
            self.model.add_no_overlap([interval(start, takes, literal, "") for literal, start, takes in steps])

    def _residents_fit(self) -> None:
        """Keep what lies on a device throughout within its limit."""
        persistent = self.graph.persistent.tolist()
        for device, limit in enumerate(self.problem.memory_limits):
            held = [size * self.on[op][device] for op, size in enumerate(persistent) if size and device in self.on[op]]
            if limit is not None and held:
                self.model.add(sum(held) <= limit)

    def _add_makespan(self) -> None:
        """Minimise the last end, no later than in the hint if that keeps the limits."""
        low = math.floor(self.search.lower_bound / self.unit * (1 - 1e-12)) * self.steps
        high = max(low, self.hinted_makespan) if self._keeps_limits else self.horizon
        makespan = self.model.new_int_var(min(max(0, low), high), high, "")
        self.model.add_hint(makespan, min(self.hinted_makespan, high))
        for moments in self.ops:
            self.model.add(makespan >= moments.end)
        for steps in self.on_device:
            self.model.add(sum(takes * literal for literal, _, takes in steps) <= makespan)
        self.model.minimize(makespan)

    def bound(self, objective: float) -> float:
        """Return the microseconds that every schedule takes, of what the solver has proven."""
        return math.ceil(objective - 1e-6) // self.steps * self.unit

    def schedule(self, value: Any) -> Schedule:
        """Return the schedule of a solution: ops by their end and transfers by their start."""
        device = [next(d for d, literal in on.items() if value(literal)) for on in self.on]
        steps = [(HOLDS, False, op, device[op], device[op]) for op in range(self.own, self.graph.num_ops)]
        steps += [(value(m.end), False, op, device[op], device[op]) for op, m in enumerate(self.ops)]
        for (tensor, target), start in self.transfers.items():
            if value(self.sent[tensor, target]):
                steps.append((value(start), True, ~tensor, device[self.producer[tensor]], target))
        steps.sort()
        return Schedule.from_steps(*zip(*(step[2:] for step in steps), strict=True))
