"""`schedopt gen`: graphs of random families, noisy copies of given graphs, published networks; files and folders."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

import typer

from ...core.base.errors import UsageError
from ...core.base.names import one_of, unknown
from ...core.base.units import parse_bytes
from ...core.search.options import Task
from ...datasets.filters import DEDUPS, KeepImproving, has_room
from ...datasets.layered import LayeredParameters
from ...datasets.synthetic import COSTS, MODELS, SyntheticParameters
from ...version import VERSION
from .. import options as shared
from ..console import Output, write_json
from ..made_options import Notation, Written, made_option, options_of, parameters_of, with_options

if TYPE_CHECKING:
    from ...datasets.recipe import Family, Keep


OUTPUT_HELP = (
    "Folder for a data set; a name ending in .pbtxt, .pb, .pbtxt.gz or .pb.gz for one graph; "
    "- for one graph on standard output. (default: standard output; on a terminal, a new file or folder)"
)
_SPLIT_HELP = (
    "Split into train, valid and test, e.g. 3-1-1: sorted by number of ops, each group of A+B+C graphs is "
    "split at random, so that sizes are alike and no topology is in two sets."
)
_FORMAT_HELP = "pbtxt, pb, pbtxt.gz or pb.gz. (default: by the file's name, pb.gz in a folder, else pbtxt)"
_IMPROVABLE_HELP = (
    "Keep only graphs with room for improvement in this task, memory or runtime: those whose own order does "
    "not meet the lower bound already, as chains, single ops and graphs without costs do."
)
_DEVICES_HELP = "Devices, 1 to 64, on which --improvable looks for room. (default: 1 for memory, 2 for runtime)"
OutputOption = Annotated[str | None, typer.Option("--output", "-o", help="Same as OUTPUT.")]
FormatOption = Annotated[str | None, typer.Option("--format", help=_FORMAT_HELP)]


def of_data_sets(
    seed: int = shared.SEED,
    split: str | None = typer.Option(None, metavar="A-B-C", help=_SPLIT_HELP),
    dedup: str = typer.Option("topology", help="Duplicates have equal topology, or in-degrees."),
    improvable: str | None = typer.Option(
        None, metavar="TASK", help=_IMPROVABLE_HELP, autocompletion=lambda: shared.TASKS
    ),
    devices: int | None = typer.Option(None, "--devices", "-d", help=_DEVICES_HELP),
    format_: FormatOption = None,
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace the data set in the folder."),
    jobs: shared.ClusterJobsOption = None,
    backend: shared.BackendOption = "loky",
    address: shared.AddressOption = None,
    json: shared.JsonFlag = False,
    quiet: shared.QuietFlag = False,
) -> None:
    """Have the options of all generators of data sets."""


# The first two, seed and split, come before those of a generator
DATA_SET_OPTIONS = list(inspect.signature(of_data_sets, eval_str=True).parameters.values())


class Target(NamedTuple):
    """Where graphs go and how: `kind` is stdout, file or folder; `suffix` is the format's."""

    kind: str
    path: str
    suffix: str
    split: tuple[int, int, int] | None


def resolve_output(ctx: typer.Context, graphs: int, name: str) -> Target:
    """Decide where `graphs` graphs go from the command's options, or say why they cannot."""
    from ...core.files.atomic import check_writable
    from ...core.files.costgraph import SUFFIXES
    from ...datasets.folder import parse_ratio

    given = ctx.params
    argument, option, wanted = given.get("target"), given["output"], given["format_"]
    if argument is not None and option is not None:
        raise UsageError("the output is named twice; give it as an argument or with --output")
    given_path = argument or option
    if given_path is None:
        given_path = shared.output_of(None, name, f".{wanted or 'pb.gz'}" if graphs == 1 else "")
    path = given_path or "-"
    suffix = next((s for s in sorted(SUFFIXES, key=len, reverse=True) if path.endswith(s)), None)
    kind = "stdout" if path == "-" else "file" if suffix else "folder"
    split = parse_ratio(given["split"]) if given.get("split") else None
    if kind == "stdout" and given["json"]:
        raise UsageError("--json prints to standard output, where the graph goes; name another output")
    if kind != "folder" and graphs > 1:
        where = f"the one file {path}" if suffix else "standard output"
        raise UsageError(f"{graphs} graphs do not fit in {where}; name a folder as the output")
    if kind != "folder" and (split or given.get("overwrite")):
        raise UsageError("--split and --overwrite are for data sets; name a folder as the output")
    if wanted is not None and f".{wanted}" not in SUFFIXES:
        raise unknown("format", wanted, [s[1:] for s in SUFFIXES])
    if suffix and wanted not in (None, suffix[1:]):
        raise UsageError(f"{path}: the name asks for another format than {wanted}; leave --format out")
    if suffix is None:
        suffix = f".{wanted}" if wanted else ".pb.gz" if kind == "folder" else ".pbtxt"
    if kind == "file":
        check_writable(path)
    return Target(kind, path, suffix, split)


def room_asked(ctx: typer.Context) -> tuple[Task, int] | None:
    """Return the task and the number of devices that `--improvable` asks about."""
    task, devices = ctx.params["improvable"], ctx.params["devices"]
    if task is None:
        if devices is not None:
            raise UsageError("--devices says where --improvable looks for room; give both, or neither")
        return None
    known = one_of("task", task, get_args(Task))
    return known, devices or (1 if known == "memory" else 2)


def write_folder(
    ctx: typer.Context,
    to: Target,
    names: Iterable[str],
    what: str,
    graphs: int,
    parameters: dict[str, Any],
    write: Callable[..., dict[str, Any]],
) -> None:
    """Let `write` fill a data set folder, which says the same of all; write dataset.json and name the files."""
    from ...datasets.folder import DatasetFolder
    from ..progress import progress_bar

    given, out = ctx.params, Output(ctx.params["quiet"])
    folder = DatasetFolder(to.path, to.suffix, list(names), given["overwrite"])
    again = "the same command with --overwrite, and without --backend, makes all of them again here"
    backend, address, jobs = (given[name] for name in ("backend", "address", "jobs"))
    with (
        shared.workers_of(backend, address, jobs, lambda: f"{to.path} lacks graphs; {again}") as workers,
        progress_bar(out, what, graphs) as advance,
    ):
        counts = write(folder, ratio=to.split, jobs=workers, advance=advance)
    description = {
        "schedopt": VERSION,
        "generator": ctx.info_name,
        "command": shared.command_line(ctx, {"output", "jobs", "backend", "address", "json", "quiet", "overwrite"}),
        "seed": given["seed"],
        "format": folder.suffix[1:],
        "dedup": given["dedup"],
        "parameters": parameters,
        **counts,
    }
    written = folder.finish(description)
    if given["json"]:
        write_json({"output": str(folder.path), **written})
        return
    least, most = counts["ops"]["least"], counts["ops"]["most"]
    ops = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    parts = ", ".join(f"{part} {number:,}" for part, number in counts.get("split", {}).items())
    total = f"{counts['graphs']:,} graph{'s' * (counts['graphs'] != 1)}"
    out.note(f"wrote {folder.path}: {total} of {ops} ops{f' ({parts})' if parts else ''}")


def write_one(ctx: typer.Context, path: str, data: bytes, graph: dict[str, Any]) -> None:
    """Write the one graph that goes to a file or standard output, and say so, as JSON or as a note."""
    from ...core.files.atomic import write_out

    write_out(path, data)
    if ctx.params["json"]:
        write_json({**graph, "output": path})
    elif path != "-":
        Output(ctx.params["quiet"]).note(f"wrote {path}: {graph['ops']} ops, {graph['tensors']} tensors")


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

    options = [*DATA_SET_OPTIONS[:2], *others, *filter_options, *DATA_SET_OPTIONS[2:]]
    return with_options(run, {"output": [size], "count": options}, help)


def _generate(ctx: typer.Context, family: Family, *keep: Keep) -> None:
    """Draw graphs of a family and write them where the options say."""
    from ...datasets.folder import write_generated
    from ...datasets.recipe import Recipe, generate

    given, count = ctx.params, ctx.params["count"]
    output = resolve_output(ctx, count, str(ctx.info_name))
    room = room_asked(ctx)
    keep = (partial(has_room, *room), *keep) if room else keep
    dedup = one_of("way to find duplicates", given["dedup"], DEDUPS)
    recipe = Recipe(family, given["seed"], keep, dedup, output.suffix)
    if output.kind != "folder":
        drawn = next(generate(recipe, 1))
        graph = {"graph": drawn.name, "ops": drawn.ops, "tensors": drawn.tensors, "topology": drawn.topology}
        write_one(ctx, output.path, drawn.data, graph | {"seed": given["seed"]})
        return
    names = (recipe.file_name(index, count) for index in range(count))
    what, write = f"generating {ctx.info_name} graphs", partial(write_generated, recipe=recipe, count=count)
    write_folder(ctx, output, names, what, count, asdict(family), write)  # type: ignore[call-overload]


_BYTES = Notation(lambda text, what: [parse_bytes(text, what)], lambda size: f"{size // 2**20}MiB")
_LAYERED_HELP = """Generate layered graphs, built like neural networks (Topoformer, appendix A); defaults as there.

Costs are bytes: an output and a workspace per layer. Runtimes are 0.
"""
_WIDTH_HELP = "range of the width factor W, drawn per graph"
layered = family_command(
    LayeredParameters,
    _LAYERED_HELP,
    [
        Written("width", ("width_low", "width_high"), RANGE, "the width", _WIDTH_HELP),
        Written("cost_means", ("cost_means",), NUMBERS),
        Written("cost_stds", ("cost_stds",), NUMBERS),
        Written("cost_weights", ("cost_weights",), NUMBERS),
        Written("unit", ("unit",), _BYTES, "the unit"),
    ],
)

_WHOLE_RANGE = Notation(lambda text, what: map(int, RANGE.read(text, what)), RANGE.write)
_MODELS = Notation(
    lambda text, what: [
        tuple(one_of("model", m.strip(), MODELS) for m in text.split(",")) if text != "all" else MODELS
    ],
    lambda models: "all" if models == MODELS else ",".join(models),
)
_COSTS = Notation(lambda text, what: [one_of("costs", text, COSTS)], str)
_SYNTHETIC_HELP = """Generate graphs of four random graph models in turn (REGAL A.1.4); defaults as there.

A graph that a filter rejects is drawn again from the same model, so the mixture stays even.
"""
_NODES_HELP = "ops per graph, a range; source and sink come on top"
_FILTER_HELP = (
    "Keep only graphs whose runtime on 2 devices a genetic algorithm improves by this fraction from 1,000 to 10,000 "
    "evaluations. The paper's set: 0.18. (default: keep all)"
)
_FILTER = made_option("filter_", float | None, None, typer.Option("--filter", min=0, max=1, help=_FILTER_HELP))


synthetic = family_command(
    SyntheticParameters,
    _SYNTHETIC_HELP,
    [
        Written("nodes", ("nodes_low", "nodes_high"), _WHOLE_RANGE, "the number of nodes", _NODES_HELP),
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
    filters=lambda given: () if given["filter_"] is None else (KeepImproving(given["filter_"]),),
    filter_options=[_FILTER],
)


def augment(
    ctx: typer.Context,
    graphs: shared.GraphsArgument,
    output: str | None = shared.output_option(OUTPUT_HELP),
    copies: int = typer.Option(99, min=0, help="Noisy copies of each graph."),
    **given: Any,
) -> None:
    """Make noisy copies of given graphs (REGAL A.1.2): each size and runtime times its own U(0.5, 1.5).

    A data set folder holds the originals too; copies are in the same set as their original. Of duplicates the
    first is kept. One copy of one graph may go to a file or to standard output.
    """
    from ...core.files.costgraph import find_graphs, graph_name, read_graph
    from ...datasets import folder as data

    paths, seed = find_graphs(graphs), given["seed"]
    to = resolve_output(ctx, len(paths) * copies, f"{graph_name(paths[0])}-copy")
    room, kind = room_asked(ctx), one_of("way to find duplicates", given["dedup"], DEDUPS)
    out = Output(given["quiet"])
    originals, dropped = data.distinct_originals((read_graph(path, out.note) for path in paths), kind)
    if dropped:
        out.note(f"left out {len(dropped)} of {len(paths)} graphs as duplicates: {', '.join(dropped)}")
    if room:
        originals, dropped = data.improvable_originals(originals, *room)
        if dropped:
            out.note(f"left out {len(dropped)} graphs without room for improvement: {', '.join(dropped)}")
        if not originals:
            raise UsageError("no graph has room for improvement; leave out --improvable or give other graphs")
    if to.kind != "folder":
        if copies != 1:
            raise UsageError("--copies 0 writes the originals as a data set; name a folder, or give --copies 1")
        graph, topology = originals[0].graph, originals[0].topology
        copy = data.encode_copy(seed, to.suffix, (graph, topology, 1))
        facts = {"graph": graph.name, "ops": graph.num_ops, "tensors": graph.num_data_tensors}
        write_one(ctx, to.path, copy, facts | {"topology": topology, "seed": seed})
        return
    names = chain.from_iterable(data.names_of_copies([o.graph.name for o in originals], copies))
    what, write = "writing noisy copies", partial(data.write_augmented, originals=originals, copies=copies, seed=seed)
    write_folder(ctx, to, names, what, len(originals) * (copies + 1), {"copies": copies}, write)


with_options(augment, {"copies": DATA_SET_OPTIONS})

_FILE_HELP = f"A name ending in .pbtxt, .pb, .pbtxt.gz or .pb.gz; - for standard output. {shared.DEFAULT_OUTPUT}"


def architecture(
    ctx: typer.Context,
    name: str = typer.Argument(..., metavar="NAME", help="nasnet-a-mobile, nasnet-a-large, resnet50 or unet."),
    target: str | None = typer.Argument(None, metavar="OUTPUT", help=_FILE_HELP),
    output: OutputOption = None,
    batch: int = typer.Option(1, min=1, help="Images at once."),
    size: int | None = typer.Option(None, help="Pixels per side. (default: as published)"),
    training: bool = typer.Option(False, "--training", help="Forward, backward and update."),
    weights: bool = typer.Option(True, help="Parameters stay in memory, or are elsewhere."),
    format_: FormatOption = None,
    json: shared.JsonFlag = False,
    quiet: shared.QuietFlag = False,
) -> None:
    """Write out a published network, layer by layer: float32 tensors, parameters as persistent bytes.

    Runtimes are a roofline at 2 TFLOP/s and 50 GB/s, not measurements.
    """
    from ...core.files.costgraph import SUFFIXES, encoding_of, format_graph
    from ...datasets.architectures import architecture_graph

    to = resolve_output(ctx, 1, name)
    encoding_of(to.path)
    graph = architecture_graph(name, batch, size, training, weights)
    facts = {"graph": graph.name, "ops": graph.num_ops, "tensors": graph.num_data_tensors}
    write_one(ctx, to.path, format_graph(graph, *SUFFIXES[to.suffix]), facts)
