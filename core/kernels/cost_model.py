"""The cost model: devices as arrays, a schedule one step at a time, and when steps run where transfers overlap ops.

Steps are taken in their order, each as early as it can be. An op waits for its device and its inputs. A blocking
transfer waits for both of its devices, so the events of a device come in the order of the steps (REGAL A.4). A
transfer beside work waits for its tensor, for the op before it on its target, and, under contention, for the one before
it on its link (`docs/concepts/machines.md`); memory then follows by sorting moments. A whole
schedule is priced by `run_steps`; searches that may stop midway take blocking steps by `step_op` and `step_transfer`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..base.arrays import BoolArray, FloatArray, IndexArray, IntArray, frozen
from ..problem.problem import Problem
from ..problem.residents import GraphWithHomes, first_home, model_of
from .bits import bit_of
from .graph_arrays import GraphArrays, graph_arrays, most_transfers
from .jit import inlined, kernel

NO_LIMIT = 2**62
FINE, MISSING_INPUT, NO_LINK = 0, 1, 2
THROUGHOUT = -1  # in place of a buffer's cell: a resident at its home, or a replica, whose bytes do not come and go


class MachineArrays(NamedTuple):
    """A machine, and how a graph lies on it."""

    times: FloatArray  # shape `(ops, devices)`: microseconds, infinite where an op cannot run
    # latency, per_byte: shape `(devices, devices)`: what a transfer takes, and each byte of it, in microseconds;
    # infinite if unlinked
    latency: FloatArray
    per_byte: FloatArray
    limits: IntArray  # shape `(devices,)`: bytes, `NO_LIMIT` for none
    beside: bool  # whether transfers run beside ops, and whether a direction of a link has one at a time
    contention: bool
    first_home: int  # from which op, and from which tensor, on they are residents
    first_resident: int
    everywhere: BoolArray  # shape `(tensors,)`: whether a resident is on every device that reads it from the start
    weight: FloatArray  # shape `(devices,)`: what a byte counts for the peak; empty where all count 1


class TimedSteps(NamedTuple):
    """A schedule with its times: per step the item, the device (a transfer's target), start and end in microseconds."""

    items: IndexArray
    targets: IndexArray
    start: FloatArray
    end: FloatArray


class Scratch(NamedTuple):
    """The state of a schedule that is being priced."""

    # A tensor on a device is the cell `tensor * devices + device`: when it is `there` (-1 if it is not), the cell whose
    # `buffer` it shares, and of that the `last` step that uses it and whether it is `kept`. Per device the `clock`,
    # that `before` the last op, bytes `resident` and their `peak`; per pair when the `link` is free. Per step its
    # `memory`, and the bytes that it takes `up` when it starts and puts `down` when it ends; `moments`, `order`,
    # `merged`, per step its `row`, and per row where it `ends` sort the starts and ends.

    placement: IndexArray
    there: FloatArray
    buffer: IndexArray
    last: IndexArray
    kept: BoolArray
    clock: FloatArray
    before: FloatArray
    resident: IntArray
    peak: IntArray
    link: FloatArray
    memory: IntArray
    up: IntArray
    down: IntArray
    moments: FloatArray
    order: IndexArray
    merged: IndexArray
    row: IndexArray
    ends: IndexArray


def machine_arrays(problem: Problem) -> tuple[GraphArrays, MachineArrays]:
    """Collect the arrays of a problem's graph and of its machine."""
    return graph_arrays(problem.graph, problem.devices), device_arrays(problem, problem.devices)


def device_arrays(problem: Problem, used: int) -> MachineArrays:
    """Collect the arrays of a machine, of which the first devices are used."""
    graph, machine = problem.graph, problem.machine
    if machine.is_equal:
        times = np.repeat(graph.runtime / machine.devices[0].speed, used).reshape(-1, used)
    else:
        times = problem.rules.times[:, :used]
    limits = [NO_LIMIT if limit is None else min(limit, NO_LIMIT) for limit in problem.memory_limits[:used]]
    return MachineArrays(
        frozen(times, np.float64),
        machine.latencies,
        machine.microseconds_per_byte,
        np.array(limits, np.int64),
        machine.is_beside,
        machine.contention,
        first_home(graph),
        model_of(graph).num_tensors,
        replicated(problem),
        problem.byte_weights[: 0 if problem.counts_alike else used],
    )


@inlined
def weighed(weight: FloatArray, device: int, memory: Any) -> Any:
    """Return what so many bytes of a device count for the peak."""
    return np.int64(min(memory * weight[device], float(NO_LIMIT))) if weight.size > 0 else memory


@inlined
def reached(m: MachineArrays, peaks: Any, device: int, peak: Any, excess: Any) -> Any:
    """Return the peak, as it counts, and the excess, with those of a device."""
    return max(peak, weighed(m.weight, device, peaks[device])), max(excess, peaks[device] - m.limits[device])


def replicated(problem: Problem) -> BoolArray:
    """Return which tensors are residents that are on every device that reads them from the start."""
    graph = problem.graph
    everywhere = np.zeros(graph.num_tensors, bool)
    if problem.replicate and isinstance(graph, GraphWithHomes):
        everywhere[model_of(graph).num_tensors :] = ~graph.is_written
    return everywhere


class State(NamedTuple):
    """The state of a schedule that is being stepped through; a tensor on a device is `tensor * devices + device`."""

    placement: IndexArray
    pending: IndexArray
    clock: FloatArray
    resident: IntArray
    peak: IntArray
    buffer: IndexArray
    uses: IndexArray
    ready: IndexArray
    transfers: IndexArray


def new_state(g: GraphArrays, devices: int, memory: bool) -> State:
    """Allocate a state; without memory accounting the per-device tensor arrays stay empty."""
    ops = len(g.runtime)
    cells = len(g.tensor_size) * devices if memory else 0
    read = g.consumer_ptr[g.output_ptr]
    columns: list[Any] = [
        *np.empty((2, ops), np.int32),
        np.empty(devices),
        *np.empty((2, devices), np.int64),
        *np.empty((2, cells), np.int32),
        np.empty(ops, np.int32),
        np.empty(int(np.diff(read).max()) + 1, np.int32),
    ]
    return State(*columns)


class Steps(NamedTuple):
    """Steps of a schedule as in `Schedule`, for kernels that write them; empty arrays ask for none."""

    items: IndexArray  # shape `(steps,)`: an op, or `~tensor` for its transfer
    targets: IndexArray  # shape `(steps,)`: the device that runs the op, or receives the tensor


def new_steps(g: GraphArrays, devices: int) -> Steps:
    """Allocate room for the steps of any schedule."""
    most = len(g.runtime) + most_transfers(g, devices)
    return Steps(np.empty(most, np.int32), np.empty(most, np.int32))


NO_STEPS = Steps(*np.empty((2, 0), np.int32))


@inlined
def write_step(steps: Any, at: int, item: int, target: int) -> int:
    """Write a step at a place, if steps are asked for; returns the next place."""
    if steps.items.size > 0:
        steps.items[at] = item
        steps.targets[at] = target
    return at + 1


@inlined
def _release(g: GraphArrays, s: State, cell: int, device: int, devices: int) -> None:
    """One consumer of the tensor in `cell` has run; the last one frees its buffer."""
    buffer = s.buffer[cell]
    s.uses[buffer] -= 1
    if s.uses[buffer] == 0:
        s.resident[device] -= g.tensor_size[buffer // devices]


@inlined
def _add_replicas(g: GraphArrays, m: MachineArrays, placement: IndexArray, resident: IntArray) -> None:
    """Add the residents that are everywhere to the bytes of devices that read them away from their home."""
    for tensor in range(m.first_resident, g.tensor_size.size):
        if not m.everywhere[tensor]:
            continue
        home = placement[g.producer[tensor]]
        for device in range(resident.size):
            if device == home:
                continue
            for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
                if placement[g.consumers[at]] == device:
                    resident[device] += g.tensor_size[tensor]
                    break


@inlined
def start(g: GraphArrays, m: MachineArrays, s: State, memory: bool) -> None:
    """Start a schedule with the placement that `s` holds, on devices with blocking transfers."""
    for op in range(g.runtime.size):
        s.pending[op] = g.input_ptr[op + 1] - g.input_ptr[op]
    for device in range(s.clock.size):
        s.clock[device] = 0.0
        s.resident[device] = 0
    if memory:
        for op in range(g.runtime.size):
            s.resident[s.placement[op]] += g.persistent[op]
        _add_replicas(g, m, s.placement, s.resident)
    for device in range(s.clock.size):
        s.peak[device] = s.resident[device]


@inlined
def step_op(g: GraphArrays, m: MachineArrays, s: State, op: int, memory: bool) -> tuple[int, int]:
    """Run an op on its device; returns how many ops became ready and how many transfers became due."""
    # What holds a resident keeps a use of it for good, and takes no bytes but the persistent ones. Consumers are looked
    # at without branches, which no processor would foresee: each is written to both lists, and counted in one or none.
    device, devices = s.placement[op], s.clock.size
    s.clock[device] += m.times[op, device]
    ready = 0
    transfers = 0
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        uses = 0
        everywhere = int(m.everywhere[tensor])
        targets = np.uint64(0)
        for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
            consumer = g.consumers[at]
            where = s.placement[consumer]
            here = int(where == device) | everywhere
            left = s.pending[consumer] - here
            s.pending[consumer] = left
            s.ready[ready] = consumer
            ready += here & int(left == 0)
            new = (1 - here) & int(targets & bit_of(where) == 0)
            targets |= np.uint64(new) << np.uint64(where)
            s.transfers[transfers] = tensor * devices + where
            transfers += new
            uses += here + new
        if memory and not g.is_control[tensor]:
            cell = tensor * devices + device
            if g.alias_of[tensor] >= 0:
                s.buffer[cell] = s.buffer[g.alias_of[tensor] * devices + device]
            else:
                s.buffer[cell] = cell
                s.uses[cell] = 0
                if tensor < m.first_resident:
                    s.resident[device] += g.tensor_size[tensor]
            s.uses[s.buffer[cell]] += uses + (1 if g.is_final[tensor] or tensor >= m.first_resident else 0)
    if memory:
        s.peak[device] = max(s.peak[device], s.resident[device] + g.workspace[op])
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            if not g.is_control[tensor] and not m.everywhere[tensor]:
                _release(g, s, tensor * devices + device, device, devices)
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            unused = g.alias_of[tensor] < 0 and not g.is_control[tensor]
            if unused and s.uses[tensor * devices + device] == 0:
                s.resident[device] -= g.tensor_size[tensor]
    return ready, transfers


@inlined
def step_transfer(g: GraphArrays, m: MachineArrays, s: State, tensor: int, target: int, memory: bool) -> int:
    """Copy a tensor from its producer's device to another, both of which wait; returns how many ops became ready."""
    devices = s.clock.size
    source = s.placement[g.producer[tensor]]
    begun = max(s.clock[source], s.clock[target])
    end = begun + m.latency[source, target] + g.tensor_size[tensor] * m.per_byte[source, target]
    s.clock[source] = end
    s.clock[target] = end
    ready = 0
    uses = 0
    for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
        consumer = g.consumers[at]
        here = int(s.placement[consumer] == target)
        uses += here
        left = s.pending[consumer] - here
        s.pending[consumer] = left
        s.ready[ready] = consumer
        ready += here & int(left == 0)
    if memory and not g.is_control[tensor]:
        cell = tensor * devices + target
        s.buffer[cell] = cell
        s.uses[cell] = uses
        s.resident[target] += g.tensor_size[tensor]
        _release(g, s, tensor * devices + source, source, devices)
    if memory:
        s.peak[target] = max(s.peak[target], s.resident[target])
    return ready


def new_timed_steps(g: GraphArrays, devices: int) -> TimedSteps:
    """Allocate room for the steps of any schedule."""
    most = len(g.runtime) + most_transfers(g, devices)
    return TimedSteps(np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most), np.empty(most))


def new_scratch(g: GraphArrays, devices: int) -> Scratch:
    """Allocate the scratch."""
    cells, most = len(g.tensor_size) * devices, len(g.runtime) + most_transfers(g, devices)
    columns: list[Any] = [
        np.zeros(len(g.runtime), np.int32),
        np.empty(cells),
        *np.empty((2, cells), np.int32),
        np.empty(cells, np.bool_),
        *np.empty((2, devices)),
        *np.empty((2, devices), np.int64),
        np.empty(devices * devices),
        *np.empty((3, most), np.int64),
        np.empty(2 * most),
        *np.empty((2, 2 * most), np.int32),
        np.empty(most, np.int32),
        np.empty(devices + 3, np.int32),
    ]
    return Scratch(*columns)


@inlined
def begin(s: Scratch) -> None:
    """Forget all times."""
    s.there[:] = -1.0
    s.clock[:] = 0.0
    s.before[:] = 0.0
    s.link[:] = 0.0


@inlined
def time_op(g: GraphArrays, m: MachineArrays, s: Scratch, op: int, device: int) -> tuple[float, float]:
    """Run an op; returns its start, negative if an input is not there, and its end."""
    devices = s.clock.size
    if op >= m.first_home:
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            for other in range(devices):
                if other == device or m.everywhere[tensor]:
                    s.there[tensor * devices + other] = 0.0
        return 0.0, 0.0
    start = s.clock[device]
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        there = s.there[g.inputs[at] * devices + device]
        if there < 0.0:
            return -1.0, -1.0
        start = max(start, there)
    end = start + m.times[op, device]
    s.before[device] = s.clock[device]
    s.clock[device] = end
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        s.there[tensor * devices + device] = end
    return start, end


@inlined
def time_transfer(g: GraphArrays, m: MachineArrays, s: Scratch, tensor: int, target: int, after: float) -> Any:
    """Send a tensor after a moment; returns its start, negative if it is not there, and end, infinite if unlinked."""
    devices = s.clock.size
    source = s.placement[g.producer[tensor]]
    start = s.there[tensor * devices + source]
    if start < 0.0:
        return -1.0, -1.0
    if m.latency[source, target] == np.inf:
        return start, np.inf
    start = max(start, after)
    pair = source * devices + target
    if m.beside:
        if m.contention:
            start = max(start, s.link[pair])
        end = start + (m.latency[source, target] + g.tensor_size[tensor] * m.per_byte[source, target])
        s.link[pair] = end
    else:
        start = max(start, s.clock[source], s.clock[target])
        end = start + m.latency[source, target] + g.tensor_size[tensor] * m.per_byte[source, target]  # as in steps
        s.clock[source] = end
        s.clock[target] = end
    s.there[tensor * devices + target] = end
    return start, end


@inlined
def _use(s: Scratch, cell: int, step: int, end: Any) -> None:
    """Note that a step uses a buffer, which is free after the last to end; of equals, the last."""
    if cell == THROUGHOUT:
        return
    before = s.last[cell]
    if end[step] > end[before] or (end[step] == end[before] and step > before):
        s.last[cell] = step


@inlined
def _find_lifetimes(g: GraphArrays, m: MachineArrays, s: Scratch, steps: TimedSteps, count: int) -> None:
    """Fill `buffer`, `last` and `kept`, and the bytes that each step takes up, without those that it frees."""
    devices = s.clock.size
    for tensor in range(m.first_resident, g.tensor_size.size):
        for device in range(devices):
            if m.everywhere[tensor] or device == s.placement[g.producer[tensor]]:
                s.buffer[tensor * devices + device] = THROUGHOUT
    for step in range(count):
        item, device = steps.items[step], steps.targets[step]
        s.up[step] = 0
        s.down[step] = 0
        if item >= m.first_home:
            continue
        if item >= 0:
            s.up[step] = g.workspace[item]
            s.down[step] = g.workspace[item]
            for tensor in range(g.output_ptr[item], g.output_ptr[item + 1]):
                if g.is_control[tensor]:
                    continue
                cell = tensor * devices + device
                if g.alias_of[tensor] >= 0:
                    cell = s.buffer[g.alias_of[tensor] * devices + device]
                    _use(s, cell, step, steps.end)
                else:
                    s.last[cell] = step
                    s.kept[cell] = False
                    s.up[step] += g.tensor_size[tensor]
                s.buffer[tensor * devices + device] = cell
                if g.is_final[tensor] and cell != THROUGHOUT:
                    s.kept[cell] = True
            for at in range(g.input_ptr[item], g.input_ptr[item + 1]):
                tensor = g.inputs[at]
                if not g.is_control[tensor]:
                    _use(s, s.buffer[tensor * devices + device], step, steps.end)
        elif not g.is_control[~item]:
            tensor = ~item
            cell = tensor * devices + device
            s.buffer[cell] = cell
            s.last[cell] = step
            s.kept[cell] = False
            s.up[step] = g.tensor_size[tensor]
            _use(s, s.buffer[tensor * devices + s.placement[g.producer[tensor]]], step, steps.end)


@kernel
def sort_moments(m: MachineArrays, s: Scratch, steps: TimedSteps, count: int, per_step: Any) -> None:
    """Fill `s.order` with the places of the least `s.moments` first, so many of each step, equals in their order."""
    # Rows, all in order but the last: devices, initial tensors, and transfers, which start whenever their link is free.
    order, ends, devices = s.order, s.ends, s.clock.size
    for step in range(count):
        item = steps.items[step]
        s.row[step] = devices if item >= m.first_home else devices + 1 if item < 0 else steps.targets[step]
    ends[:] = 0
    for step in range(count):
        ends[s.row[step] + 1] += per_step
    for row in range(devices + 2):
        ends[row + 1] += ends[row]
    for step in range(count):
        for at in range(step * per_step, (step + 1) * per_step):
            order[ends[s.row[step]]] = at
            ends[s.row[step]] += 1
    first, last, width = ends[devices], ends[devices + 1], 1
    while width < last - first:
        for low in range(first, last, 2 * width):
            _merge(s, low, min(low + width, last), min(low + 2 * width, last))
        width *= 2
    for row in range(1, devices + 2):
        _merge(s, 0, ends[row - 1], ends[row])


@inlined
def _merge(s: Scratch, low: int, middle: int, high: int) -> None:
    """Merge two stretches of places that are in order, one behind the other."""
    order, merged = s.order, s.merged
    if low < middle < high and _is_before(s.moments, order[middle], order[middle - 1]):
        for at in range(low, middle):
            merged[at] = order[at]
        one, two, at = low, middle, low
        while one < middle:
            if two < high and _is_before(s.moments, order[two], merged[one]):
                order[at] = order[two]
                two += 1
            else:
                order[at] = merged[one]
                one += 1
            at += 1


@inlined
def _is_before(moments: FloatArray, one: np.int32, other: np.int32) -> bool:
    return bool(moments[one] < moments[other] or (moments[one] == moments[other] and one < other))


@kernel
def account(g: GraphArrays, m: MachineArrays, s: Scratch, steps: TimedSteps, count: int) -> None:
    """Fill `peak` per device and `memory` per step, of steps whose times are known."""
    # Of a start and an end at one moment, that of the earlier step comes first, and of one step its start. Where
    # transfers block, all that changes what a device holds comes in the order of the steps.
    _find_lifetimes(g, m, s, steps, count)
    devices = s.clock.size
    for step in range(count):  # what it makes goes down with the last step that uses it
        item, device = steps.items[step], steps.targets[step]
        if item >= m.first_home:
            continue
        first, beyond = ~item, ~item + 1
        if item >= 0:
            first, beyond = g.output_ptr[item], g.output_ptr[item + 1]
        for tensor in range(first, beyond):
            cell = tensor * devices + device
            is_own = item < 0 or g.alias_of[tensor] < 0
            if is_own and not g.is_control[tensor] and not s.kept[cell]:
                s.down[s.last[cell]] += g.tensor_size[tensor]
    s.resident[:] = 0
    for op in range(g.persistent.size):
        s.resident[s.placement[op]] += g.persistent[op]
    _add_replicas(g, m, s.placement, s.resident)
    for device in range(s.clock.size):
        s.peak[device] = s.resident[device]
    if m.beside:
        for step in range(count):
            s.moments[2 * step] = steps.start[step]
            s.moments[2 * step + 1] = steps.end[step]
        sort_moments(m, s, steps, count, np.int64(2))
    for at in range(2 * count):
        step, is_end = divmod(s.order[at] if m.beside else at, 2)
        item, device = steps.items[step], steps.targets[step]
        if is_end:
            source = device if item >= 0 else s.placement[g.producer[~item]]
            s.resident[source] -= s.down[step]
        else:
            s.resident[device] += s.up[step]
            s.peak[device] = max(s.peak[device], s.resident[device])
            s.memory[step] = s.resident[device]


@kernel
def run_steps(g: GraphArrays, m: MachineArrays, s: Scratch, steps: TimedSteps, memory: bool) -> tuple[int, int]:
    """Time steps, and account for their memory if asked to; returns the first wrong step and its fault."""
    begin(s)
    for step in range(steps.items.size):
        item, device = steps.items[step], steps.targets[step]
        if item >= 0:
            start, end = time_op(g, m, s, item, device)
        else:
            start, end = time_transfer(g, m, s, ~item, device, s.clock[device])
        if start < 0.0:
            return step, MISSING_INPUT
        if end == np.inf:
            return step, NO_LINK
        steps.start[step] = start
        steps.end[step] = end
    if memory:
        account(g, m, s, steps, steps.items.size)
    return -1, FINE
