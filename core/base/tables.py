"""Tables as text, HTML and CSV: printed by the command line, shown by Python as `repr`, displayed by notebooks."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .names import one_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

_WIDTH = 200
_UNLIMITED = 1000


class Printed(ABC):
    """Something that is printed as the command line prints it, and shown as that in notebooks."""

    @abstractmethod
    def report(self) -> Iterable[RenderableType]:
        """Return title, tables and remarks, for Rich to print."""

    def summary(self) -> str:
        """Return the output of the command line, as text."""
        return text_of(*self.report())

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return html_of(*self.report())


class PrintedTable(Printed):
    """Something that is printed as a table, below a title if it has one."""

    def title(self) -> str:
        """Return the lines above the table; none by default."""
        return ""

    @abstractmethod
    def table(self) -> Table:
        """Return the table that the command line prints, for Rich to print."""

    @abstractmethod
    def document(self) -> Any:
        """Return everything as plain Python values."""

    def json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.document())

    def report(self) -> Iterable[RenderableType]:
        """Return the title and the table, for Rich to print."""
        return titled(self.title(), self.table())


class FirstThatFits:
    """Shows the first of some tables that is not too wide, else the last."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        wide = options.update(width=_UNLIMITED)
        fitting = (t for t in self.tables if console.measure(t, options=wide).maximum <= options.max_width)
        yield next(fitting, self.tables[-1])


def escape(name: str) -> str:
    """Return a name for a cell of a table: in one line, and without markup."""
    from rich import markup

    return markup.escape(one_line(name))


def compact_table() -> Table:
    """Start a table that spends its width on its cells, not on lines."""
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)


def number_table(names: str, *columns: str) -> Table:
    """Start a table of a column of names, and of columns of numbers."""
    from rich.table import Table

    table = Table(names)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def titled(title: str, *parts: RenderableType) -> Iterator[RenderableType]:
    """Yield a title, and the lines below it; texts are plain."""
    from rich.text import Text

    if title:
        yield Text(title, style="bold")
    yield from (Text(part) if isinstance(part, str) else part for part in parts)


def text_of(*parts: RenderableType) -> str:
    """Return Rich tables and texts as plain text, as wide as they need."""
    return "\n".join(line.rstrip() for line in _printed(parts).export_text(styles=False).splitlines())


def html_of(*parts: RenderableType) -> str:
    """Return Rich tables and texts as a piece of HTML, for notebooks."""
    code = '<pre style="line-height: 1.2; font-family: monospace">{code}</pre>'
    return _printed(parts).export_html(inline_styles=True, code_format=code)


def csv_of(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> str:
    """Return rows as CSV, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _printed(parts: Iterable[RenderableType]) -> Console:
    """Return a console that has recorded its output."""
    from rich.console import Console

    console = Console(file=io.StringIO(), record=True, width=_WIDTH, highlight=False, emoji=False, force_jupyter=False)
    for part in parts:
        console.print(part)
    return console
