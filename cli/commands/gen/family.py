"""Subcommands that draw graphs of a family: options made of its parameters, and those that all families have."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from ....core.base.errors import UsageError
from ...backends import workers_of
from ...console import Output
from ...made_options import Notation, Written, options_of, parameters_of, with_options
from .options import DATA_SET_OPTIONS, OUTPUT_HELP, OutputOption

if TYPE_CHECKING:
    from ....datasets.recipe import Family, Keep


def _read_numbers(text: str, what: str) -> list[tuple[float, ...]]:
    try:
        return [tuple(float(number) for number in text.split(","))]
    except ValueError:
        raise UsageError(f"{what} '{text}' is not understood; write numbers like 0.5,1,3") from None


def _read_range(text: str, what: str) -> tuple[float, float]:
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)(?:-(\d+\.?\d*|\.\d+))?", text)
    if not match:
        raise UsageError(f"{what} '{text}' is not understood; write a range like 50-200, or one number")
    return float(match[1]), float(match[2] or match[1])


# Several numbers, as `0.5,1,3,5`
NUMBERS = Notation(_read_numbers, lambda numbers: ",".join(f"{number:g}" for number in numbers))
RANGE = Notation(_read_range, "{:g}-{:g}".format)  # the ends of a range, as `50-200`, or `100` for a range of one value


def family_command(
    kind: type[Family],
    help: str,
    written: Sequence[Written],
    filters: Callable[[dict[str, Any]], Iterable[Keep]] = lambda given: (),
    filter_options: Sequence[inspect.Parameter] = (),
) -> Callable[..., None]:
    """Return the subcommand that draws graphs of a family and writes them where the options say."""
    size, *others = options_of(kind, written)

    def run(
        ctx: typer.Context,
        target: str | None = typer.Argument(None, metavar="OUTPUT", help=OUTPUT_HELP),
        output: OutputOption = None,
        count: int = typer.Option(1, "--count", "-n", min=1, help="Number of graphs."),
        **given: Any,
    ) -> None:
        _generate(ctx, parameters_of(kind, written, given), *filters(given))

    shared = [*DATA_SET_OPTIONS[:2], *others, *filter_options, *DATA_SET_OPTIONS[2:]]
    return with_options(run, {"output": [size], "count": shared}, help)


def _generate(ctx: typer.Context, family: Family, *keep: Keep) -> None:
    """Draw graphs of a family and write them where the options say."""
    from ....datasets.filters import KeepWithRoom, parse_dedup
    from ....datasets.folder import DatasetFolder, generated_names, write_generated
    from ....datasets.recipe import Recipe, generate
    from ...progress import progress_bar
    from .output import finish_folder, incomplete, resolve_output, room_asked, say_written

    given = ctx.params
    output = resolve_output(ctx, given["count"], str(ctx.info_name))
    room = room_asked(ctx)
    keep = (KeepWithRoom(*room), *keep) if room else keep
    recipe = Recipe(family, given["seed"], keep, parse_dedup(given["dedup"]), output.suffix)
    out = Output(given["quiet"])
    if output.kind != "folder":
        drawn = next(generate(recipe, 1))
        output.write(drawn.data)
        graph = {"graph": drawn.name, "ops": drawn.ops, "tensors": drawn.tensors, "topology": drawn.topology}
        say_written(ctx, out, output.path, graph | {"seed": given["seed"]})
        return
    names = generated_names(recipe, given["count"])
    folder = DatasetFolder(output.path, output.suffix, names, given["overwrite"])
    with (
        workers_of(given["backend"], given["address"], given["jobs"], lambda: incomplete(output.path)) as workers,
        progress_bar(out, f"generating {ctx.info_name} graphs", given["count"]) as advance,
    ):
        counts = write_generated(folder, recipe, given["count"], output.split, workers, advance)
    finish_folder(ctx, out, folder, asdict(family), counts)  # type: ignore[call-overload]
