"""`schedopt train`: choose a method's parameters on training graphs, or train its network."""

from __future__ import annotations

import typer

from ....core.search.registry import METHODS
from ...lazy_group import lazy_group


def _subcommands() -> typer.Typer:
    """Return a subcommand for each method that the registry says how to train."""
    from .grid_search import HELP, grid_search
    from .network import network_command

    app = typer.Typer()
    for name, method in METHODS.items():
        if method.trainer == "grid_search":
            app.command(name, help=f"{method.training}\n\n{HELP}")(grid_search)
        elif method.trainer:
            app.command(name)(network_command(name))
    return app


train = lazy_group("Choose a method's parameters, or train its network.", _subcommands)
