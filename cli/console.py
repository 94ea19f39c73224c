"""Output: results to standard output, the rest (notes, progress, errors) to standard error; `--quiet` leaves errors."""

import logging
import os
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, TextIO

from ..core.base.names import one_line

_USUAL_WIDTH = 80


class Output:
    """Notes, warnings and progress on standard error; silent (but for errors) with `--quiet`."""

    def __init__(self, quiet: bool = False) -> None:
        from rich.console import Console

        self.quiet = quiet
        self.console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
        logging.getLogger("schedopt").setLevel(logging.ERROR if quiet else logging.WARNING)

    def note(self, text: str) -> None:
        """Print a remark, unless quiet."""
        if not self.quiet:
            self.console.print(_fitted(f"note: {one_line(text)}", sys.stderr), style="dim", markup=False)

    def say(self, text: str) -> None:
        """Print a line of progress, unless quiet."""
        if not self.quiet:
            self.console.print(_fitted(text, sys.stderr), markup=False)

    @property
    def shows_progress(self) -> bool:
        """Whether progress may be drawn: standard error is a terminal and not quiet."""
        return self.console.is_terminal and not self.quiet


def show(renderable: Any, title: str | None = None) -> None:
    """Print a Rich table or text, under a line of title; as wide as it needs when not on a terminal."""
    from rich.console import Console

    class Results(Console):
        def on_broken_pipe(self) -> None:  # Rich would end the program with 1
            raise BrokenPipeError

    console = Results(highlight=False, emoji=False)
    if not console.is_terminal:
        console = Results(highlight=False, emoji=False, width=200)
    if title is not None:
        console.print(visible(title), style="bold", markup=False)
    console.print(_Visible(renderable))


class _Visible:
    """Something to print, with a terminal's commands written out; styles are no part of the text."""

    def __init__(self, renderable: Any) -> None:
        self.renderable = renderable

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.segment import Segment

        for segment in console.render(self.renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def tell(text: str) -> None:
    """Print sentences to standard output, in lines that a terminal does not break within a word."""
    write(_fitted(text, sys.stdout))


def complain(text: str) -> None:
    """Print an error, or an interruption, to standard error, likewise."""
    print(_fitted(one_line(text), sys.stderr), file=sys.stderr)


def _fitted(text: str, stream: TextIO) -> str:
    """Return a text in lines that fit a terminal, or as it is where programs may read it; nothing commands either."""
    text = visible(text)
    if not stream.isatty():
        return text
    try:
        width = os.get_terminal_size(stream.fileno()).columns or _USUAL_WIDTH
    except OSError:
        width = _USUAL_WIDTH
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)  # names and paths stay whole
    return "\n".join(wrapper.fill(line) for line in text.split("\n"))


def write(text: str) -> None:
    """Print plain text, such as JSON, to standard output."""
    sys.stdout.write(visible(text if text.endswith("\n") else text + "\n"))


def write_json(document: Any, indent: int | None = None) -> None:
    """Print a document to standard output."""
    import json

    write(json.dumps(document, indent=indent))


def visible(text: str) -> str:
    """Return the lines of a text, each as `one_line` writes it."""
    return "\n".join(map(one_line, text.split("\n")))
