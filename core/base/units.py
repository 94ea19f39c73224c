"""Values that people give and read: bytes, bytes per second, microseconds and seconds, as texts or bare numbers."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, pairwise
from numbers import Integral, Real
from typing import Any

from .errors import UsageError

Written = Callable[[float], str]  # how numbers are written
LARGEST_PERCENT = 1_000_000
DEFAULT_ALIGNMENT, LARGEST_ALIGNMENT = 64, 2**31  # of addresses, bytes
MAX_DEVICES = 64
_PREFIXES = ("", *"kMGTPE")
_BYTES = {"": 1, "B": 1}
for _power, _prefix in enumerate(_PREFIXES[1:], start=1):
    _BYTES[f"{_prefix}B"] = _BYTES[f"{_prefix.upper()}B"] = 1000**_power
    _BYTES[f"{_prefix.upper()}iB"] = 1024**_power
_BYTES_IN_ANY_CASE = {unit.lower(): size for unit, size in _BYTES.items()}
_BYTES_IN_ANY_CASE |= {prefix.lower(): 1000**power for power, prefix in enumerate(_PREFIXES)}
"""8gb and 8G are 8 GB, the smaller of what may be meant: what keeps that keeps 8 GiB, too."""
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_MINUTES = {"m": 60.0, "sec": 1.0, "d": 86400.0}  # what time limits may be written in besides; elsewhere `m` is no unit


def _quoted(what: str, given: object) -> str:
    """Write a value after its name: `--latency '5'`, `latency='5'`."""
    text = str(given)
    return f"{what}{'' if what.endswith('=') else ' '}" + (f"'{text}'" if text.isprintable() else repr(text))


def _split(given: object, what: str, example: str) -> tuple[float, str]:
    """Return the number and the unit of a text, or of a bare number, which has none."""
    if isinstance(given, bool) or not isinstance(given, (str, Real)):
        raise UsageError(f"{what} must be a number, or a text like {example}, not {given!r}")
    if str(given).lstrip().startswith("-"):
        raise UsageError(f"{what} must not be negative, not '{given}'")
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([^\d\s]*)\s*", str(given))
    if not match:
        raise UsageError(f"{_quoted(what, given)} is not understood; write it like {example}")
    return float(match[1]), match[2]


def parse_bytes(given: str | float, what: str = "size") -> int:
    """Parse `16GiB`, `10GB`, or a bare number of bytes; GB and G are 10^9, GiB is 2^30, in upper or lower case."""
    number, unit = _split(given, what, "16GiB, 10GB or 1000000")
    if unit.lower() not in _BYTES_IN_ANY_CASE:
        raise UsageError(f"{_quoted(what, given)} has an unknown unit; use one of {', '.join(filter(None, _BYTES))}")
    value = int(given) if str(given).strip().isdigit() else number * _BYTES_IN_ANY_CASE[unit.lower()]
    if value > 2**63 - 1:
        raise UsageError(f"{_quoted(what, given)} exceeds 2^63 - 1 bytes")
    return round(value)


def parse_percent(given: str, what: str = "share") -> float:
    """Parse `60%` as 0.6."""
    number, unit = _split(given, what, "60%")
    if unit != "%" or not 0 < number <= LARGEST_PERCENT:
        raise UsageError(
            f"{_quoted(what, given)} must be more than 0% and at most {LARGEST_PERCENT:,}%, written like 60%"
        )
    return number / 100


def parse_bandwidth(given: str | float, what: str = "bandwidth") -> float:
    """Parse `10GB/s`, or a bare number of bytes per second."""
    number, unit = _split(given, what, "10GB/s")
    if unit and not unit.endswith("/s"):
        raise UsageError(f"{_quoted(what, given)} has no time unit; write it like 10GB/s")
    size = _BYTES_IN_ANY_CASE.get(unit.removesuffix("/s").lower())
    if size is None:
        raise UsageError(f"{_quoted(what, given)} has an unknown unit; write it like 10GB/s")
    return number * size


def parse_flops(given: str | float) -> float:
    """Parse `100G`, or a bare number of FLOPs per second; G is 10^9."""
    number, unit = _split(given, "FLOPs per second", "100G")
    if unit not in _PREFIXES:
        raise UsageError(f"FLOPs per second '{given}' has an unknown unit; use one of {', '.join(_PREFIXES[1:])}")
    return float(number * 1000 ** _PREFIXES.index(unit))


def parse_microseconds(given: str | float, what: str = "latency") -> float:
    """Parse `5us`, `1ms`, or a bare number of microseconds."""
    return _duration(given, what, "5us", 1e-6) * 1e6


def parse_seconds(given: str | float, what: str = "time limit") -> float:
    """Parse `10s`, `2min`, `5m`, `1h30m`, or a bare number of seconds."""
    parts = re.findall(r"[\d.]+[^\d\s.]+", given) if isinstance(given, str) else []
    if len(parts) > 1 and "".join(parts) == "".join(given.split()):  # type: ignore[union-attr]
        seconds = sum(_duration(part, what, "10s", 1.0, _SECONDS | _MINUTES) for part in parts)
    else:
        seconds = _duration(given, what, "10s", 1.0, _SECONDS | _MINUTES)
    if seconds <= 0:
        raise UsageError(f"{what} must be more than 0, not '{given}'")
    return seconds


def _duration(given: str | float, what: str, example: str, bare: float, units: Mapping[str, float] = _SECONDS) -> float:
    number, unit = _split(given, what, example)
    if unit and unit not in units:
        raise UsageError(f"{_quoted(what, given)} has an unknown unit; use one of {', '.join(units)}")
    return number * (units[unit] if unit else bare)


def whole_number(given: Any, what: str, least: int | None = None) -> int:
    """Return a whole number as an int."""
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise UsageError(f"{what} must be a whole number, not {given!r}")
    if least is not None and given < least:
        raise UsageError(f"{what} must be at least {least}, not {given}")
    return int(given)


def parse_count(given: str | int, what: str = "count") -> int:
    """Parse a whole number as `5000`, `5,000`, `1e3` or `5k`."""
    number, unit = _split(str(given).replace(",", ""), what, "5000, 1e3 or 5k")
    if unit not in ("", "k", "M") or not (value := number * {"": 1, "k": 1e3, "M": 1e6}[unit]).is_integer():
        raise UsageError(f"{_quoted(what, given)} is not a whole number; write it like 5000, 1e3 or 5k")
    return whole_number(int(value), what, 1)


_BINARY = {"B": 1.0, **{f"{prefix}iB": 1024.0**power for power, prefix in enumerate("KMGTPE", start=1)}}
_DECIMAL = {"us": 1.0, "ms": 1e3, "s": 1e6}
_MOST_DECIMALS, _MOST_DIGITS = 2, 5  # of bytes, unless values that differ would look alike
_MOST_DIGITS_OF_TIMES = 9
_ROUNDING = 1e-12  # what sums of the same numbers may differ by, of themselves
_LEAST_SHOWN, _LEAST_COMPARED = 0.01, 0.1


def format_bytes(value: float) -> str:
    """Write bytes for people: `63.1 MiB`, `512 B`."""
    return bytes_alike([value])(value)


def format_microseconds(value: float) -> str:
    """Write a time in microseconds for people: `12.3 us`, `4.56 ms`, `1.2 s`."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(value) >= size:
            return f"{value / size:,.4g} {unit}"
    return f"{value:,.4g} us"


def format_runs(value: float) -> str:
    """Write a number of runs for people, where every run of an op counts alike: `1 run`, `53.5 runs`."""
    return f"{value:,.4g} run{'s' * (value != 1)}"


def bytes_alike(*compared: Iterable[float], also: Iterable[float] = ()) -> Written:
    """Return how to write some bytes in one unit: that of the largest, or the next where small ones need it."""
    # Smaller ones are `<0.1 MiB`. Those `compared` that differ read differently, in a smaller unit if need be.
    groups = [list(group) for group in compared]
    chosen, size, least, most = _unit([*chain(*groups), *also], _BINARY, 1.0)
    if chosen != "B" and most < 1024 and any(size / 1024 <= value < _LEAST_COMPARED * size for value in chain(*groups)):
        chosen, least, most = list(_BINARY)[list(_BINARY).index(chosen) - 1], 1024 * least, 1024 * most
    room = max(0, _MOST_DIGITS - max(1, len(str(int(most)))))
    first = 0 if chosen == "B" else min(room, _MOST_DECIMALS, _decimals(least, 3))
    units = list(_BINARY)[list(_BINARY).index(chosen) :: -1]
    ways = [_in(unit, _BINARY[unit], few) for unit in units for few in range(_MOST_DECIMALS + 1)][first:]
    return next((written for written in ways if _tells_apart(written, groups, rel_tol=0.0, abs_tol=0.01)), ways[-1])


def times_alike(*compared: Iterable[float], also: Iterable[float] = ()) -> Written:
    """Return how to write some microseconds in one unit, as bytes; those below a tenth of the next do not count."""
    groups = [[value for value in group if math.isfinite(value)] for group in (*compared, also)]
    known = list(chain(*groups))
    unit, size, least, _ = _unit(known, _DECIMAL, 0.1)
    most = min(3, _decimals(least, 4))
    shown = [round(value / size, most) for value in known]
    first = next(few for few in range(most + 1) if all(round(one, few) == one for one in shown))
    ways = [_in(unit, size, few) for few in range(first, _MOST_DIGITS_OF_TIMES + 1)]
    return next((written for written in ways if _tells_apart(written, groups[:-1], rel_tol=_ROUNDING)), ways[-1])


def shares_alike(*compared: Iterable[float]) -> Written:
    """Return how to write some shares in percent, with as many decimals for all; those that differ read differently."""
    groups = [list(group) for group in compared]
    known = [value for value in chain(*groups) if 0 < value < math.inf]
    first = min(_MOST_DIGITS, max(1, _decimals(100 * min(known, default=1.0), 3)))
    ways: list[Written] = [f"{{:.{few}%}}".format for few in range(first, _MOST_DIGITS_OF_TIMES + 1)]
    return next((written for written in ways if _tells_apart(written, groups, rel_tol=_ROUNDING)), ways[-1])


ALIKE = {"memory": bytes_alike, "share": shares_alike, "runtime": times_alike}


def _tells_apart(written: Written, groups: Iterable[Iterable[float]], **alike: float) -> bool:
    """Return whether values of a group that differ by more than is `alike` are written differently."""
    return all(
        math.isclose(a, b, **alike) or written(a) != written(b)
        for group in groups
        for a, b in pairwise(sorted(filter(math.isfinite, group)))
    )


def _unit(values: Iterable[float], units: Mapping[str, float], counts: float) -> tuple[str, float, float, float]:
    """Return the unit for some values, its size, and in it the least of those that count, and the most."""
    known = [abs(value) for value in values if value and math.isfinite(value)] or [0.0]
    smallest = next(iter(units))
    unit, lower, *_ = [*reversed([unit for unit, size in units.items() if size <= max(known)]), smallest, smallest]
    least = min(known) if unit == lower else min(value for value in known if value >= counts * units[lower])
    unit = unit if least >= _LEAST_SHOWN * units[unit] else lower
    return unit, units[unit], least / units[unit], max(known) / units[unit]


def _decimals(least: float, digits: int) -> int:
    """Return the decimals that show so many digits of a number."""
    return max(0, digits - 1 - math.floor(math.log10(least))) if least else 0


def _in(unit: str, size: float, decimals: int) -> Written:
    def write(value: float) -> str:
        if value == 0:
            return f"0 {unit}"
        if 0 < value < 0.5 * size * 10**-decimals:
            return f"<{10**-decimals:.{decimals}f} {unit}"
        return f"{value / size:,.{decimals}f} {unit}"

    return write


def written_apart(*values: int) -> list[str]:
    """Write bytes for people; as in one table where two that differ would read the same."""
    texts = [format_bytes(value) for value in values]
    return texts if len(set(texts)) == len(set(values)) else list(map(bytes_alike(values), values))


def format_change(value: float, before: float) -> str:
    """Write a change in percent: `-48.78%`, `0%` if there is none; a tiny one with its first digit."""
    if before == 0:
        return "" if value == 0 else "worse"
    percent = 100 * (value / before - 1)
    if math.isclose(value, before, rel_tol=_ROUNDING):
        return "0%"
    return f"{percent:+.2f}%" if abs(percent) >= _LEAST_SHOWN / 2 else f"{percent:+.1g}%"


def signed(number: float, decimals: int = 2) -> str:
    """Write a number with its sign, unless it rounds to 0."""
    text = f"{number:+.{decimals}f}"
    return text if float(text) else text[1:]
