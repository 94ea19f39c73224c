"""Groups of subcommands that are made when the first is asked for, so that all others start as quickly as before."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group


def lazy_group(help: str, load: Callable[[], typer.Typer]) -> typer.Typer:
    """Return a group without subcommands yet.

    Parameters
    ----------
    help
        Of the group.
    load
        Makes its subcommands; called once, when they are listed or one is run.
    """

    class LazyGroup(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            del self.commands  # which are none; from now on the property below gives them

        @cached_property
        def commands(self) -> dict[str, Any]:  # type: ignore[override]
            return get_group(load()).commands  # type: ignore[return-value]

    return typer.Typer(cls=LazyGroup, no_args_is_help=True, help=help)
