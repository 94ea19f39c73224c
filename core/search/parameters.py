"""Parameters of methods, trainings and generators: frozen dataclasses whose fields state their ranges."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_origin, get_type_hints

from ..base.errors import UsageError
from ..base.names import nearest
from ..base.options import Options, option

if TYPE_CHECKING:
    from ..problem.problem import Problem

T = TypeVar("T")
WANTED = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
"""How messages call the types that a value may have."""


def parameter(default: Any, help: str, low: float | None = None, high: float | None = None) -> Any:
    """Declare a field of a dataclass of parameters.

    Parameters
    ----------
    default
        Its default.
    help
        Its meaning, in one line.
    low, high
        The range of its value, both ends included; None by default, for no limit.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Parameters(schedopt.Parameters):
    ...     tries: int = schedopt.parameter(10, "orders to try", low=1)
    >>> Parameters(tries=0)
    Traceback (most recent call last):
    schedopt.core.base.errors.UsageError: tries must be at least 1, not 0
    """
    return option(default, help, low=low, high=high)


@dataclasses.dataclass(frozen=True)
class Parameters(Options):
    """Base of the parameters of methods and generators; this one has none.

    Derived classes are frozen dataclasses whose fields are made by `parameter`.

    Raises
    ------
    UsageError
        If a value is out of its field's range, or none of its choices.

    Examples
    --------
    >>> schedopt.Parameters()
    Parameters()
    """

    @staticmethod
    def called(name: str) -> str:
        """Return the name of a parameter in errors."""
        return name

    def check(self, problem: Problem) -> None:
        """Raise UsageError if a method with these parameters cannot solve this problem; here none is refused."""

    def identity(self) -> dict[str, Any]:
        """Return all that decides a run's result, as plain values."""
        return dataclasses.asdict(self)


def check_declared(kind: type[Any]) -> None:
    """Raise TypeError unless a class of another package is a dataclass of parameters with declared fields."""
    if not (isinstance(kind, type) and issubclass(kind, Parameters) and "__dataclass_fields__" in vars(kind)):
        raise TypeError(f"{kind!r} is not a dataclass derived from schedopt.Parameters")
    for field in dataclasses.fields(kind):
        if "help" not in field.metadata:
            raise TypeError(f"field {field.name} of {kind.__name__} is not made by schedopt.parameter")


def types_of(
    kind: type[Any], names: Iterable[str], owner: str, what: str, known: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the type of every field; UsageError for a name that is not known (`owner` has no `what`)."""
    known = [field.name for field in dataclasses.fields(kind)] if known is None else known
    for name in names:
        if name not in known:
            near = nearest(name, known)
            have = f"it has {', '.join(known)}" if known else "it has none"
            raise UsageError(f"{owner} has no {what} '{name}'; {f'did you mean {near}?' if near else have}")
    return get_type_hints(kind)


def from_texts(
    kind: type[T],
    texts: dict[str, str],
    method: str,
    known: Sequence[str] | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> T:
    """Build a parameters class from `name -> text`, whose names are among those known, and from fixed values."""
    types = types_of(kind, texts, f"method '{method}'", "parameter", known)
    values = dict(fixed or {})
    for name, text in texts.items():
        read = str if get_origin(types[name]) is Literal else types[name]
        try:
            values[name] = read(text)
        except ValueError as error:
            raise UsageError(f"parameter {name} of '{method}' must be {WANTED[read]}, not '{text}'") from error
    return kind(**values)
