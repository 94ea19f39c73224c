"""Subcommands that draw graphs of a family, such as `gen layered` and `gen synthetic`: options of its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from ....core.base.errors import UsageError
from ....core.base.units import parse_bytes
from ....datasets.layered import LayeredParameters
from ....datasets.synthetic import MODELS, SyntheticParameters, parse_costs, parse_models
from ...console import Output
from ...made_options import Notation, Written, made_option, options_of, parameters_of, with_options
from ...options import workers_of
from .output import (
    DATA_SET_OPTIONS,
    OUTPUT_HELP,
    OutputOption,
    finish_folder,
    incomplete,
    resolve_output,
    room_asked,
    say_written,
)

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
    from ....datasets.duplicates import parse_dedup
    from ....datasets.fill import generated_names, write_generated
    from ....datasets.filters import KeepWithRoom
    from ....datasets.folder import DatasetFolder
    from ....datasets.recipe import Recipe, generate
    from ...progress import progress_bar

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


_BYTES = Notation(lambda text, what: [parse_bytes(text, what)], lambda size: f"{size // 2**20}MiB")
_LAYERED_HELP = """Generate layered graphs, built like neural networks (Topoformer, appendix A); defaults as there.

Costs are bytes: an output and a workspace per layer. Runtimes are 0.
"""
layered = family_command(
    LayeredParameters,
    _LAYERED_HELP,
    [
        Written(
            "width",
            ("width_low", "width_high"),
            RANGE,
            called="the width",
            help="range of the width factor W, drawn per graph",
        ),
        Written("cost_means", ("cost_means",), NUMBERS),
        Written("cost_stds", ("cost_stds",), NUMBERS),
        Written("cost_weights", ("cost_weights",), NUMBERS),
        Written("unit", ("unit",), _BYTES, called="the unit"),
    ],
)


_WHOLE_RANGE = Notation(lambda text, what: map(int, RANGE.read(text, what)), RANGE.write)
_MODELS = Notation(
    lambda text, what: [MODELS if text == "all" else parse_models(text)],
    lambda models: "all" if models == MODELS else ",".join(models),
)
_COSTS = Notation(lambda text, what: [parse_costs(text)], str)
_SYNTHETIC_HELP = """Generate graphs of four random graph models in turn (REGAL A.1.4); defaults as there.

A graph that a filter rejects is drawn again from the same model, so the mixture stays even.
"""
_FILTER_HELP = (
    "Keep only graphs whose runtime on 2 devices a genetic algorithm improves by this fraction from 1,000 to 10,000 "
    "evaluations. The paper's set: 0.18. (default: keep all)"
)
_FILTER = made_option("filter_", float | None, None, typer.Option("--filter", min=0, max=1, help=_FILTER_HELP))


def _filters(given: dict[str, Any]) -> Iterator[Keep]:
    from ....datasets.filters import KeepImproving

    if given["filter_"] is not None:
        yield KeepImproving(given["filter_"])


synthetic = family_command(
    SyntheticParameters,
    _SYNTHETIC_HELP,
    [
        Written(
            "nodes",
            ("nodes_low", "nodes_high"),
            _WHOLE_RANGE,
            called="the number of nodes",
            help="ops per graph, a range; source and sink come on top",
        ),
        Written("model", ("models",), _MODELS),
        Written("er_p", ("erdos_renyi_p",)),
        Written("ba_m", ("barabasi_albert_m",)),
        Written("ws_k", ("watts_strogatz_k",)),
        Written("ws_p", ("watts_strogatz_p",)),
        Written("sbm_blocks", ("blocks",)),
        Written("sbm_within", ("block_within",)),
        Written("sbm_across", ("block_across",)),
        Written("output_weights", ("output_weights",), NUMBERS),
        Written("costs", ("costs",), _COSTS),
    ],
    filters=_filters,
    filter_options=[_FILTER],
)
