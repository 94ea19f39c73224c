"""Groups of subcommands that are made when the first is asked for, so that all others start as quickly as before."""

from __future__ import annotations

from collections.abc import Callable
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
        def list_commands(self, ctx: Any) -> list[str]:
            self._load()
            return super().list_commands(ctx)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            self._load()
            return super().get_command(ctx, cmd_name)

        def _load(self) -> None:
            if not self.commands:
                self.commands.update(get_group(load()).commands)

    return typer.Typer(cls=LazyGroup, no_args_is_help=True, help=help)
