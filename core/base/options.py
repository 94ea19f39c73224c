"""Options: dataclass fields that say their default, help, range, unit and spelling once."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .errors import UsageError
from .names import did_you_mean
from .units import whole_number

# Makes an option's value from a text or a number, and what an error calls the option
Reader = Callable[[Any, str], Any]
_hints: Callable[..., dict[str, Any]] = cache(get_type_hints)
_UNITS = {"latency": "us", "runtime_limit": "us", "time_limit": "s"}
_in_shell: ContextVar[bool] = ContextVar("in_shell", default=False)


@contextmanager
def spelled_for_shells() -> Iterator[None]:
    """Let errors within name options as a shell does, `--memory-limit` instead of `memory_limit=`."""
    before = _in_shell.set(True)
    try:
        yield
    finally:
        _in_shell.reset(before)


def spelled(name: str, value: Any = None) -> str:
    """Write an option as the caller does: `--memory-limit` or `memory_limit=`, with its value if one is given."""
    if not _in_shell.get():
        return f"{name}={'' if value is None else repr(value)}"
    return flag_of(name) if value is None or value is True else f"{flag_of(name)} {value}"


def flag_of(name: str) -> str:
    """Return the flag of an option."""
    return f"--{name.strip('_').replace('_', '-')}"


def option(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    read: Reader | None = None,
    **more: str,
) -> Any:
    """Declare an option: its default, a line of help, its inclusive range, and the reader of a text or a number."""
    # More is of its flag: `short` (one letter), `panel` of the help, `metavar`, `shown` (a default in words); or
    # `json`, its name there if not the usual one, empty to leave it out.
    return dataclasses.field(default=default, metadata={"help": help, "low": low, "high": high, "read": read, **more})


def changed(kind: type[Any], name: str, **more: str) -> Any:
    """Declare an option of another dataclass with another `help` or default in words."""
    field = option_named(kind, name)
    return dataclasses.field(default=field.default, metadata={**field.metadata, **more})


def fixed(value: Any) -> Any:
    """Declare that an option of the base class is none here, but has this value."""
    return dataclasses.field(default=value, init=False)


@dataclasses.dataclass(frozen=True)
class Options:
    """Base of dataclasses of options: values are read and checked when one is built, or UsageError is raised."""

    def __post_init__(self) -> None:
        for field in options_in(type(self)):
            value, metadata = getattr(self, field.name), field.metadata
            if value is None and field.default is None:
                continue
            called = self.called(field.name)
            if read := metadata.get("read"):
                value = read(value, called)
            value = _checked(value, value_type(type(self), field.name), called)
            low, high = metadata.get("low"), metadata.get("high")
            if (low is not None and not value >= low) or (high is not None and not value <= high):
                wanted = f"at least {_plain(low)}" if high is None else f"from {written_range(low, high)}"
                raise UsageError(f"{called} must be {wanted}, not {value}")
            object.__setattr__(self, field.name, value)

    @staticmethod
    def called(name: str) -> str:
        """Return the name of an option in errors."""
        return spelled(name)

    @classmethod
    def picked(cls, given: Mapping[str, Any]) -> Any:
        """Return options from the arguments of a function, some of which are no options."""
        return cls(**{field.name: given[field.name] for field in options_in(cls) if field.name in given})

    def document(self) -> dict[str, Any]:
        """Return the options by their names in JSON."""
        named = {f.metadata.get("json", json_name(f.name)): getattr(self, f.name) for f in options_in(type(self))}
        named.pop("", None)
        return {name: dataclasses.asdict(v) if dataclasses.is_dataclass(v) else v for name, v in named.items()}  # type: ignore[arg-type]


def json_name(name: str) -> str:
    """Return the name of an option in JSON, which says the unit of a time."""
    return f"{name}_{_UNITS[name]}" if name in _UNITS else name


def options_in(kind: type[Any]) -> list[dataclasses.Field[Any]]:
    """Return the fields of a dataclass that are options."""
    return [field for field in dataclasses.fields(kind) if field.init]


def option_named(kind: type[Any], name: str) -> dataclasses.Field[Any]:
    """Return the field of an option."""
    return next(field for field in options_in(kind) if field.name == name)


def value_type(kind: type[Any], name: str) -> Any:
    """Return the type of an option's values, without None; `str` where there are several."""
    hint = _hints(kind)[name]
    if get_origin(hint) is Literal or hint in (bool, int, float, str):
        return hint
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return kinds[0] if len(kinds) == 1 else str


def _checked(value: Any, kind: Any, called: str) -> Any:
    """Return a value, a whole number as an int; refuse other values than the choices, or than true and false."""
    if get_origin(kind) is Literal and value not in get_args(kind):
        choices = [str(choice) for choice in get_args(kind)]
        raise UsageError(f"{called} must be one of {', '.join(choices)}, not {value!r}{did_you_mean(value, choices)}")
    if kind is bool and not isinstance(value, bool):
        raise UsageError(f"{called} is true or false, not {value!r}")
    return whole_number(value, called) if kind is int else value


def written_range(low: float | None, high: float | None) -> str:
    """Write which values are taken: `from 1`, `1e-9 to 1`; nothing where all are."""
    if low is None:
        return "" if high is None else f"up to {_plain(high)}"
    return f"from {_plain(low)}" if high is None else f"{_plain(low)} to {_plain(high)}"


def _plain(number: Any) -> str:
    return f"{number:g}".replace("e-0", "e-") if isinstance(number, float) else str(number)
