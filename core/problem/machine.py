"""A machine: devices of different speeds and memories, the links between them, and fixed placements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from numbers import Integral, Real
from typing import Any, Literal, get_args

import numpy as np

from ..base.arrays import INT64_MAX, BoolArray, FloatArray, frozen
from ..base.errors import UsageError
from ..base.units import MAX_DEVICES

Transfers = Literal["blocking", "beside"]


@dataclass(frozen=True)
class Device:
    """A device of a machine.

    Parameters
    ----------
    name
        Unique in its machine.
    kind
        The kind to which op times and links may refer, such as `gpu`; `device` by default.
    memory
        Bytes, or None (default) for no limit.
    speed
        An op takes its runtime divided by this; 1 by default, 0 for a device that holds tensors and computes nothing.

    Raises
    ------
    UsageError
        If a value is of the wrong type or out of range.

    Examples
    --------
    >>> schedopt.Device("gpu0", "gpu", memory=2**34)
    Device(name='gpu0', kind='gpu', memory=17179869184, speed=1.0)
    """

    name: str
    kind: str = "device"
    memory: int | None = None
    speed: float = 1.0

    def __post_init__(self) -> None:
        for what in ("name", "kind"):
            if not isinstance(getattr(self, what), str) or not getattr(self, what):
                raise UsageError(f"the {what} of a device is a text, not {getattr(self, what)!r}")
        is_whole = isinstance(self.memory, Integral) and not isinstance(self.memory, bool)
        if self.memory is not None and not (is_whole and 0 < self.memory <= INT64_MAX):
            raise UsageError(f"the memory of device '{self.name}' is from 1 to 2^63 - 1 bytes, not {self.memory!r}")
        is_number = isinstance(self.speed, Real) and not isinstance(self.speed, bool)
        if not (is_number and 0 <= self.speed < math.inf):
            raise UsageError(f"the speed of device '{self.name}' must be a number from 0 on, not {self.speed!r}")


Matrix = tuple[tuple[float, ...], ...]
OpTimes = Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True)
class Machine:
    """Devices and their links; ops that are fixed to some of them, or to each other.

    Parameters
    ----------
    devices
        1 to 64, of different names.
    bandwidth
        Bytes per second from each device to each other, shape `(devices, devices)` or one number for all: infinite by
        default, 0 for no link.
    latency
        Microseconds that a transfer adds, likewise; 0 by default.
    transfers
        `blocking` (default): a transfer occupies both of its devices. `beside`: it runs beside their ops.
    contention
        Whether a direction of a link carries one transfer at a time, true by default. Blocking ones do anyway.
    pins
        `(pattern, device)` pairs: ops and resident tensors whose name matches the pattern are on that device, which is
        named by its name or kind; none by default.
    together
        Groups of patterns: all that match one of a group are on one device, and groups with an op in common are one
        group; none by default.
    op_times
        Per name of an op its microseconds by kind of device, None where it cannot run. By default, and for a kind that
        is not there, an op takes its runtime by the device's speed.
    places
        The names in errors of `links`, `op_times`, each pin and each group, by `pin PATTERN` and `together NUMBER`:
        file and line; by default they are named alone.

    Raises
    ------
    UsageError
        If a value is of the wrong type or out of range.

    Examples
    --------
    >>> gpu, cpu = schedopt.Device("gpu0", "gpu", memory=2**34), schedopt.Device("cpu0", "cpu", 2**36, speed=0.05)
    >>> machine = schedopt.Machine((gpu, cpu), bandwidth=25e9, latency=5.0, transfers="beside")
    >>> machine
    Machine('gpu0', 'cpu0')
    """

    devices: tuple[Device, ...]
    bandwidth: Any = math.inf
    latency: Any = 0.0
    transfers: Transfers = "blocking"
    contention: bool = True
    pins: tuple[tuple[str, str], ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    op_times: OpTimes = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(self.devices))
        if not all(isinstance(device, Device) for device in self.devices):
            raise UsageError("the devices of a Machine are of the class Device")
        if not 1 <= len(self.devices) <= MAX_DEVICES:
            raise UsageError(f"a machine has from 1 to {MAX_DEVICES} devices, not {len(self.devices)}")
        names = [device.name for device in self.devices]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"two devices of a machine have the name '{twice}'")
        if self.transfers not in get_args(Transfers):
            raise UsageError(f"transfers are blocking or beside, not {self.transfers!r}")
        if not isinstance(self.contention, bool):
            raise UsageError(f"contention is true or false, not {self.contention!r}")
        count = len(self.devices)
        object.__setattr__(self, "bandwidth", _matrix(self.bandwidth, count, "bandwidth", within=math.inf))
        object.__setattr__(self, "latency", _matrix(self.latency, count, "latency", within=0.0))
        object.__setattr__(self, "pins", tuple(tuple(pin) for pin in self.pins))
        if wrong := [group for group in self.together if isinstance(group, str) or not list(group)]:
            raise UsageError(f"a group of a machine's together is a list of patterns of ops, not {wrong[0]!r}")
        object.__setattr__(self, "together", tuple(tuple(group) for group in self.together))
        for _, device in self.pins:
            self.named(device)
        _check_times(self.op_times)

    @staticmethod
    def equal(devices: int, bandwidth: float | None = None, latency: float = 0.0) -> Machine:
        """Return so many equal devices, any two linked alike, with blocking transfers, as in REGAL."""
        return _equal(devices, math.inf if bandwidth is None else bandwidth, latency)

    def named(self, name: str) -> list[int]:
        """Return the devices of a name or a kind; UsageError if there are none."""
        by_name = [at for at, device in enumerate(self.devices) if device.name == name]
        found = by_name or [at for at, device in enumerate(self.devices) if device.kind == name]
        if not found:
            known = ", ".join(device.name for device in self.devices)
            raise UsageError(f"the machine has no device '{name}'; it has {known}")
        return found

    def place(self, what: str) -> str:
        """Return the file and line of something with a colon behind, or nothing where they are not known."""
        return f"{self.places[what]}: " if what in self.places else ""

    @cached_property
    def latencies(self) -> FloatArray:
        """Microseconds that a transfer adds, from each device to each; infinite without a link."""
        return frozen(np.where(np.isinf(self.microseconds_per_byte), np.inf, np.array(self.latency)), np.float64)

    @cached_property
    def microseconds_per_byte(self) -> FloatArray:
        """The time of a byte from each device to each; infinite without a link, 0 within a device."""
        bandwidth = np.array(self.bandwidth)
        with np.errstate(over="ignore"):
            cost = np.divide(1e6, bandwidth, out=np.full(bandwidth.shape, np.inf), where=bandwidth > 0)
        np.fill_diagonal(cost, 0.0)
        return frozen(cost, np.float64)

    @cached_property
    def has_link(self) -> BoolArray:
        """Whether each device can send to each."""
        return frozen(np.isfinite(self.microseconds_per_byte), np.bool_)

    @cached_property
    def mean_link(self) -> tuple[float, float]:
        """The time of a transfer over the mean of all links, and of each byte of it, microseconds; 0 without links."""
        linked = self.has_link & ~np.eye(len(self.devices), dtype=bool)
        if not linked.any():
            return 0.0, 0.0
        costs = self.latencies[linked], self.microseconds_per_byte[linked]
        # a mean of equal numbers may differ from them in its last bit
        latency, per_byte = (float(each[0] if self.is_equal else each.mean()) for each in costs)
        return latency, per_byte

    @property
    def common_link(self) -> tuple[float | None, float]:
        """The bandwidth (None for infinite) and latency of all links of equal devices; of others `(None, 0.0)`."""
        bandwidth, latency = self.bandwidth[0][-1], self.latency[0][-1]
        return (bandwidth if bandwidth < math.inf else None, latency) if self.is_equal else (None, 0.0)

    @property
    def is_beside(self) -> bool:
        """Whether transfers run beside the ops of their devices."""
        return self.transfers == "beside"

    @property
    def counts_shares(self) -> bool:
        """Whether the fullest device is that of the largest share of its memory: all devices have one."""
        return all(device.memory is not None for device in self.devices)

    @cached_property
    def is_equal(self) -> bool:
        """Whether devices can be exchanged: all alike, any two linked alike, transfers blocking, no op bound to any."""
        one, apart = self.devices[0], ~np.eye(len(self.devices), dtype=bool)
        links = self.latencies[apart], self.microseconds_per_byte[apart]
        is_alike = all((d.kind, d.memory, d.speed) == (one.kind, one.memory, one.speed) for d in self.devices)
        is_linked = bool(self.has_link.all()) and all((costs == costs[:1]).all() for costs in links)
        is_bound = self.pins or self.together or self.op_times
        return is_alike and is_linked and one.speed > 0 and not self.is_beside and not is_bound

    @cached_property
    def is_anonymous(self) -> bool:
        """Whether `Machine.equal` makes it: a number of devices, a bandwidth and a latency say all of it."""
        bandwidth, latency = self.bandwidth[0][-1], self.latency[0][-1]
        return bandwidth > 0 and self == Machine.equal(len(self.devices), bandwidth, latency)

    def document(self) -> dict[str, Any]:
        """Return the machine as plain values, as its YAML file has them."""
        names = [device.name for device in self.devices]
        devices = [
            {"name": d.name, "kind": d.kind, **({} if d.memory is None else {"memory": d.memory}), "speed": d.speed}
            for d in self.devices
        ]
        links = [
            {
                "from": names[one],
                "to": names[two],
                **({} if math.isinf(self.bandwidth[one][two]) else {"bandwidth": self.bandwidth[one][two]}),
                "latency": self.latency[one][two],
            }
            for one in range(len(names))
            for two in range(len(names))
            if one != two and self.bandwidth[one][two] > 0
        ]
        document: dict[str, Any] = {"devices": devices, "links": links}
        document |= {"transfers": self.transfers, "contention": self.contention}
        if self.pins:
            document["pins"] = [list(pin) for pin in self.pins]
        if self.together:
            document["together"] = [list(group) for group in self.together]
        if self.op_times:
            document["op_times"] = {op: dict(times) for op, times in self.op_times.items()}
        return document

    def __repr__(self) -> str:
        return f"Machine({', '.join(repr(device.name) for device in self.devices)})"

    __hash__ = None  # type: ignore[assignment]


class ByteMachine(Machine):
    """A machine whose fullest device is that of most bytes, though all may have a memory."""

    counts_shares = False


@lru_cache(maxsize=64)
def _equal(devices: int, bandwidth: float, latency: float) -> Machine:
    """Return equal devices; one machine for all problems that ask for the same."""
    return Machine(tuple(Device(f"device {number}") for number in range(devices)), bandwidth, latency)


def _matrix(given: Any, count: int, what: str, within: float) -> Matrix:
    """Return numbers for all pairs of devices, of one number or of a matrix; within a device they are fixed."""
    if isinstance(given, Real) and not isinstance(given, bool):
        given = [[float(given)] * count] * count
    try:
        values = np.array(given, np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the {what} of a machine is a number, or one per pair of devices, not {given!r}") from error
    if values.shape != (count, count):
        raise UsageError(f"the {what} of {count} devices has the shape ({count}, {count}), not {values.shape}")
    np.fill_diagonal(values, within)
    possible = (values >= 0) & (values <= (np.inf if within else np.finfo(np.float64).max))
    if not possible.all():
        wrong = values[~possible][0]
        raise UsageError(f"the {what} between devices must not be negative, not {wrong}")
    return tuple(tuple(row) for row in values.tolist())


def _check_times(times: OpTimes) -> None:
    if not isinstance(times, Mapping) or not all(isinstance(by_kind, Mapping) for by_kind in times.values()):
        raise UsageError("op times are a mapping of ops to mappings of kinds of devices to microseconds or None")
    for op, by_kind in times.items():
        for kind, time in by_kind.items():
            if time is not None and (isinstance(time, bool) or not (isinstance(time, Real) and 0 <= time < math.inf)):
                raise UsageError(f"op '{op}' takes {time!r} on kind '{kind}'; it must be microseconds from 0 on")


def distinct_devices(machine: Machine) -> Sequence[int]:
    """Return the first device of each kind, speed and memory: others are as good alone."""
    first: dict[tuple[str, float, int | None], int] = {}
    for at, device in enumerate(machine.devices):
        first.setdefault((device.kind, device.speed, device.memory), at)
    return list(first.values())
