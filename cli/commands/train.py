"""`schedopt train METHOD`: the best of a grid of parameters, or a network on drawn or given graphs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import typer

from ...core.base.errors import FormatError, UsageError
from ...core.base.units import signed
from ...core.search.options import GridOptions
from ...core.search.registry import METHODS
from ...policies.training.trainable import Screen, Trainable, Work, trainable_of
from ...version import VERSION
from .. import options as shared
from ..console import Output, complain, show, write, write_json
from ..made_options import made_option, options_of, with_options

if TYPE_CHECKING:
    from rich.table import Table

    from ...core.experiments.comparison import Comparison, Experiment
    from ...core.experiments.grid_search import Grid
    from ...core.graph.graph import CostGraph
    from ...core.report.summaries import MethodSummary
    from ...policies.training.phases import PhasedTrainer, Progress
    from ...policies.training.settings import TrainingSettings


HELP = (
    "Every setting runs on the same graphs with the same seed and budget; the best improves most over the first, "
    "in percent per graph. With --first F all settings run on the first F graphs only, the best share --keep of them "
    "on F / keep, and so on until the last few ran on all."
)
_SHOWN = 10
_SILENT = {"held_out", "jobs", "backend", "address", "output", "resume", "json", "quiet"}


def grid_search(
    ctx: typer.Context,
    graphs: shared.GraphsArgument,
    held_out: list[str] | None = typer.Option(
        None, help="Other graphs, or a folder, to confirm the winner on; repeatable."
    ),
    first: int | None = typer.Option(None, min=1, help="Graphs of the first round. (default: all, no rounds)"),
    keep: float = typer.Option(0.25, min=0.01, max=0.99, help="Share of the settings that goes on to the next round."),
    jobs: shared.ClusterJobsOption = None,
    backend: shared.BackendOption = "loky",
    address: shared.AddressOption = None,
    output: str | None = shared.output_option("Write the winner to this .yaml; other tasks in it stay."),
    resume: str | None = shared.RESUME,
    json: shared.JsonFlag = False,
    quiet: shared.QuietFlag = False,
    **given: Any,
) -> None:
    """Search the grid of the method that the subcommand names, and write the winner."""
    from ...core.api.graphs import graphs_of
    from ...core.base.parallel import is_here
    from ...core.experiments.comparison import ResumeFile, opened
    from ...core.experiments.grid_search import GRIDS, check_apart, confirm, plan, race, runs_of
    from ...core.files.yaml_files import write_yaml
    from ..progress import compiling, interruptible, progress_bar

    out = Output(quiet)
    grid = GRIDS[str(ctx.info_name)]
    document = _read_output(output, grid.method)
    settings = GridOptions(**given)
    task = settings.task
    training = graphs_of(graphs, out.note)
    others = graphs_of(held_out, out.note) if held_out else []
    check_apart(training, others)
    rounds = plan(len(grid.settings), len(training), first or len(training), keep)
    with (
        opened(ResumeFile, resume) as file,
        shared.workers_of(backend, address, jobs, lambda: shared.kept_in(resume)) as workers,
        progress_bar(out, "", runs_of(rounds) + 2 * len(others)) as bar,
    ):
        best = ""

        def execute(experiment: Experiment) -> Comparison:
            """Do the runs of an experiment, but for those that the file has; leave if interrupted."""
            what = f"{len(experiment.methods)} settings on {len(experiment.graphs)} graphs{best}"
            experiment.resume_from(file)
            if file is not None:
                out.note(f"{len(experiment.cells)} of {len(experiment.runs)} runs are taken from {file.path}")
            bar(len(experiment.cells), what=what)
            with compiling(out):
                experiment.compile()
            with interruptible(out, "the runs done so far") if is_here(workers) else nullcontext() as interrupt:
                done = experiment.execute(jobs=workers, on_cell=lambda cell: bar(what=what), interrupt=interrupt)
            if not done.is_complete:
                go_on = "; the same command goes on from there"
                complain(
                    f"interrupted: the runs done so far are "
                    f"{f'kept in {file.path}{go_on}' if file else 'lost; --resume keeps them'}"
                )
                raise typer.Exit(130)
            return done

        for ranking in race(grid, training, settings, rounds, execute):
            winner = ranking[0]
            best = f", best so far {_improvement(winner)}"
            out.note(f"best of {len(ranking)} on {winner.graphs} graphs: {winner.method}, {_improvement(winner)}")
        confirmed = confirm(grid, winner.method, others, settings, execute) if others else None
    document[task] = {
        "settings": grid.specs[winner.method],
        "found": {
            "command": shared.command_line(ctx, _SILENT),
            "schedopt": VERSION,
            "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
            **{name: getattr(settings, name) for name in ("devices", "evaluations", "seed")},
            "rounds": [f"{r.settings} settings on {r.graphs} graphs" for r in rounds],
            "training": _evidence(winner, graphs),
            **({} if confirmed is None else {"held_out": _evidence(confirmed, held_out or [])}),
        },
    }
    if json:
        write_json({"method": grid.method, "task": task, **document[task]}, indent=1)
    else:
        show(_grid_table(grid, ranking), f"improvement over {grid.reference}, {ranking[0].graphs} graphs")
        if confirmed is not None:
            show(f"the first on {confirmed.graphs} held-out graphs: {_improvement(confirmed)}")
    if output is not None:
        write_yaml(output, document)
        out.note(f"wrote {output}")


with_options(grid_search, {"held_out": options_of(GridOptions)})


def _read_output(output: str | None, method: str) -> dict[str, Any]:
    """Return the content of the output file, or the start of a new one."""
    from ...core.files.atomic import check_writable
    from ...core.search.settings import read_document

    if output is not None:
        if Path(output).suffix not in (".yaml", ".yml"):
            raise UsageError(f"{output}: the name must end in .yaml")
        check_writable(output)
        if Path(output).exists():
            return read_document(output, method)
    return {"method": method}


def _evidence(summary: MethodSummary, paths: list[str]) -> dict[str, Any]:
    """Return the improvement over the first setting on some graphs, and where those are from."""
    from ...datasets.folder import made_by

    found = {"improvement_percent": summary.improvement.mean, "standard_error": summary.improvement.standard_error}
    return {
        "graphs": summary.graphs,
        "made_by": made_by(paths),
        **{name: None if value is None else round(value, 4) for name, value in found.items()},
        "wins_ties_losses": f"{summary.wins}/{summary.ties}/{summary.losses}",
    }


def _grid_table(grid: Grid, ranking: list[MethodSummary]) -> Table:
    from rich.table import Table

    best = ranking[:_SHOWN]
    table = Table(*grid.settings[0], "improvement")
    for summary in best + [s for s in ranking[_SHOWN:] if s.method == grid.reference]:
        values = map(str, grid.specs[summary.method].values())
        table.add_row(*values, "reference" if summary.method == grid.reference else _improvement(summary))
    return table


def _improvement(summary: MethodSummary) -> str:
    """Write the mean and its standard error."""
    mean, error = summary.improvement.mean, summary.improvement.standard_error
    if mean is None:
        return "none"
    return f"{signed(mean)}%" if error is None else f"{signed(mean)} ± {error:.2f}%"


_FEW = 10


def folder_of(output: str | None, method: str, resume: bool, out: Output) -> str:
    """Return the folder named, or the first of `runs/METHOD-2` and so on not there; with `resume` the last there is."""
    if output is not None:
        return output
    number, there, folder = 1, None, Path("runs", method)
    while folder.exists():
        number, there, folder = number + 1, folder, Path("runs", f"{method}-{number + 1}")
    chosen = str(there if resume and there is not None else folder)
    out.note(f"the run is in {chosen}")
    return chosen


def chosen_settings(
    output: str,
    resume: bool,
    kind: type[TrainingSettings],
    config: str | None,
    recipe: Callable[[], Any],
    named: dict[str, Any],
    settings: list[str] | None,
) -> Any:
    """Return the settings of the file, or else of the run to go on with, or of the recipe; changed by options."""
    from ...core.search.settings import from_plain, plain, read_config, with_settings
    from ...policies.training.run_folder import has_checkpoint, read_checkpoint

    if resume and not has_checkpoint(output):
        raise UsageError(f"{output}: holds no checkpoint to go on with; leave out --resume to start a run there")
    if has_checkpoint(output) and not resume:
        raise UsageError(f"{output}: holds a run already; give --resume to go on with it, or name another folder")
    if config is not None:
        base = read_config(config, kind)
    else:
        base = read_checkpoint(output, kind).parameters if resume else recipe()
    values = with_settings(plain(base), settings or [])
    values |= {name: value for name, value in named.items() if value is not None}
    return from_plain(kind, values, "settings")


def split(
    graphs: list[CostGraph], validation: list[CostGraph], seed: int, out: Output
) -> tuple[list[CostGraph], list[CostGraph]]:
    """Return the graphs to train on and those to validate on."""
    import numpy as np

    from ...core.files.costgraph import graph_hash

    if validation or not graphs:
        trained_on = {graph_hash(graph) for graph in graphs}
        for graph in validation:
            if graph_hash(graph) in trained_on:
                raise UsageError(
                    f"the validation graph {graph.name} is also trained on; leave it out of one of the two"
                )
        return graphs, validation
    if len(graphs) < _FEW:
        out.note("the graphs are few, so training and validation share them; name others by --validation")
        return graphs, graphs
    aside = set(np.random.default_rng(seed).permutation(len(graphs))[: len(graphs) // _FEW].tolist())
    out.note(f"{len(aside)} of {len(graphs)} graphs are set aside to validate on; name others by --validation")
    rest = [graph for at, graph in enumerate(graphs) if at not in aside]
    return rest, [graph for at, graph in enumerate(graphs) if at in aside]


def chained_works(recipe: str, trainable: Trainable, work: Work, out: Output) -> Iterator[Work]:
    """Yield the runs of a recipe, each once the one before it is finished; a finished one is not done again."""
    from ...policies.training.run_folder import WEIGHTS, has_checkpoint
    from ...policies.training.settings import read_chain

    runs = read_chain(recipe, trainable.method, trainable.trainer.settings)
    folder, start = Path(work.folder), ""
    if (is_given := any(run.is_given for run in runs)) != bool(work.graphs):
        raise UsageError(f"{recipe}: needs {'' if not work.graphs else 'no '}GRAPHS to train on")
    if work.validation and not is_given:
        raise UsageError(f"{recipe}: draws the graphs that it validates on; leave out --validation")
    if has_checkpoint(folder / runs[0].name) != work.resume:
        said = "leave out --resume to start" if work.resume else "give --resume to go on, or name another folder"
        raise UsageError(f"{folder}: holds {'no' if work.resume else 'the'} runs of this recipe; {said}")
    parts = [split(work.graphs, work.validation, run.settings.seed, out) if run.is_given else ([], []) for run in runs]
    for number, (run, (training, validation)) in enumerate(zip(runs, parts, strict=True), start=1):
        own = folder / run.name
        out.note(f"run {number} of {len(runs)}, {run.name}, is in {own}")
        settings = replace(run.settings, start=start or run.settings.start, device=work.settings or "cpu")
        yield replace(
            work, folder=str(own), settings=settings, graphs=training, validation=validation, resume=has_checkpoint(own)
        )
        start = str(own / WEIGHTS)


def resume_command(method: str, output: str, graphs: list[str], validation: list[str], recipe: list[str]) -> str:
    """Return the command that goes on with a run, or with those of a recipe, on a worker here."""
    others = [word for path in validation for word in ("--validation", path)]
    return shlex.join(["schedopt", "train", method, *graphs, *others, *recipe, "--output", output, "--resume"])


def leave(hint: Callable[[], str]) -> NoReturn:
    """End an interrupted run, saying how to go on."""
    complain(f"interrupted: {hint()}")
    raise typer.Exit(130)


def resume_hint(folder: str, again: str, checkpoints: str) -> str:
    """Say how a run that was left goes on: with the command `again`, once there are checkpoints."""
    if not any(Path(folder).glob(checkpoints)):
        again = f"the same command, with --output {shlex.quote(folder)}"
    return f"what is done is kept in {folder}; go on with: {again}"


def step_line(progress: Progress[Any], phases: int, trainer: PhasedTrainer[Any, Any]) -> str:
    """Write where a run is, on a line."""
    place, phase = progress.place, progress.phase
    where = f"phase {place.phase + 1}/{phases} epoch {place.epoch + 1}/{phase.epochs} step {place.batch}/{phase.steps}"
    found = f"{trainer.word} {trainer.said(progress.validation)}"
    return ", ".join([where, *_left(progress.seconds_left), found, *trainer.words(progress.measured)])


def validation_line(trainer: PhasedTrainer[Any, Any], what: str, done: int, total: int) -> str:
    """Write where a validation is, on a line."""
    place = trainer.place
    where = f"phase {place.phase + 1} epoch {place.epoch + 1}" if place.step else "before training"
    return ", ".join([f"{where}: {done} of {total} validation graphs {what}", *_left(trainer.seconds_left)])


def epoch_line(line: dict[str, float], phases: int, trainer: PhasedTrainer[Any, Any]) -> str:
    """Write a line of the curve for people, and how many seconds are left."""
    where = f"phase {line['phase']}/{phases} epoch {line['epoch']}" if line["epoch"] else "before training"
    parts = [f"{where}: {trainer.line(line)}", *trainer.words(line), f"{line['seconds']:.0f} s"]
    return ", ".join([*parts, *_left(trainer.seconds_left)])


def _left(seconds: float) -> list[str]:
    """Write about how long a run still takes; nothing where that is not known, or nothing is left."""
    if not 0 < seconds < math.inf:
        return []
    text = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    return [f"about {text if seconds < 6000 else f'{seconds / 3600:.1f} h'} left"]


def report(method: str, trainer: PhasedTrainer[Any, Any], as_json: bool) -> None:
    """Print the validations of a finished run, and the next step with the weights; or one JSON document."""
    from rich.table import Table

    from ...policies.training.run_folder import CURVE, WEIGHTS, curve_of

    columns, weights = trainer.columns, trainer.folder / WEIGHTS
    curve = [line for line in curve_of(trainer.folder) if columns.keys() <= line.keys()]
    if not (curve and weights.exists()):
        lost = trainer.folder / CURVE if weights.exists() else weights
        raise FormatError(f"{lost}: is gone or damaged, though the run is finished")
    best = min(curve, key=trainer.score)
    lines = {"first": curve[0], "best": best, "last": curve[-1]}
    if as_json:
        facts = {"weights": str(weights), "steps": trainer.place.step, "seconds": round(trainer.place.seconds, 1)}
        names = ("phase", "epoch", "step", *columns)
        kept = {which: {name: line[name] for name in names} for which, line in lines.items()}
        write_json({**facts, "validation": kept}, indent=1)
        return
    title = trainer.title.format(trainer.parameters)
    table = Table("validation", "step", *columns.values())
    for which, line in lines.items():
        table.add_row(which, f"{line['step']:,}", *(f"{line[name]:.2f}" for name in columns))
    show(table, f"{trainer.place.step:,} steps in {trainer.place.seconds:,.0f} s: {title}")
    write("The best weights are kept. To use them:")
    write(f"schedopt solve GRAPH --method {method}{trainer.use} --weights {shlex.quote(str(weights))}")


_OptionalPrecision = Literal["float32", "bfloat16"] | None
_OptionalDevice = Literal["cpu", "cuda"] | None
_FOLDER_HELP = "Folder of the run: weights, checkpoint, curves. (default: a new one in runs/; with --resume the last)"
_TASK_HELP = "Minimise memory (peak) or runtime (makespan). (default: the settings', or memory)"
_DEVICES_HELP = "Devices, 2 to 8. (default: the settings', or 2)"
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "task": (
        str | None,
        typer.Option("--task", help=_TASK_HELP, metavar="<memory|runtime>", autocompletion=lambda: shared.TASKS),
    ),
    "devices": (int | None, typer.Option("--devices", "-d", min=2, max=8, help=_DEVICES_HELP)),
    "precision": (_OptionalPrecision, typer.Option("--precision", help="Of matrix products. (default: float32)")),
}


def network_command(method: str) -> Callable[..., None]:
    """Return the subcommand that trains a method's network."""
    trainable = trainable_of(method)
    help = f"Graphs to train on, and folders of them. (default: {trainable.drawn})"
    graphs = made_option("graphs", list[str] | None, None, typer.Argument(metavar="GRAPHS", help=help))
    own = [made_option(name, _OPTIONS[name][0], None, _OPTIONS[name][1]) for name in trainable.options]

    def run(
        output: str | None = shared.output_option(_FOLDER_HELP),
        validation: list[str] | None = typer.Option(
            None, help="Other graphs, or a folder, to validate on; repeatable."
        ),
        config: str | None = typer.Option(None, help="YAML file of settings. (default: the shipped weights', if any)"),
        recipe: str | None = typer.Option(
            None, help="Runs one after the other: a file, or shipped weights by name. (default: one run)"
        ),
        setting: list[str] | None = typer.Option(
            None, "--set", metavar="NAME=VALUE", help="A setting, as phases.0.epochs=2; repeatable."
        ),
        start: str | None = typer.Option(None, help="Weights to start from: a file, or shipped ones by name."),
        seed: int | None = typer.Option(None, min=0, help="Seed of every random choice. (default: the file's, or 0)"),
        device: _OptionalDevice = typer.Option(None, help="Where the network is trained. (default: cpu)"),
        resume: bool = typer.Option(False, "--resume", help="Go on with the run in the folder."),
        jobs: shared.ClusterJobsOption = None,
        backend: shared.BackendOption = "loky",
        address: shared.AddressOption = None,
        json: shared.JsonFlag = False,
        quiet: shared.QuietFlag = False,
        **given: Any,
    ) -> None:
        from ...core.api.graphs import graphs_of
        from ...policies.training.run_folder import CHECKPOINT, has_tensorboard

        out = Output(quiet)
        named = {"start": start, "seed": seed, "device": device}
        folder = folder_of(output, method, resume, out)
        if not has_tensorboard():
            out.note("without curves for TensorBoard, which is not installed; pip install 'schedopt[train]'")
        of_recipe = [] if recipe is None else ["--recipe", recipe, *(["--device", device] if device else [])]
        checkpoints = CHECKPOINT if recipe is None else f"*/{CHECKPOINT}"
        here = resume_command(method, folder, given["graphs"] or [], validation or [], of_recipe)
        again = here if jobs is None or jobs < 2 else f"{here} --jobs {jobs}"
        if address is not None:
            again += f" --backend {backend} --address {shlex.quote(address)}"
        stopped = partial(leave, partial(resume_hint, folder, again, checkpoints))
        read = graphs_of(given["graphs"], out.note) if given["graphs"] else []
        others = graphs_of(validation, out.note) if validation else []
        with shared.workers_of(backend, address, jobs, partial(resume_hint, folder, here, checkpoints)) as workers:
            if recipe is not None:
                said = {"config": config, "set": setting, "start": start, "seed": seed}
                said |= {name: given[name] for name in trainable.options}
                if twice := next((name for name, value in said.items() if value is not None), None):
                    raise UsageError(
                        f"--{twice} cannot be combined with --recipe, which sets it; change a copy of the recipe's file"
                    )
                for work in chained_works(recipe, trainable, Work(folder, device, read, others, workers, resume), out):
                    trainer = _trained(trainable, work, out, stopped)
            else:
                changes = trainable.changes(setting or [], given)
                default = partial(trainable.trainer.recipe, method, given.get("task"), given.get("devices"))
                settings = chosen_settings(folder, resume, trainable.trainer.settings, config, default, named, changes)
                trainable.check(setting or [], settings.start)
                training, validated = split(read, others, settings.seed, out)
                work = Work(folder, settings, training, validated, workers, resume)
                trainer = _trained(trainable, work, out, stopped)
        report(method, trainer, json)

    return with_options(run, {"output": [graphs, *own]}, f"{METHODS[method].training}\n\n{trainable.help}")


def _trained(trainable: Trainable, work: Work, out: Output, stopped: Callable[[], NoReturn]) -> PhasedTrainer[Any, Any]:
    """Run a trainer to the end, with a live line on a terminal and a line per epoch, or call what ends the command."""
    from ..progress import compiling, interruptible, progress_bar

    with interruptible(out, "a checkpoint") as interrupt:
        screen = Screen(partial(compiling, out), partial(progress_bar, out))
        trainer: PhasedTrainer[Any, Any] | None = trainable.trainer.prepared(work, screen, interrupt.is_set)
        if trainer is None:
            stopped()
        if trainer.is_finished:
            out.note(f"the run in {trainer.folder} is finished; nothing is left to do")
            return trainer
        with compiling(out):
            trainer.compile()
        phases = len(trainer.parameters.phases)
        with progress_bar(out, "starting", 1.0) as bar:
            is_done = trainer.run(
                lambda progress: bar(done=progress.share_done, what=step_line(progress, phases, trainer)),
                interrupt.is_set,
                lambda line: out.say(epoch_line(line, phases, trainer)),
                lambda what, done, total: bar(0, what=validation_line(trainer, what, done, total)),
            )
        if not is_done:
            stopped()
    return trainer
