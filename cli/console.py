"""Where the command line talks: results to standard output, everything else to standard error."""

from __future__ import annotations

import sys
from typing import Any


class Talk:
    """Notes, warnings and progress on standard error; silent (but for errors) with `--quiet`."""

    def __init__(self, quiet: bool = False) -> None:
        from rich.console import Console

        self.quiet = quiet
        self.console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

    def note(self, text: str) -> None:
        """Print a remark, unless quiet."""
        if not self.quiet:
            self.console.print(f"note: {text}", style="dim", markup=False)

    def say(self, text: str) -> None:
        """Print a line of progress, unless quiet."""
        if not self.quiet:
            self.console.print(text, markup=False)

    @property
    def shows_progress(self) -> bool:
        """Whether progress may be drawn: standard error is a terminal and not quiet."""
        return self.console.is_terminal and not self.quiet


def show(renderable: Any, title: str | None = None) -> None:
    """Print a Rich table or text, under a line of title; as wide as it needs when not on a terminal."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, emoji=False, width=200)
    if title is not None:
        console.print(title, style="bold", markup=False)
    console.print(renderable)


def write(text: str) -> None:
    """Print plain text, such as JSON, to standard output."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
