"""Groups of subcommands: their help flows, and those of `lazy_group` are made when the first is asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.main import get_group

from ..core.base.options import written_range

# How the pages write what an option takes; a switch takes nothing
_VALUES = {
    "<str>": "TEXT",
    "<list[str]>": "TEXT",
    "<int>": "N",
    "<int range>": "N",
    "<float>": "X",
    "<float range>": "X",
    "<bool>": "",
}


class FlowingGroup(TyperGroup):
    """A group whose subcommands' help is wrapped where the terminal ends, not where the source code does."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a subcommand by its name, each paragraph of its help in one line, with room beside its options."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            paragraphs = inspect.cleandoc(command.help).split("\n\n")
            command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        if command is not None and ctx is not None:
            for param in (*command.params, command.get_help_option(ctx)):
                _say_what_it_takes(param, ctx)
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the group itself, with room beside its options."""
        for param in self.get_params(ctx):
            _say_what_it_takes(param, ctx)
        super().format_help(ctx, formatter)


def _say_what_it_takes(param: Any, ctx: Any) -> None:
    """Write what an option takes as the pages do, so that its help has room; limits go into the help."""
    if isinstance(param, TyperArgument):
        param.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
    if isinstance(param, TyperOption):
        shown = param.display_type(ctx) if param.metavar is None else param.metavar
        kind, _, limits = shown.partition(" [")
        param.metavar = _VALUES.get(kind, kind.strip("<>"))
        if limits := limits.rstrip("]") or written_range(param.min, param.max):
            param.help = f"{param.help} ({limits})"
            param._get_number_range_help_str = lambda: None  # type: ignore[method-assign]


def lazy_group(
    help: str,
    load: Callable[[], typer.Typer],
    more: Callable[[], Iterable[str]] = tuple,
    make: Callable[[str], Any] | None = None,
) -> typer.Typer:
    """Return a group without subcommands yet."""

    class LazyGroup(FlowingGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            del self.commands  # which are none; from now on the property below gives them

        @cached_property
        def commands(self) -> dict[str, Any]:  # type: ignore[override]
            return get_group(load()).commands  # type: ignore[return-value]

        def list_commands(self, ctx: Any) -> list[str]:
            return list(dict.fromkeys((*self.commands, *more())))

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in self.commands and make is not None and cmd_name in more():
                self.commands[cmd_name] = make(cmd_name)
            return super().get_command(ctx, cmd_name)

    return typer.Typer(cls=LazyGroup, no_args_is_help=True, help=help)
