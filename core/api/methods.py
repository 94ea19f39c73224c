"""`schedopt.methods`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.errors import UsageError
from ..base.tables import PrintedTable, escape
from ..search.registry import method_names, method_of, parameter_fields

if TYPE_CHECKING:
    from rich.table import Table


class ParameterInfo(NamedTuple):
    """A parameter of a method: its default, and its meaning."""

    default: Any
    help: str


class MethodInfo(NamedTuple):
    """A method: its name, summary, source, and parameters by name."""

    name: str
    summary: str
    source: str
    parameters: dict[str, ParameterInfo]

    def table(self) -> Table:
        """Return the table of its parameters, for Rich to print."""
        from rich.table import Table

        table = Table("parameter", "default", "what it means")
        for name, field in self.parameters.items():
            table.add_row(name, escape(str(field.default)), escape(field.help))
        return table


class MethodList(PrintedTable, tuple[MethodInfo, ...]):
    """All methods; printed, the table of `schedopt methods`."""

    def table(self) -> Table:
        """Return the table, for Rich to print."""
        from rich.table import Table

        table = Table("method", "what it does, and where it is from")
        for method in self:
            table.add_row(method.name, f"{method.summary} ({method.source})")
        return table

    def document(self) -> list[dict[str, Any]]:
        """Return all methods as plain values for JSON."""
        return [
            {**method._asdict(), "parameters": {name: field._asdict() for name, field in method.parameters.items()}}
            for method in self
        ]


def methods() -> MethodList:
    """Return every method with its summary, its source, and its parameters with their defaults.

    Those of other packages come last; where one cannot be used, its summary says why.

    Returns
    -------
    MethodList
        A tuple of `MethodInfo`; printed, it is the table of `schedopt methods`.

    Examples
    --------
    >>> [method.name for method in schedopt.methods()][:2]
    ['auto', 'input']
    """
    return MethodList(map(_info, method_names()))


def _info(name: str) -> MethodInfo:
    try:
        method = method_of(name)
    except UsageError as error:
        return MethodInfo(name, str(error), "not usable", {})
    parameters = {field.name: ParameterInfo(field.default, field.metadata["help"]) for field in parameter_fields(name)}
    return MethodInfo(name, method.summary, method.source, parameters)
