"""The `schedopt` command: its subcommands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..core.errors import SchedoptError
from ..version import VERSION
from .commands.apply import apply
from .commands.check import check
from .commands.compare import compare
from .commands.convert import convert
from .commands.gen.group import gen
from .commands.import_model import import_model
from .commands.measure import measure
from .commands.methods import methods
from .commands.plot import plot
from .commands.show import show
from .commands.solve import solve
from .commands.train.grid_search import app as train


class ErrorBoundary(TyperGroup):
    """Prints a deliberate error as one sentence on standard error and leaves with its exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        try:
            return super().invoke(ctx)
        except SchedoptError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(error.exit_code) from error
        except BrokenPipeError:
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - the reader of our pipe has left
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=ErrorBoundary,
    name="schedopt",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Decide where and in which order the ops of a neural network run, for least memory or time.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"schedopt {VERSION}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Decide where and in which order the ops of a neural network run, for least memory or time."""


app.command("solve")(solve)
app.command("import")(import_model)
app.command("compare")(compare)
app.add_typer(gen, name="gen")
app.add_typer(train, name="train")
app.command("show")(show)
app.command("plot")(plot)
app.command("check")(check)
app.command("convert")(convert)
app.command("apply")(apply)
app.command("measure")(measure)
app.command("methods")(methods)


def main() -> None:
    """Entry point of the `schedopt` script."""
    app()
