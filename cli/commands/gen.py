"""`schedopt gen`: make graphs (layered, synthetic, noisy copies of given ones, published networks)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..command_line import command_line
from ..options import DevicesOption, GraphsArgument, JobsOption, JsonFlag, QuietFlag, SeedOption

if TYPE_CHECKING:
    from ...core.problem import Task
    from ...datasets.layered import LayeredParameters
    from ...datasets.recipe import Keep
    from ...datasets.synthetic import SyntheticParameters
    from ..console import Talk

app = typer.Typer(no_args_is_help=True, help="Generate graphs: a data set folder, a file, or a pipe.")

OptionalText = Optional[str]  # noqa: UP045 - Typer reads it at run time on Python 3.10
OptionalInt = Optional[int]  # noqa: UP045
OptionalFloat = Optional[float]  # noqa: UP045

OUTPUT_HELP = (
    "Folder for a data set; a name ending in .pbtxt, .pb, .pbtxt.gz or .pb.gz for one graph; "
    "- for one graph on standard output. (default: -)"
)
FILE_HELP = "A name ending in .pbtxt, .pb, .pbtxt.gz or .pb.gz; - for standard output. (default: -)"
OutputArgument = Annotated[OptionalText, typer.Argument(metavar="OUTPUT", help=OUTPUT_HELP)]
OutputOption = Annotated[OptionalText, typer.Option("--output", "-o", help="Same as OUTPUT.")]
AugmentOutputOption = Annotated[OptionalText, typer.Option("--output", "-o", help=OUTPUT_HELP)]
CountOption = Annotated[int, typer.Option("--count", "-n", min=1, help="Number of graphs.")]
SPLIT_HELP = (
    "Split into train, valid and test, e.g. 3-1-1: sorted by number of ops, each group of A+B+C graphs is "
    "split at random, so that sizes are alike and no topology is in two sets."
)
SplitOption = Annotated[OptionalText, typer.Option(metavar="A-B-C", help=SPLIT_HELP)]
DedupOption = Annotated[str, typer.Option(help="What makes duplicates: equal topology, or in-degrees.")]
FORMAT_HELP = "pbtxt, pb, pbtxt.gz or pb.gz. (default: by the file's name, pb.gz in a folder, else pbtxt)"
FormatOption = Annotated[OptionalText, typer.Option("--format", help=FORMAT_HELP)]
OverwriteFlag = Annotated[bool, typer.Option("--overwrite", help="Replace the data set in the folder.")]
IMPROVABLE_HELP = (
    "Keep only graphs with room for improvement in this task, memory or runtime: those whose own order does "
    "not meet the lower bound already, as chains, single ops and graphs without costs do."
)
ImprovableOption = Annotated[OptionalText, typer.Option(metavar="TASK", help=IMPROVABLE_HELP)]
MODEL_HELP = "erdos-renyi, barabasi-albert, watts-strogatz, stochastic-block; several with commas take turns."
COSTS_HELP = "Runtimes from the sizes of inputs-outputs (A.1.4), or of outputs (the authors' example file)."
FILTER_HELP = (
    "Keep only graphs whose runtime on 2 devices BRKGA improves by this fraction from 1,000 to 10,000 "
    "evaluations. The paper's set: 0.18. (default: keep all)"
)


@dataclass(frozen=True)
class _Output:
    """Where graphs go and how: `kind` is stdout, file or folder; `suffix` is the format's."""

    kind: str
    path: str
    suffix: str
    split: tuple[int, int, int] | None

    def write(self, graph: bytes) -> None:
        """Write the one graph that goes to a file or standard output."""
        from ...core.files.atomic import write_atomically

        if self.kind == "file":
            write_atomically(self.path, graph)
        else:
            sys.stdout.buffer.write(graph)
            sys.stdout.buffer.flush()


def _resolve_output(ctx: typer.Context, graphs: int) -> _Output:
    """Decide where `graphs` graphs go from the command's options, or say why they cannot."""
    from ...core.errors import UsageError
    from ...core.files.costgraph import SUFFIXES
    from ...datasets.split import parse_ratio

    given = ctx.params
    argument, option, wanted = given.get("target"), given["output"], given["format_"]
    if argument is not None and option is not None:
        raise UsageError("the output is named twice; give it as an argument or with --output")
    path = argument or option or "-"
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
        raise UsageError(f"unknown format '{wanted}'; choose from {', '.join(s[1:] for s in SUFFIXES)}")
    if suffix and wanted not in (None, suffix[1:]):
        raise UsageError(f"{path}: the name asks for another format than {wanted}; leave --format out")
    if suffix is None:
        suffix = f".{wanted}" if wanted else ".pb.gz" if kind == "folder" else ".pbtxt"
    return _Output(kind, path, suffix, split)


def _room(ctx: typer.Context) -> tuple[Task, int] | None:
    """Return the task and the number of devices that `--improvable` asks about."""
    from ...core.errors import UsageError

    task, devices = ctx.params["improvable"], ctx.params["devices"]
    if task is None:
        if devices is not None:
            raise UsageError("--devices says where --improvable looks for room; give both, or neither")
        return None
    if task not in ("memory", "runtime"):
        raise UsageError(f"unknown task '{task}'; choose memory or runtime")
    return task, devices or (1 if task == "memory" else 2)


@contextmanager
def _progress(talk: Talk, what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal; yields what to call after each graph."""
    if not talk.shows_progress or total < 2:
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=talk.console, transient=True) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda: progress.advance(bar)


def _finish_folder(
    ctx: typer.Context, talk: Talk, folder: Any, parameters: dict[str, Any], counts: dict[str, Any]
) -> None:
    """Write dataset.json and say what was written."""
    from json import dumps

    from ...version import VERSION
    from ..console import write

    description = {
        "schedopt": VERSION,
        "generator": ctx.info_name,
        "command": command_line(ctx, {"output", "jobs", "json", "quiet", "overwrite"}),
        "seed": ctx.params["seed"],
        "format": folder.suffix[1:],
        "dedup": ctx.params["dedup"],
        "parameters": parameters,
        **counts,
    }
    folder.finish(description)
    if ctx.params["json"]:
        write(dumps({"output": str(folder.path), **description}))
        return
    least, most = counts["ops"]["least"], counts["ops"]["most"]
    ops = f"{least}" if least == most else f"{least} to {most}"
    parts = ", ".join(f"{part} {number}" for part, number in counts.get("split", {}).items())
    graphs = f"{counts['graphs']} graph{'s' * (counts['graphs'] != 1)}"
    talk.note(f"wrote {folder.path}: {graphs} of {ops} ops{f' ({parts})' if parts else ''}")


def _say_written(ctx: typer.Context, talk: Talk, path: str, graph: dict[str, Any]) -> None:
    """Say what was written to one file, as JSON or as a note."""
    from json import dumps

    from ..console import write

    if ctx.params["json"]:
        write(dumps({**graph, "output": path}))
    elif path != "-":
        talk.note(f"wrote {path}: {graph['ops']} ops, {graph['tensors']} tensors")


def _generate(ctx: typer.Context, family: LayeredParameters | SyntheticParameters, *keep: Keep) -> None:
    """Draw graphs of a family and write them where the options say."""
    from dataclasses import asdict
    from functools import partial

    from ...datasets.duplicates import parse_dedup
    from ...datasets.fill import write_generated
    from ...datasets.filters import keep_with_room
    from ...datasets.folder import DatasetFolder
    from ...datasets.recipe import Recipe, generate
    from ..console import Talk

    given = ctx.params
    output = _resolve_output(ctx, given["count"])
    room = _room(ctx)
    keep = (partial(keep_with_room, *room), *keep) if room else keep
    recipe = Recipe(family, given["seed"], keep, parse_dedup(given["dedup"]), output.suffix)
    talk = Talk(given["quiet"])
    if output.kind != "folder":
        drawn = next(generate(recipe, 1))
        output.write(drawn.data)
        graph = {"graph": drawn.name, "ops": drawn.ops, "tensors": drawn.tensors, "topology": drawn.topology}
        _say_written(ctx, talk, output.path, graph | {"seed": given["seed"]})
        return
    folder = DatasetFolder(output.path, output.suffix, given["overwrite"])
    with _progress(talk, f"generating {ctx.info_name} graphs", given["count"]) as advance:
        counts = write_generated(folder, recipe, given["count"], output.split, given["jobs"], advance)
    _finish_folder(ctx, talk, folder, asdict(family), counts)


def _numbers(text: str, what: str) -> tuple[float, ...]:
    """Parse `0.5,1,3,5`."""
    from ...core.errors import UsageError

    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise UsageError(f"{what} '{text}' is not understood; write numbers like 0.5,1,3") from None


def _range(text: str, what: str) -> tuple[float, float]:
    """Parse `50-200`, or `100` for a range of one value."""
    from ...core.errors import UsageError

    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)(?:-(\d+\.?\d*|\.\d+))?", text)
    if not match:
        raise UsageError(f"{what} '{text}' is not understood; write a range like 50-200, or one number")
    return float(match[1]), float(match[2] or match[1])


@app.command()
def layered(
    ctx: typer.Context,
    target: OutputArgument = None,
    output: OutputOption = None,
    nodes: Annotated[int, typer.Option(min=1, help="Ops per graph, |V|.")] = 500,
    count: CountOption = 1,
    seed: SeedOption = 0,
    split: SplitOption = None,
    width: Annotated[str, typer.Option(help="Range of the width factor W, drawn per graph.")] = "0.25-0.5",
    node_variability: Annotated[float, typer.Option(help="Variability of the ops per layer, sigma_N.")] = 0.75,
    edge_density: Annotated[float, typer.Option(help="Density of edges between layers, rho_E.")] = 0.2,
    skip_density: Annotated[float, typer.Option(help="Share of skip connections among edges, rho_S.")] = 0.14,
    cost_means: Annotated[str, typer.Option(help="Means of the mixture of costs, mu.")] = "0.5,1,3,5",
    cost_stds: Annotated[str, typer.Option(help="Standard deviations of that mixture, sigma.")] = "0.5,1,1,1",
    cost_weights: Annotated[str, typer.Option(help="Weights of that mixture, w.")] = "0.3,0.3,0.3,0.1",
    unit: Annotated[str, typer.Option(help="Bytes per unit of cost.")] = "1MiB",
    dedup: DedupOption = "topology",
    improvable: ImprovableOption = None,
    devices: DevicesOption = None,
    format_: FormatOption = None,
    overwrite: OverwriteFlag = False,
    jobs: JobsOption = 1,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Generate layered graphs, built like neural networks (Topoformer, appendix A); defaults as there.

    Costs are bytes: an output and a workspace per layer. Runtimes are 0.
    """
    from ...core.units import parse_bytes
    from ...datasets.layered import LayeredParameters

    width_low, width_high = _range(width, "the width")
    parameters = LayeredParameters(
        nodes=nodes,
        width_low=width_low,
        width_high=width_high,
        node_variability=node_variability,
        edge_density=edge_density,
        skip_density=skip_density,
        cost_means=_numbers(cost_means, "--cost-means"),
        cost_stds=_numbers(cost_stds, "--cost-stds"),
        cost_weights=_numbers(cost_weights, "--cost-weights"),
        unit=parse_bytes(unit, "the unit"),
    )
    _generate(ctx, parameters)


@app.command()
def synthetic(
    ctx: typer.Context,
    target: OutputArgument = None,
    output: OutputOption = None,
    nodes: Annotated[str, typer.Option(help="Ops per graph, a range; source and sink come on top.")] = "50-200",
    count: CountOption = 1,
    seed: SeedOption = 0,
    split: SplitOption = None,
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = "all",
    er_p: Annotated[float, typer.Option(help="Edge probability p of erdos-renyi.")] = 0.05,
    ba_m: Annotated[int, typer.Option(help="Previous nodes each is connected to, m of barabasi-albert.")] = 2,
    ws_k: Annotated[int, typer.Option(help="Neighbours k of watts-strogatz.")] = 4,
    ws_p: Annotated[float, typer.Option(help="Swap probability p of watts-strogatz.")] = 0.3,
    sbm_blocks: Annotated[int, typer.Option(help="Blocks k of stochastic-block.")] = 4,
    sbm_within: Annotated[float, typer.Option(help="Edge probability p within a block.")] = 0.3,
    sbm_across: Annotated[float, typer.Option(help="Edge probability q across blocks.")] = 0.01,
    output_weights: Annotated[str, typer.Option(help="Probabilities of 0, 1 and 2 outputs.")] = "0.1,0.8,0.1",
    control_probability: Annotated[float, typer.Option(help="Share of control edges after ops with outputs.")] = 0.2,
    size_mean: Annotated[float, typer.Option(help="Mean of the tensor sizes, bytes.")] = 50.0,
    size_std: Annotated[float, typer.Option(help="Their standard deviation, bytes.")] = 10.0,
    noise_std: Annotated[float, typer.Option(help="Standard deviation of the runtimes' noise r.")] = 0.1,
    costs: Annotated[str, typer.Option(help=COSTS_HELP)] = "inputs-outputs",
    filter_: Annotated[OptionalFloat, typer.Option("--filter", min=0, max=1, help=FILTER_HELP)] = None,
    dedup: DedupOption = "topology",
    improvable: ImprovableOption = None,
    devices: DevicesOption = None,
    format_: FormatOption = None,
    overwrite: OverwriteFlag = False,
    jobs: JobsOption = 1,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Generate graphs of four random graph models in turn (REGAL A.1.4); defaults as there.

    A graph that a filter rejects is drawn again from the same model, so the mixture stays even.
    """
    from functools import partial

    from ...datasets.filters import keep_improving
    from ...datasets.synthetic import MODELS, SyntheticParameters, parse_costs, parse_models

    low, high = _range(nodes, "the number of nodes")
    parameters = SyntheticParameters(
        nodes_low=int(low),
        nodes_high=int(high),
        models=MODELS if model == "all" else parse_models(model),
        erdos_renyi_p=er_p,
        barabasi_albert_m=ba_m,
        watts_strogatz_k=ws_k,
        watts_strogatz_p=ws_p,
        blocks=sbm_blocks,
        block_within=sbm_within,
        block_across=sbm_across,
        output_weights=_numbers(output_weights, "--output-weights"),
        control_probability=control_probability,
        size_mean=size_mean,
        size_std=size_std,
        noise_std=noise_std,
        costs=parse_costs(costs),
    )
    _generate(ctx, parameters, *([] if filter_ is None else [partial(keep_improving, filter_)]))


@app.command()
def augment(
    ctx: typer.Context,
    graphs: GraphsArgument,
    output: AugmentOutputOption = None,
    copies: Annotated[int, typer.Option("--copies", min=0, help="Noisy copies of each graph.")] = 99,
    seed: SeedOption = 0,
    split: SplitOption = None,
    dedup: DedupOption = "topology",
    improvable: ImprovableOption = None,
    devices: DevicesOption = None,
    format_: FormatOption = None,
    overwrite: OverwriteFlag = False,
    jobs: JobsOption = 1,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Make noisy copies of given graphs (REGAL A.1.2): each size and runtime times its own U(0.5, 1.5).

    A data set folder holds the originals too; copies are in the same set as their original. Of duplicates the
    first is kept. One copy of one graph may go to a file or to standard output.
    """
    from ...core.errors import UsageError
    from ...core.files.costgraph import find_graphs, read_graph
    from ...datasets.augment import encode_copy
    from ...datasets.duplicates import parse_dedup
    from ...datasets.fill import distinct_originals, improvable_originals, write_augmented
    from ...datasets.folder import DatasetFolder
    from ..console import Talk

    paths = find_graphs(graphs)
    to = _resolve_output(ctx, len(paths) * copies)
    room, kind = _room(ctx), parse_dedup(dedup)
    talk = Talk(quiet)
    originals, dropped = distinct_originals((read_graph(path, talk.note) for path in paths), kind)
    if dropped:
        talk.note(f"left out {len(dropped)} of {len(paths)} graphs as duplicates: {', '.join(dropped)}")
    if room:
        originals, dropped = improvable_originals(originals, *room)
        if dropped:
            talk.note(f"left out {len(dropped)} graphs without room for improvement: {', '.join(dropped)}")
        if not originals:
            raise UsageError("no graph has room for improvement; leave out --improvable or give other graphs")
    if to.kind != "folder":
        if copies != 1:
            raise UsageError("originals without copies are a data set; name a folder, or give --copies 1")
        graph, topology = originals[0].graph, originals[0].topology
        to.write(encode_copy(graph, topology, 1, seed, to.suffix))
        facts = {"graph": graph.name, "ops": graph.num_ops, "tensors": graph.num_data_tensors}
        _say_written(ctx, talk, to.path, facts | {"topology": topology, "seed": seed})
        return
    folder = DatasetFolder(to.path, to.suffix, overwrite)
    with _progress(talk, "writing noisy copies", len(originals) * (copies + 1)) as advance:
        counts = write_augmented(folder, originals, copies, seed, to.split, jobs, advance)
    _finish_folder(ctx, talk, folder, {"copies": copies}, counts)


@app.command()
def architecture(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="nasnet-a-mobile, nasnet-a-large, resnet50 or unet.")],
    target: Annotated[OptionalText, typer.Argument(metavar="OUTPUT", help=FILE_HELP)] = None,
    output: OutputOption = None,
    batch: Annotated[int, typer.Option(min=1, help="Images at once.")] = 1,
    size: Annotated[OptionalInt, typer.Option(help="Pixels per side. (default: as published)")] = None,
    training: Annotated[bool, typer.Option("--training", help="Forward, backward and update.")] = False,
    weights: Annotated[bool, typer.Option(help="Parameters stay in memory, or are elsewhere.")] = True,
    format_: FormatOption = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Write out a published network, layer by layer: float32 tensors, parameters as persistent bytes.

    Runtimes are a roofline at 2 TFLOP/s and 50 GB/s, not measurements.
    """
    from ...core.files.costgraph import SUFFIXES, encoding_of, format_graph
    from ...datasets.architectures.catalogue import architecture_graph
    from ..console import Talk

    to = _resolve_output(ctx, 1)
    encoding_of(to.path)
    graph = architecture_graph(name, batch, size, training, weights)
    to.write(format_graph(graph, *SUFFIXES[to.suffix]))
    facts = {"graph": graph.name, "ops": graph.num_ops, "tensors": graph.num_data_tensors}
    _say_written(ctx, Talk(quiet), to.path, facts)
