"""The `schedopt` command: its subcommands, and the one place where errors become messages and exit codes."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.base.errors import SchedoptError, UnwrittenError
from ..core.base.names import did_you_mean
from ..core.base.options import spelled_for_shells
from ..version import VERSION
from .commands.apply import apply
from .commands.check import check
from .commands.compare import compare
from .commands.convert import convert
from .commands.diff import diff
from .commands.fit import fit
from .commands.import_model import import_model
from .commands.measure import measure
from .commands.methods import methods
from .commands.optimize import optimize
from .commands.pack import pack
from .commands.pareto import pareto
from .commands.plot import plot
from .commands.show import show
from .commands.solve import solve
from .commands.warm_up import warm_up
from .console import complain
from .lazy_group import FlowingGroup, gen, train
from .signals import CTRL_C, is_interrupt


class ErrorBoundary(FlowingGroup):
    """Prints a deliberate error as one sentence on standard error and leaves with its exit code."""

    def make_context(self, *given: Any, **more: Any) -> Any:
        """Read the words of the command line, for which Typer loads more than half of itself."""
        with _boundary():
            return super().make_context(*given, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        with _boundary():
            return super().invoke(ctx)


@contextmanager
def _boundary() -> Iterator[None]:
    try:
        with spelled_for_shells():
            yield
    except (SchedoptError, KeyboardInterrupt) as error:
        if not isinstance(error, SchedoptError) or is_interrupt(error):
            complain("interrupted")
            raise typer.Exit(CTRL_C) from None
        kept = f"; a copy is in {copy}" if (copy := _copy_of(error)) else ""
        complain(f"error: {error}{kept}")
        raise typer.Exit(error.exit_code) from error
    except typer.BadParameter as error:
        error.message = reworded(error)
        raise
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - the reader of our pipe has left
        raise typer.Exit(0) from None


def _copy_of(error: SchedoptError) -> str:
    """Put the unwritten data into a temporary folder; return its place, or nothing if there is no room either."""
    if not isinstance(error, UnwrittenError):
        return ""
    from tempfile import mkdtemp

    try:
        copy = Path(mkdtemp(prefix="schedopt-")) / f"copy{''.join(Path(error.path).suffixes[-2:])[:20]}"
        copy.write_bytes(error.data)
    except (OSError, ValueError):
        return ""
    return str(copy)


_WANTED = {
    **{"int_parsing": "a whole number", "int_from_float": "a whole number", "float_parsing": "a number"},
    **{"greater_than_equal": "at least {ge}", "less_than_equal": "at most {le}"},
}


def reworded(error: Any) -> str:
    """Return the message of a bad parameter, as a sentence that names the value and the values allowed."""
    message = str(error.message).removeprefix("Value error, ")
    if choices := re.findall(r"'([^']*)'", message) if " is not one of " in message else []:
        value, *known = choices
        return f"must be {'one of ' * (len(known) > 1)}{', '.join(known)}, not '{value}'{did_you_mean(value, known)}"
    for problem in getattr(error.__cause__, "errors", list)():  # pydantic's, behind newer versions of Typer
        if wanted := _WANTED.get(problem["type"]):
            return f"must be {wanted}, not '{{input}}'".format(**problem, **problem.get("ctx", {}))
    return message


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
    largest_file: Annotated[
        str | None,
        typer.Option(
            "--largest-file",
            envvar="SCHEDOPT_LARGEST_FILE",
            help="Refuse files that hold more, after gzip, e.g. 8GiB. (default: 1GiB)",
        ),
    ] = None,
) -> None:
    """Decide where and in which order the ops of a neural network run, for least memory or time."""
    if largest_file is not None:
        os.environ["SCHEDOPT_LARGEST_FILE"] = largest_file  # for worker processes, too


_MANY = "Methods and many graphs"
_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Schedule a graph": (solve, show, plot, pareto, diff, check, pack, convert),
    "Your own model": (optimize, import_model, fit, measure, apply),
    _MANY: (methods, compare, warm_up),
}
for panel, commands in _PANELS.items():
    for command in commands:
        app.command("import" if command is import_model else None, rich_help_panel=panel)(command)
app.add_typer(gen, name="gen", rich_help_panel=_MANY)
app.add_typer(train, name="train", rich_help_panel=_MANY)
