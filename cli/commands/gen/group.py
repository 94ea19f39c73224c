"""`schedopt gen`: make graphs (layered, synthetic, noisy copies of given ones, published networks)."""

from __future__ import annotations

import typer

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


gen = lazy_group("Generate graphs: a data set folder, a file, or a pipe.", _subcommands)
