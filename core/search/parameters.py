"""Parameters of methods, trainings and generators: frozen dataclasses whose fields say their help and what they may be.

A field is declared once, by `parameter`. All that read parameters (`name=value` on the command line here, YAML in
`settings`) refuse a value in the same words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
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
    """Declare a field: its default, one line of help, and the range (inclusive) of its value."""
    return option(default, help, low=low, high=high)


@dataclasses.dataclass(frozen=True)
class Parameters(Options):
    """Base of every method's parameters; this one has none."""

    @staticmethod
    def called(name: str) -> str:
        """Return the name of a parameter in errors."""
        return name

    def check(self, problem: Problem) -> None:
        """Raise UsageError if a method with these parameters cannot solve this problem; here none is refused."""

    def identity(self) -> dict[str, Any]:
        """Return all that decides a run's result, as plain values."""
        return dataclasses.asdict(self)


def types_of(kind: type[Any], names: Iterable[str], owner: str, what: str) -> dict[str, Any]:
    """Return the type of every field of a dataclass, once it is clear that it has all these fields.

    Raises
    ------
    UsageError
        If there is no field of one of the names; `owner` and `what` are what the message calls dataclass and field.
    """
    known = [field.name for field in dataclasses.fields(kind)]
    for name in names:
        if name not in known:
            near = nearest(name, known)
            have = f"it has {', '.join(known)}" if known else "it has none"
            raise UsageError(f"{owner} has no {what} '{name}'; {f'did you mean {near}?' if near else have}")
    return get_type_hints(kind)


def from_texts(kind: type[T], texts: dict[str, str], method: str) -> T:
    """Build a parameters class from `name -> text`.

    Raises
    ------
    UsageError
        If a name is unknown, a text is not of the field's type, or a value is refused.
    """
    types = types_of(kind, texts, f"method '{method}'", "parameter")
    values: dict[str, Any] = {}
    for name, text in texts.items():
        read = str if get_origin(types[name]) is Literal else types[name]
        try:
            values[name] = read(text)
        except ValueError as error:
            raise UsageError(f"parameter {name} of '{method}' must be {WANTED[read]}, not '{text}'") from error
    return kind(**values)
