"""Groups of subcommands: their help flows; those of `gen` and `train` are made when the first is asked for."""

import inspect
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from inspect import getdoc
from typing import Any

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.main import get_command, get_group

from ..core.base.errors import UsageError
from ..core.base.options import written_range
from ..core.search.parameters import check_declared
from ..core.search.registry import METHODS, entry_names, load_entry

# How the pages write what an option takes; a switch takes nothing
_VALUES = {"str": "TEXT", "list[str]": "TEXT", "int": "N", "float": "X", "bool": ""}


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
                _set_metavar(param, ctx)
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the group itself, with room beside its options."""
        for param in self.get_params(ctx):
            _set_metavar(param, ctx)
        super().format_help(ctx, formatter)


def _set_metavar(param: Any, ctx: Any) -> None:
    """Write the values of an option as the pages do, so that its help has room; limits go into the help."""
    if isinstance(param, TyperArgument):
        param.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
    if isinstance(param, TyperOption):
        shown = param.display_type(ctx) if param.metavar is None else param.metavar
        kind, _, limits = shown.partition(" [")
        kind = kind.strip("<>").removesuffix(" range")
        param.metavar = _VALUES.get(kind, kind)
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


def _generators() -> typer.Typer:
    from .commands import gen

    app = typer.Typer()
    for name in ("layered", "synthetic", "augment", "architecture"):
        app.command(name)(getattr(gen, name))
    return app


def _of_package(name: str) -> Any:
    """Return the subcommand of another package's generator; of a broken one, a subcommand that says why."""
    try:
        return load_entry("generator", name, partial(_command, name))
    except UsageError as error:
        broken = error

    def refuse(ctx: typer.Context) -> None:
        raise broken

    app = typer.Typer()
    everything = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, help=str(broken), context_settings=everything)(refuse)
    return get_command(app)


def _command(name: str, family: Any) -> Any:
    """Return the subcommand of a family of another package once it is clear that it is one."""
    from .commands.gen import family_command

    check_declared(family)
    for attribute in ("draw", "title"):
        if not hasattr(family, attribute):
            raise TypeError(f"{family.__name__} has no {attribute}")
    app = typer.Typer()
    app.command(name)(family_command(family, (getdoc(family) or "").split("\n\n")[0], ()))
    return get_command(app)


_names = partial(entry_names, "generator")
gen = lazy_group("Generate graphs: a data set folder, a file, or a pipe.", _generators, _names, _of_package)


def _trainings() -> typer.Typer:
    """Return a subcommand for each method that the registry says how to train."""
    from .commands.train import HELP, grid_search, network_command

    app = typer.Typer()
    for name, method in METHODS.items():
        if method.trainer == "grid_search":
            app.command(name, help=f"{method.training}\n\n{HELP}")(grid_search)
        elif method.trainer:
            app.command(name)(network_command(name))
    return app


train = lazy_group("Choose a method's parameters, or train its network.", _trainings)
