"""Machine files: YAML of devices, links, and fixed ops (`docs/concepts/machines.md`), and CSV files of op times."""

import csv
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ..base.errors import FormatError, UsageError
from ..base.units import MAX_DEVICES, parse_bandwidth, parse_bytes, parse_microseconds
from ..problem.machine import Device, Machine, OpTimes
from .reading import read_bytes
from .yaml_files import not_yaml, parse_yaml

_MEMBERS = ("devices", "links", "default_link", "transfers", "contention", "pins", "together", "op_times")
Place = tuple[Any, ...]
"""Where a value is: the keys and numbers that lead to it."""


def read_machine(path: str | Path, op_times: str | Path | None = None) -> Machine:
    """Read a machine file.

    Parameters
    ----------
    path
        A YAML file.
    op_times
        A CSV file of times by kind of device, as `read_op_times` reads it; by default ops take runtime / speed.

    Raises
    ------
    FormatError
        Naming file and line, if it cannot be read or a value is not understood.

    Examples
    --------
    >>> _ = open("pair.yaml", "w").write('''devices:
    ...   - {name: gpu0, kind: gpu, memory: 16GiB, speed: 1.0}
    ...   - {name: cpu0, kind: cpu, memory: 64GiB, speed: 0.1}
    ... links:
    ...   - {between: [gpu0, cpu0], bandwidth: 25GB/s, latency: 5us}
    ... transfers: beside
    ... ''')
    >>> schedopt.read_machine("pair.yaml")
    Machine('gpu0', 'cpu0')
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
        document = parse_yaml(text)
        lines = _lines(yaml.compose(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise not_yaml(path, error) from error

    def where(place: Place) -> str:
        if op_times is not None and place[:1] == ("op_times",):
            return str(op_times)
        while place and place not in lines:
            place = place[:-1]
        return f"{path}, line {lines.get(place, 1)}"

    times = None if op_times is None else read_op_times(op_times)
    return machine_of(document, where, times, is_own=True)


def _lines(root: Any) -> dict[Place, int]:
    """Return the line of each value of a YAML document; an aliased value again has its line where it is first."""
    lines: dict[Place, int] = {}
    waiting: list[tuple[Place, Any]] = [((), root)] if root is not None else []
    seen: set[int] = set()
    for place, node in waiting:  # which grows, from the top down
        lines.setdefault(place, node.start_mark.line + 1)
        if id(node) in seen:  # however often it is named, its values are there once
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                lines[(*place, key.value)] = key.start_mark.line + 1
                waiting.append(((*place, key.value), value))
        elif isinstance(node, yaml.SequenceNode):
            waiting += [((*place, number), value) for number, value in enumerate(node.value)]
    return lines


def machine_of(
    document: Any, where: Callable[[Place], str], op_times: OpTimes | None = None, *, is_own: bool = False
) -> Machine:
    """Return the machine of plain values."""
    reader = _Reader(document, where, is_own)
    try:
        return reader.machine(op_times)
    except UsageError as error:
        raise FormatError(f"{where(reader.place)}: {error}") from error


class _Reader:
    """Reads a document value by value; `place` is the name of the present one."""

    def __init__(self, document: Any, where: Callable[[Place], str], is_own: bool) -> None:
        self.document, self.where, self.is_own = document, where, is_own
        self.place: Place = ()

    def fail(self, place: Place, text: str) -> FormatError:
        return FormatError(f"{self.where(place)}: {text}")

    def machine(self, op_times: OpTimes | None) -> Machine:
        top = self._mapping(self.document, (), _MEMBERS, "a machine")
        devices = self._devices(top)
        machine = Machine(devices)
        bandwidth, latency = self._links(top, machine)
        for name, kind in (("transfers", str), ("contention", bool)):
            if name in top and not isinstance(top[name], kind):
                raise self.fail((name,), f"{name} is {'true or false' if kind is bool else 'a text'}")
        self.place = ("transfers",)
        settings = {name: top[name] for name in ("transfers", "contention") if name in top}
        machine = Machine(devices, bandwidth, latency, **settings)
        pins = self._pins(top, machine)
        groups = self._list(top.get("together") or [], ("together",), "together")
        for number, group in enumerate(groups):
            if not (isinstance(group, list) and group and all(isinstance(pattern, str) for pattern in group)):
                raise self.fail(("together", number), f"a group is a list of patterns of ops, not {group!r:.60}")
        together = tuple(map(tuple, groups))
        kinds = {device.kind for device in devices}
        times = self._op_times(top.get("op_times", {}) if op_times is None else op_times, kinds)
        self.place = ("op_times",)
        # Parts that only a graph can show to be wrong, as errors call them.
        places = {name: self.where((name,)) for name in ("devices", "links", "op_times")}
        places |= {f"pin {pattern}": self.where(("pins", pattern)) for pattern, _ in pins}
        places |= {f"together {number}": self.where(("together", number)) for number in range(len(together))}
        return replace(machine, pins=pins, together=together, op_times=times, places=places)

    def _mapping(self, value: Any, place: Place, members: tuple[str, ...], what: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            found = "there is nothing" if value is None else f"this is {value!r:.60}"
            raise self.fail(place, f"{what} has members such as {', '.join(members[:3])}; {found}")
        if unknown := next((key for key in value if key not in members), None):
            raise self.fail((*place, unknown), f"{what} has no '{unknown}'; it has {', '.join(members)}")
        return value

    def _op_times(self, times: Any, kinds: set[str]) -> OpTimes:
        """Return the times of ops by kind of device; a schedule may carry more kinds than the machine has."""
        found: dict[str, dict[str, float | None]] = {}
        if not isinstance(times, dict):
            raise self.fail(("op_times",), f"op_times has a member per op, not {times!r:.60}")
        for op, by_kind in times.items():
            if not isinstance(by_kind, dict):
                raise self.fail(("op_times", op), f"op '{op}' has a time per kind of device, not {by_kind!r:.60}")
            for kind, time in by_kind.items():
                self.place = ("op_times", op, kind)
                if self.is_own and kind not in kinds:
                    raise self.fail(self.place, f"op '{op}' has a time for kind '{kind}', which no device has")
                by_kind = by_kind | {kind: parse_microseconds(time, "time") if isinstance(time, str) else time}
            found[op] = by_kind
        return found

    def _list(self, value: Any, place: Place, what: str) -> list[Any]:
        if not isinstance(value, list):
            raise self.fail(place, f"{what} is a list, not {value!r:.60}")
        return value

    def _devices(self, top: Mapping[str, Any]) -> tuple[Device, ...]:
        if "devices" not in top:
            raise self.fail((), "a machine has devices: a list of them is missing")
        listed = self._list(top["devices"], ("devices",), "devices")
        if not 1 <= len(listed) <= MAX_DEVICES:
            raise self.fail(("devices",), f"a machine has from 1 to {MAX_DEVICES} devices, not {len(listed)}")
        made: list[Device] = []
        for number, values in enumerate(listed):
            place: Place = ("devices", number)
            given = self._mapping(values, place, ("name", "kind", "memory", "speed"), "a device")
            if "name" not in given:
                raise self.fail(place, f"the device {number} has no name")
            memory = given.get("memory")
            self.place = (*place, "memory")
            if isinstance(memory, float) and not memory.is_integer():
                raise self.fail(self.place, f"memory is a whole number of bytes, or has a unit, not {memory}")
            size = None if memory is None else parse_bytes(memory, "memory")
            self.place = place
            made.append(Device(given["name"], given.get("kind", "device"), size, _number(given.get("speed", 1.0))))
            if made[-1].name in [other.name for other in made[:-1]]:
                raise self.fail(place, f"two devices have the name '{made[-1].name}'")
        return tuple(made)

    def _links(self, top: Mapping[str, Any], machine: Machine) -> tuple[list[list[float]], list[list[float]]]:
        count, cost = len(machine.devices), (0.0, 0.0)
        if "default_link" in top:
            default = self._mapping(top["default_link"], ("default_link",), ("bandwidth", "latency"), "default_link")
            cost = self._cost(default, ("default_link",))
        bandwidth, latency = ([[value] * count for _ in range(count)] for value in cost)
        for number, values in enumerate(self._list(top.get("links") or [], ("links",), "links")):
            place: Place = ("links", number)
            link = self._mapping(values, place, ("between", "from", "to", "bandwidth", "latency"), "a link")
            pairs = self._pairs(link, place, machine)
            cost = self._cost(link, place)
            for one, two in pairs:
                bandwidth[one][two], latency[one][two] = cost
        for at in range(count):
            bandwidth[at][at], latency[at][at] = math.inf, 0.0
        return bandwidth, latency

    def _pairs(self, link: Mapping[str, Any], place: Place, machine: Machine) -> list[tuple[int, int]]:
        """Return the pairs of devices that a link of names or kinds is between."""
        if ("between" in link) == ("from" in link or "to" in link) or ("from" in link) != ("to" in link):
            raise self.fail(place, "a link is between: [a, b], or from: a, to: b")
        ends = link["between"] if "between" in link else [link["from"], link["to"]]
        if not (isinstance(ends, list) and len(ends) == 2 and all(isinstance(end, str) for end in ends)):
            raise self.fail(place, f"a link has two ends, named by names or kinds of devices, not {ends!r:.60}")
        self.place = place
        one, two = (machine.named(end) for end in ends)
        pairs = [(a, b) for a in one for b in two if a != b]
        if not pairs:
            raise self.fail(place, f"the link between '{ends[0]}' and '{ends[1]}' joins no two devices")
        return pairs + [(b, a) for a, b in pairs] if "between" in link else pairs

    def _cost(self, link: Mapping[str, Any], place: Place) -> tuple[float, float]:
        self.place = (*place, "bandwidth")
        bandwidth = math.inf if link.get("bandwidth") is None else parse_bandwidth(link["bandwidth"])
        if bandwidth == 0:
            raise self.fail(self.place, "the bandwidth of a link must be more than 0; leave the link out instead")
        self.place = (*place, "latency")
        return bandwidth, parse_microseconds(link.get("latency", 0))

    def _pins(self, top: Mapping[str, Any], machine: Machine) -> tuple[tuple[str, str], ...]:
        pins = top.get("pins") or {}
        if not isinstance(pins, (dict, list)):
            raise self.fail(("pins",), f"pins are patterns of ops with a device each, not {pins!r:.60}")
        listed = pins.items() if isinstance(pins, dict) else pins
        pairs = [tuple(pin) if isinstance(pin, (list, tuple)) else (pin,) for pin in listed]
        for pair in pairs:
            place: Place = ("pins", *pair[:1])
            if len(pair) != 2 or not all(isinstance(part, str) for part in pair):
                raise self.fail(place, f"a pin is a pattern of ops with the name or kind of a device, not {pair!r:.60}")
            self.place = place
            machine.named(pair[1])
        return tuple(pairs)


def _number(value: Any) -> Any:
    """Return the number of a text such as 1e-1, which YAML takes for none; all else as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def read_op_times(path: str | Path) -> dict[str, dict[str, float | None]]:
    """Read a CSV file with a column `op`, then one per kind of device."""
    try:
        reader = csv.reader(io.StringIO(read_bytes(path).decode("utf-8-sig"), newline=""))
        rows = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"{path}: not a CSV file: {error}") from error
    if not rows or len(rows[0][1]) < 2 or rows[0][1][0].strip() != "op":
        raise FormatError(f"{path}, line 1: the columns are op, then one per kind of device")
    kinds = [kind.strip() for kind in rows[0][1][1:]]
    if again := next((kind for kind in kinds if kinds.count(kind) > 1), None):
        raise FormatError(f"{path}, line 1: the column of kind '{again}' is there twice")
    times: dict[str, dict[str, float | None]] = {}
    for line, row in rows[1:]:
        if not row:
            continue
        if len(row) != len(kinds) + 1:
            raise FormatError(f"{path}, line {line}: has {len(row)} columns, not {len(kinds) + 1}")
        if row[0] in times:
            raise FormatError(f"{path}, line {line}: op '{row[0]}' is there twice")
        try:
            values = [parse_microseconds(cell.strip(), "time") if cell.strip() else None for cell in row[1:]]
        except UsageError as error:
            raise FormatError(f"{path}, line {line}: {error}") from error
        if all(value is None for value in values):
            raise FormatError(f"{path}, line {line}: op '{row[0]}' has no time for any kind of device")
        times[row[0]] = dict(zip(kinds, values, strict=True))
    if not times:
        raise FormatError(f"{path}: has no row, and every op needs one: its name, then its time on each kind of device")
    return times
