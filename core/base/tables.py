"""Tables as text and as HTML: what the command line prints, Python shows as `repr` and notebooks display."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

_WIDTH = 200
_UNLIMITED = 1000


class FirstThatFits:
    """Shows the first of some tables that is not too wide, else the last."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        wide = options.update(width=_UNLIMITED)
        fitting = (t for t in self.tables if console.measure(t, options=wide).maximum <= options.max_width)
        yield next(fitting, self.tables[-1])


def compact_table() -> Table:
    """Start a table that spends its width on what it says, not on lines."""
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)


def text_of(*parts: RenderableType) -> str:
    """Return Rich tables and texts as plain text, as wide as they need."""
    console = _console()
    _print(console, parts)
    return "\n".join(line.rstrip() for line in console.export_text(styles=False).splitlines())


def html_of(*parts: RenderableType) -> str:
    """Return Rich tables and texts as a piece of HTML, for notebooks."""
    console = _console()
    _print(console, parts)
    code = '<pre style="line-height: 1.2; font-family: monospace">{code}</pre>'
    return console.export_html(inline_styles=True, code_format=code)


def _console() -> Console:
    from io import StringIO

    from rich.console import Console

    return Console(file=StringIO(), record=True, width=_WIDTH, highlight=False, emoji=False, force_jupyter=False)


def _print(console: Console, parts: Iterable[RenderableType]) -> None:
    for part in parts:
        console.print(part)
