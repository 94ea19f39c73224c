"""`schedopt gen`: make graphs (layered, synthetic, noisy copies of given ones, published networks)."""

from __future__ import annotations

from functools import partial
from inspect import getdoc
from typing import Any

import typer
from typer.main import get_command

from ....core.base.errors import UsageError
from ....core.search import entry_points
from ....core.search.parameters import check_declared
from ...lazy_group import lazy_group


def _subcommands() -> typer.Typer:
    from .architecture import architecture
    from .augment import augment
    from .layered import layered
    from .synthetic import synthetic

    app = typer.Typer()
    app.command("layered")(layered)
    app.command("synthetic")(synthetic)
    app.command("augment")(augment)
    app.command("architecture")(architecture)
    return app


def _of_package(name: str) -> Any:
    """Return the subcommand of another package's generator; of a broken one, a subcommand that says why."""
    try:
        return entry_points.load("generator", name, partial(_command, name))
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
    from .family import family_command

    check_declared(family)
    for attribute in ("draw", "title"):
        if not hasattr(family, attribute):
            raise TypeError(f"{family.__name__} has no {attribute}")
    app = typer.Typer()
    app.command(name)(family_command(family, (getdoc(family) or "").split("\n\n")[0], ()))
    return get_command(app)


gen = lazy_group(
    "Generate graphs: a data set folder, a file, or a pipe.",
    _subcommands,
    partial(entry_points.names, "generator"),
    _of_package,
)
