"""Variables of the CP-SAT model: devices of ops, starts of steps, lives of buffers; in whole numbers, all it knows.

Steps are ops, and optional transfers of a tensor to a device; those on one device, or on a contended link, do not
overlap. With blocking transfers the memory of a device changes by its own steps alone: no total order is needed.
"""

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import FloatArray, IntArray
from ...bounds.bounds import op_needs, possible_times
from ...kernels.cost_model import replicated
from ...problem.problem import Problem
from ...problem.residents import first_home
from ...problem.schedule import Schedule
from ...search.search import Cancelled, Search

HOLDS = -1  # when what holds a resident runs: before all steps
LARGEST_MEMORY = 2**40
LARGEST_TIME = 2**30  # beyond 2^31 the solver was seen to prove wrong optima (OR-Tools 9.15)
LARGEST_ENERGY = 2**62  # memory times time, which the solver adds up
DENOMINATORS = (1000, 10**6)
MOST_TIMES = 20_000  # different ones for which a common unit is looked for: 0.2 s


class Units(NamedTuple):
    """How bytes and microseconds become the solver's whole numbers."""

    # A time is `microseconds` times whole units, rounded down, times `steps`. A step whose time rounds to none lasts 1,
    # so that such steps have an order, too; no schedule has enough of them to make up one unit. Rounding down keeps
    # every bound valid; where sizes have a common divisor, and times one that is not too fine, nothing is.

    bytes: int  # of one unit; that of time is infinite where only the order counts: every step lasts 1
    microseconds: float
    steps: int  # more than any schedule has without duration; 1 where only the order counts
    longest: float  # microseconds; no step of a schedule that is worth finding takes more
    horizon: int  # the latest end of any step

    def whole(self, times: FloatArray) -> list[list[int]]:
        """Return times in units, -1 for impossible ones or those longer than all that is worth finding."""
        fits = np.isfinite(times) & (times <= self.longest * (1 + 1e-12))
        whole = floor_times(np.where(fits, times, 0.0) / self.microseconds)
        found: list[list[int]] = np.where(fits, whole * self.steps + (whole == 0), -1).tolist()
        return found


def units_of(search: Search, *, counts_time: bool) -> Units:
    """Return units in which the solver can count without overflow, of time or of steps alone."""
    problem = search.problem
    copies = np.minimum(np.diff(problem.graph.consumers[0]), problem.devices - 1).astype(np.int64)
    most = problem.graph.num_ops + int(copies.sum())
    unit, steps, longest, horizon = math.inf, 1, math.inf, most + 1
    if counts_time:
        unit, steps, longest = _units_of_time(search, copies, most)
        horizon = (math.ceil(longest / unit) + 1) * steps
    return Units(byte_unit(problem, LARGEST_ENERGY // horizon), unit, steps, longest, horizon)


def _units_of_time(search: Search, copies: IntArray, most: int) -> tuple[float, int, float]:
    """Return a unit, the `steps` and the `longest` time of `Units`, for at most so many steps."""
    problem, graph, machine = search.problem, search.problem.graph, search.problem.machine
    times = possible_times(problem)[: first_home(graph)]
    is_link = machine.has_link & ~np.eye(problem.devices, dtype=bool)
    links = np.unique(np.stack((machine.latencies, machine.microseconds_per_byte), -1)[is_link], axis=0)
    slowest, fastest = links.max(0, initial=0.0), links.min(0, initial=np.inf)
    total = float(np.where(np.isfinite(times), times, 0.0).max(1).sum())
    total += float(((slowest[0] + slowest[1] * graph.tensor_size) * copies).sum())
    if not search.best_fitness[0]:
        total = min(total, search.best_value)
    total = max(total, 1e-9)
    sizes = np.unique(graph.tensor_size)
    if len(links) * len(sizes) > MOST_TIMES:
        return total / (LARGEST_TIME // (1 + most)), 1 + most, total
    known = np.concatenate((times[times <= total], *(late + per_byte * sizes for late, per_byte in links)))
    may_be_zero = (fastest[0] == 0) & ((fastest[1] == 0) | (graph.tensor_size == 0))
    zeros = int((times == 0).any(1).sum()) + int((may_be_zero * copies).sum())
    unit, steps = time_unit(known, total, LARGEST_TIME // (1 + zeros)), 1 + zeros
    if (known[known > 0] < unit).any():
        unit, steps = time_unit(known, total, LARGEST_TIME // (1 + most)), 1 + most
    return unit, steps, total


def floor_times(times: NDArray[Any]) -> IntArray:
    """Round down, but take a number that is whole but for its last bits as whole."""
    whole = np.rint(times)
    floored: IntArray = np.where(np.abs(times - whole) <= 1e-15 * whole, whole, np.floor(times)).astype(np.int64)
    return floored


def time_unit(times: NDArray[Any], total: float, most: int) -> float:
    """Return the largest unit in which all times are whole if their total is then `most` or less, else a fine one."""
    unit, distinct = Fraction(0), np.unique(times)
    if len(distinct) > MOST_TIMES:
        return total / most
    for time in distinct.tolist():
        near = map(Fraction(time).limit_denominator, DENOMINATORS)
        fraction = next((simple for simple in near if abs(float(simple) - time) <= 1e-15 * time), None)
        if fraction is None:  # not of few digits, nor a third or a seventh of such a number
            return total / most
        common = math.lcm(unit.denominator, fraction.denominator)
        parts = [value.numerator * (common // value.denominator) for value in (unit, fraction)]
        unit = Fraction(math.gcd(*parts), common)
        if unit and total / unit > most:
            return total / most
    return float(unit) or 1.0


def _sizes(problem: Problem) -> IntArray:
    graph = problem.graph
    return np.concatenate((graph.tensor_size, graph.workspace, graph.persistent))


def bytes_of_devices(problem: Problem, unit: int) -> int:
    """Return all sizes on all devices, at least 1, in units of so many bytes."""
    return max(1, int(_sizes(problem).sum()) * problem.devices // unit)


def byte_unit(problem: Problem, most: int) -> int:
    """Return the common divisor of all sizes, or more if their sum would still be too large."""
    divisor = int(np.gcd.reduce(_sizes(problem))) or 1
    most = min(most, LARGEST_MEMORY)
    if bytes_of_devices(problem, divisor) <= most:
        return divisor
    return -(-bytes_of_devices(problem, 1) // most)


def is_over(search: Search) -> bool:
    """Whether time has run out or Ctrl-C was pressed; the solver sees by itself when the bound is met."""
    search.exhausted()
    return search.timed_out or search.interrupt.is_set()


class Step(NamedTuple):
    """When a step runs: its start, a variable, and its end, as an expression."""

    start: Any
    end: Any


class Buffer(NamedTuple):
    """A buffer on a device: since which step, whether it exists there, and its end."""

    since: Step
    present: Any
    end: Any


class Model:
    """The common parts of all models: OR-Tools' `CpModel`, the graph as lists, the making of variables and hints."""

    symmetry_level = 2  # how much OR-Tools looks for symmetries

    def __init__(self, search: Search) -> None:
        from ortools.sat.python import cp_model

        self.search, self.problem, self.graph = search, search.problem, search.problem.graph
        self.devices = range(self.problem.devices)
        self.producer = self.graph.tensor_producer.tolist()
        pointers, readers = (a.tolist() for a in self.graph.consumers)
        self.readers = [readers[a:b] for a, b in pairwise(pointers)]
        pointers, tensors = (a.tolist() for a in self.graph.inputs)
        self.reads = [tensors[a:b] for a, b in pairwise(pointers)]
        self.model = cp_model.CpModel()

    def check_time(self) -> None:
        """Raise `Cancelled` if the run is over; asked often, since a large model takes long to build."""
        if is_over(self.search):
            raise Cancelled

    def literal(self, hint: bool | None) -> Any:
        """Add a literal, hinted unless the hint is None."""
        variable = self.model.new_bool_var("")
        if hint is not None:
            self.model.add_hint(variable, hint)
        return variable

    def number(self, low: int, high: int, hint: int | None) -> Any:
        """Add a whole number from `low` to `high`, and hint the one nearest to `hint`, unless that is None."""
        variable = self.model.new_int_var(low, high, "")
        if hint is not None:
            self.model.add_hint(variable, min(max(low, hint), high))
        return variable


class HintedTimes:
    """Device of each op, and times of each step, of a schedule whose steps run as early as they can."""

    def __init__(self, devices: list[int]) -> None:
        self.device = devices
        self.times: dict[int | tuple[int, int], tuple[int, int]] = {}  # by op, and by tensor and target
        self.clock: dict[int | tuple[int, int], int] = {}

    @property
    def makespan(self) -> int:
        """The latest end."""
        return max((end for _, end in self.times.values()), default=0)

    def run(self, step: int | tuple[int, int], ready: int, duration: int, places: list[int | tuple[int, int]]) -> None:
        """Run a step once it is ready and the devices or the link that it occupies are free."""
        start = max([ready, *(self.clock.get(place, 0) for place in places)])
        self.times[step] = start, start + duration
        self.clock |= dict.fromkeys(places, start + duration)

    def number_devices(self, ranked: list[int]) -> None:
        """Give the devices numbers, in the order in which the ops of a list use them first."""
        used = list(dict.fromkeys(self.device[op] for op in ranked))
        new = {device: number for number, device in enumerate(used)}
        self.device = [new[device] for device in self.device]
        self.times = {
            step if isinstance(step, int) else (step[0], new[step[1]]): times for step, times in self.times.items()
        }


class Variables(Model):
    """A CP-SAT model's variables, each hinted with the best schedule known; without `counts_time` only order counts."""

    def __init__(self, search: Search, *, counts_time: bool) -> None:
        super().__init__(search)
        self.machine, self.own = self.problem.machine, first_home(self.graph)
        self.is_everywhere = replicated(self.problem)
        # Else OR-Tools 9.15 fails on residents without room.
        self.symmetry_level = 2 if self.problem.is_symmetric else 0
        self.units = units_of(search, counts_time=counts_time)
        self.most = bytes_of_devices(self.problem, self.units.bytes)
        self.size = (self.graph.tensor_size // self.units.bytes).tolist()
        self._op_times = self.units.whole(possible_times(self.problem))
        self.hint = self._hinted()
        # By these ops equal devices are numbered: the one that stays on device 0, then the longest, or of most memory.
        weight = self.graph.runtime if self.problem.task == "runtime" else op_needs(self.graph, self.problem.devices)
        first = self.problem.fixed_op
        self.ranked = [first, *(op for op in np.argsort(-weight, kind="stable").tolist() if op != first)]
        if self.problem.is_symmetric:
            self.hint.number_devices(self.ranked)
        self._add_placement()
        # Each op has a start, and lasts its time on its device.
        self.takes = [{d: self._op_times[op][d] for d in self.on[op]} for op in range(self.own)]
        self.ops = [self._step(op, [*takes.values()]) for op, takes in enumerate(self.takes)]
        self._add_transfers()

    def _sending(self, tensor: int) -> list[list[int]]:
        """Return the time of a tensor from each device to each, -1 without a link."""
        with np.errstate(invalid="ignore"):
            takes: FloatArray = (
                self.machine.latencies + int(self.graph.tensor_size[tensor]) * self.machine.microseconds_per_byte
            )
        return self.units.whole(np.where(self.machine.has_link, takes, np.inf))

    def _hinted(self) -> HintedTimes:
        """Return when each step of the best schedule known runs."""
        schedule = self.search.best
        assert schedule is not None
        hint = HintedTimes(schedule.placement(self.graph).tolist())
        there: dict[tuple[int, int], int] = {}
        columns = (schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist())
        for item, source, target in zip(*columns, strict=True):
            if item >= self.own:
                continue
            if item >= 0:
                ready = max((there.get((tensor, target), 0) for tensor in self.reads[item]), default=0)
                hint.run(item, ready, max(1, self._op_times[item][target]), [target])
                there |= {(tensor, target): hint.times[item][1] for tensor in self.graph.outputs(item)}
            else:
                ready, lasts = there.get((~item, source), 0), max(1, self._sending(~item)[source][target])
                places: list[int | tuple[int, int]] = [source, target]
                if self.machine.is_beside:
                    places = [(source, target)] if self.machine.contention else []
                hint.run((~item, target), ready, lasts, places)
                there[~item, target] = hint.times[~item, target][1]
        return hint

    def _add_placement(self) -> None:
        """Each op is on some device where it and all that is together with it may be."""
        self.on: list[dict[int, Any]] = []  # per op, by device; ops that are together share it
        groups = self.problem.rules.groups
        for op, first in enumerate(self.problem.rules.group.tolist()):
            self.check_time()
            if first < op:
                self.on.append(self.on[first])
                continue
            times = [self._op_times[member] for member in groups.get(op, [op])]
            able = [device for device in self.devices if all(row[device] >= 0 for row in times)]
            self.on.append({device: self.literal(self.hint.device[op] == device) for device in able})

    def _step(self, key: int | tuple[int, int], durations: list[int]) -> Step:
        """Add a step that lasts one of some durations."""
        begun, ended = self.hint.times.get(key, (0, 0))
        start = self.number(0, self.units.horizon - min(durations, default=0), begun)
        is_fixed = len({*durations}) == 1
        return Step(start, start + durations[0] if is_fixed else self.number(0, self.units.horizon, ended))

    def _add_transfers(self) -> None:
        """Each tensor that is read may be sent to each device where a reader may be, at some start."""
        # By tensor and device: whether it has to be there and is made elsewhere; the step that sends it, but for
        # replicas; and by source whether it comes from there, with what it takes.
        self.sent: dict[tuple[int, int], Any] = {}
        self.transfers: dict[tuple[int, int], Step] = {}
        self.links: dict[tuple[int, int], dict[int, tuple[Any, int]]] = {}
        for tensor, readers in enumerate(self.readers):
            self.check_time()
            sending = self._sending(tensor) if readers and len(self.devices) > 1 else []
            for device in self.devices if sending else ():
                if any(device in self.on[reader] for reader in readers):
                    self._add_transfer(tensor, device, [row[device] for row in sending])

    def _add_transfer(self, tensor: int, device: int, sending: list[int]) -> None:
        made_on, hinted = self.on[self.producer[tensor]], self.hint.device
        home, sources = hinted[self.producer[tensor]], [source for source in made_on if source != device]
        is_sent = home != device and any(hinted[reader] == device for reader in self.readers[tensor])
        sent = self.sent[tensor, device] = self.literal(is_sent)
        if self.is_everywhere[tensor]:
            return
        links = self.links[tensor, device] = {}
        for source in sources:
            is_only = len(sources) == 1
            if sending[source] >= 0:
                literal = sent if is_only else self.literal(is_sent and home == source)
                if not is_only:  # it holds if and only if the tensor is sent and made there
                    self.model.add_bool_or([~sent, ~made_on[source], literal])
                    self.model.add_implication(literal, sent)
                    self.model.add_implication(literal, made_on[source])
                links[source] = literal, sending[source]
        self.transfers[tensor, device] = self._step((tensor, device), [lasts for _, lasts in links.values()])

    def add_buffers(self) -> None:
        """Start a buffer for each tensor that is no view where an op makes it, and for any where it is sent."""
        self.buffers: dict[tuple[bool, int, int], Buffer] = {}  # by whether it is a copy that was sent, tensor, device
        number, latest = self.model.new_int_var, self.units.horizon
        for tensor, producer in enumerate(self.producer):
            self.check_time()
            if self.size[tensor] and self.graph.alias_of[tensor] < 0 and producer < self.own:
                for device, present in self.on[producer].items():
                    self.buffers[False, tensor, device] = Buffer(self.ops[producer], present, number(0, latest, ""))
        for (tensor, device), step in self.transfers.items():
            if self.size[tensor]:
                self.buffers[True, tensor, device] = Buffer(step, self.sent[tensor, device], number(0, latest, ""))

    def schedule(self, value: Any) -> Schedule:
        """Return the schedule of a solution: ops by their end and transfers by their start, residents first."""
        device = [next(d for d, literal in on.items() if value(literal)) for on in self.on]
        steps = [(HOLDS, False, op, device[op], device[op]) for op in range(self.own, self.graph.num_ops)]
        steps += [(value(step.end), False, op, device[op], device[op]) for op, step in enumerate(self.ops)]
        for (tensor, target), step in self.transfers.items():
            if value(self.sent[tensor, target]):
                steps.append((value(step.start), True, ~tensor, device[self.producer[tensor]], target))
        steps.sort()
        return Schedule.from_steps(*zip(*(step[2:] for step in steps), strict=True))
