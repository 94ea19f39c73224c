"""Parameters of methods: frozen dataclasses whose fields say their help and range, checked once."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from ..errors import UsageError

if TYPE_CHECKING:
    from ..problem import Problem

T = TypeVar("T")


def parameter(default: Any, help: str, low: float | None = None, high: float | None = None) -> Any:
    """Declare a field: its default, one line of help, and the range (inclusive) of its value."""
    return dataclasses.field(default=default, metadata={"help": help, "low": low, "high": high})


@dataclasses.dataclass(frozen=True)
class Parameters:
    """Base of every method's parameters; this one has none."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            low, high = field.metadata.get("low"), field.metadata.get("high")
            if (low is not None and not value >= low) or (high is not None and not value <= high):
                wanted = f"at least {low}" if high is None else f"from {low} to {high}"
                raise UsageError(f"{field.name} must be {wanted}, not {value}")

    def check(self, problem: Problem) -> None:
        """Raise UsageError if a method with these parameters cannot solve this problem; here none is refused."""

    def identity(self) -> dict[str, Any]:
        """Return all that decides a run's result, as plain values."""
        return dataclasses.asdict(self)


def from_texts(kind: type[T], texts: dict[str, str], method: str) -> T:
    """Build a parameters class from `name -> text`.

    Raises
    ------
    UsageError
        If a name is unknown or a text is not of the field's type.
    """
    types = get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in known:
            have = f"it has {', '.join(known)}" if known else "it has none"
            raise UsageError(f"method '{method}' has no parameter '{name}'; {have}")
        try:
            values[name] = types[name](text)
        except ValueError as error:
            wanted = {"int": "a whole number", "float": "a number"}.get(types[name].__name__, types[name].__name__)
            raise UsageError(f"parameter {name} of '{method}' must be {wanted}, not '{text}'") from error
    return kind(**values)
