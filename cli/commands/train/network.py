"""`schedopt train METHOD` for a method with a network: on drawn or on given graphs, gone on with after Ctrl-C."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import typer

from ....core.base.errors import UsageError
from ....core.search.registry import METHODS
from ...console import Output, complain, show, write, write_json
from ...made_options import made_option, with_options
from ...options import TASKS, AddressOption, BackendOption, ClusterJobsOption, JsonFlag, QuietFlag, workers_of

if TYPE_CHECKING:
    from rich.table import Table

    from ....core.graph.graph import CostGraph
    from ....policies.training.phases import PhasedTrainer, Progress
    from ....policies.training.run_folder import RunKind
    from ....policies.training.trainable import Trainable, Work


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
    kind: RunKind[Any, Any],
    config: str | None,
    recipe: Callable[[], Any],
    named: dict[str, Any],
    settings: list[str] | None,
) -> Any:
    """Return the settings of the file, or else of the run to go on with, or of the recipe; changed by options."""
    from ....core.search.settings import from_plain, plain, read_config, with_settings
    from ....policies.training.run_folder import has_checkpoint, read_checkpoint

    if resume and not has_checkpoint(output):
        raise UsageError(f"{output}: holds no checkpoint to go on with; leave out --resume to start a run there")
    if has_checkpoint(output) and not resume:
        raise UsageError(f"{output}: holds a run already; give --resume to go on with it, or name another folder")
    if config is not None:
        base = read_config(config, kind.settings)
    else:
        base = read_checkpoint(output, kind).parameters if resume else recipe()
    values = with_settings(plain(base), settings or [])
    values |= {name: value for name, value in named.items() if value is not None}
    return from_plain(kind.settings, values, "settings")


def split(
    graphs: list[CostGraph], validation: list[CostGraph], seed: int, out: Output
) -> tuple[list[CostGraph], list[CostGraph]]:
    """Return the graphs to train on and those to validate on."""
    import numpy as np

    from ....core.files.costgraph import graph_hash

    if validation or not graphs:
        trained_on = {graph_hash(graph) for graph in graphs}
        for graph in validation:
            if graph_hash(graph) in trained_on:
                raise UsageError(
                    f"the validation graph {graph.name} is also trained on; leave it out of one of the two"
                )
        return graphs, validation
    if len(graphs) < _FEW:
        out.note("so few graphs are validated on, too; name others by --validation")
        return graphs, graphs
    aside = set(np.random.default_rng(seed).permutation(len(graphs))[: len(graphs) // _FEW].tolist())
    out.note(f"{len(aside)} of {len(graphs)} graphs are set aside to validate on; name others by --validation")
    rest = [graph for at, graph in enumerate(graphs) if at not in aside]
    return rest, [graph for at, graph in enumerate(graphs) if at in aside]


def check_alone(options: dict[str, Any]) -> None:
    """Refuse options that say what a recipe says."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"--{name} does not go with --recipe, which says that; change a copy of the recipe's file")


def chained_works(recipe: str, trainable: Trainable, work: Work, out: Output) -> Iterator[Work]:
    """Yield the runs of a recipe, each once the one before it is finished; a finished one is not done again."""
    from ....policies.training.chains import read_chain
    from ....policies.training.run_folder import WEIGHTS, has_checkpoint

    runs = read_chain(recipe, trainable.method, trainable.kind.settings)
    folder, start = Path(work.folder), ""
    if any(run.is_given for run in runs) != bool(work.graphs):
        raise UsageError(f"{recipe}: needs {'' if not work.graphs else 'no '}GRAPHS to train on")
    if has_checkpoint(folder / runs[0].name) != work.resume:
        said = "leave out --resume to start" if work.resume else "give --resume to go on, or name another folder"
        raise UsageError(f"{folder}: holds {'no' if work.resume else 'the'} runs of this recipe; {said}")
    for number, run in enumerate(runs, start=1):
        own = folder / run.name
        out.note(f"run {number} of {len(runs)}, {run.name}, is in {own}")
        settings = replace(run.settings, start=start or run.settings.start, device=work.settings or "cpu")
        graphs = split(work.graphs, work.validation, settings.seed, out) if run.is_given else ([], [])
        yield replace(
            work, folder=str(own), settings=settings, graphs=graphs[0], validation=graphs[1], resume=has_checkpoint(own)
        )
        start = str(own / WEIGHTS)


def resume_command(
    method: str, output: str, graphs: list[str], validation: list[str], recipe: str | None = None
) -> str:
    """Return the command that goes on with a run, or with those of a recipe, on a worker here."""
    others = [word for path in validation for word in ("--validation", path)]
    words = ["schedopt", "train", method, *graphs, *others, *(["--recipe", recipe] if recipe else [])]
    return shlex.join([*words, "--output", output, "--resume"])


def workers_words(backend: str, address: str | None, jobs: int | None) -> list[str]:
    """Return the options of a command that say where its workers are."""
    words = ["--jobs", str(jobs)] if jobs is not None and jobs > 1 else []
    return words if address is None else [*words, "--backend", backend, "--address", shlex.quote(address)]


def leave(output: str, again: str) -> NoReturn:
    """End an interrupted run, saying how to go on."""
    complain(f"interrupted: {how_to_go_on(output, again)}")
    raise typer.Exit(130)


def how_to_go_on(output: str, again: str) -> str:
    """Say how a run that was left goes on: with the command `again`, once there is a checkpoint."""
    from ....policies.training.run_folder import has_checkpoint

    how = again if has_checkpoint(output) else "the same command"
    return f"what is done is kept in {output}; go on with: {how}"


def step_line(progress: Progress[Any], phases: int, trainable: Trainable) -> str:
    """Write where a run is, on a line."""
    place, phase = progress.place, progress.phase
    parts = [
        f"phase {place.phase + 1}/{phases}",
        f"epoch {place.epoch + 1}/{phase.epochs}",
        f"step {place.batch}/{progress.phase.steps}",
        *_left(progress.seconds_left),
        trainable.validated(progress.validation),
        *trainable.measured(progress.measured),
    ]
    return ", ".join([" ".join(parts[:3]), *parts[3:]])


def validation_line(trainer: PhasedTrainer[Any, Any], what: str, done: int, total: int) -> str:
    """Write where a validation is, on a line."""
    place = trainer.place
    where = f"phase {place.phase + 1} epoch {place.epoch + 1}" if place.step else "before training"
    return ", ".join([f"{where}: {done} of {total} validation graphs {what}", *_left(trainer.seconds_left)])


def epoch_line(line: dict[str, float], phases: int, trainable: Trainable, left: float) -> str:
    """Write a line of the curve for people, and how many seconds are left."""
    where = f"phase {line['phase']}/{phases} epoch {line['epoch']}" if line["epoch"] else "before training"
    parts = [f"{where}: {trainable.line(line)}", *trainable.measured(line), f"{line['seconds']:.0f} s"]
    return ", ".join([*parts, *_left(left)])


def _left(seconds: float) -> list[str]:
    """Write about how long a run still takes; nothing where that is not known, or nothing is left."""
    if not 0 < seconds < math.inf:
        return []
    text = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    return [f"about {text if seconds < 6000 else f'{seconds / 3600:.1f} h'} left"]


def report(trainable: Trainable, trainer: PhasedTrainer[Any, Any], as_json: bool) -> None:
    """Print how the validations of a finished run went, and what to do with the weights; or one JSON document."""
    from ....policies.training.run_folder import WEIGHTS, curve_of

    curve, columns = curve_of(trainer.folder), trainable.columns
    weights = trainer.folder / WEIGHTS
    best = min(curve, key=trainer.score)
    lines = {"first": curve[0], "best": best, "last": curve[-1]}
    if as_json:
        facts = {"weights": str(weights), "steps": trainer.place.step, "seconds": round(trainer.place.seconds, 1)}
        kept = {
            which: {name: line[name] for name in ("phase", "epoch", "step", *columns)} for which, line in lines.items()
        }
        write_json({**facts, "validation": kept}, indent=1)
        return
    title = trainable.title(trainer.parameters)
    show(_table(lines, columns), f"{trainer.place.step:,} steps in {trainer.place.seconds:,.0f} s: {title}")
    write("The best weights are kept. To use them:")
    use = " ".join(filter(None, (f"--method {trainable.method}", trainable.use(trainer.network))))
    write(f"schedopt solve GRAPH {use} --weights {shlex.quote(str(weights))}")


def _table(lines: dict[str, dict[str, float]], columns: dict[str, str]) -> Table:
    from rich.table import Table

    table = Table("validation", "step", *columns.values())
    for which, line in lines.items():
        table.add_row(which, f"{line['step']:,}", *(f"{line[name]:.2f}" for name in columns))
    return table


_OptionalPrecision = Literal["float32", "bfloat16"] | None
_OptionalDevice = Literal["cpu", "cuda"] | None
_FOLDER_HELP = "Folder of the run: weights, checkpoint, curves. (default: a new one in runs/; with --resume the last)"
_TASK_HELP = "What to minimise: memory (peak) or runtime (makespan). (default: the settings', or memory)"
_DEVICES_HELP = "Devices, 2 to 8. (default: the settings', or 2)"
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "task": (
        str | None,
        typer.Option("--task", help=_TASK_HELP, metavar="<memory|runtime>", autocompletion=lambda: TASKS),
    ),
    "devices": (int | None, typer.Option("--devices", "-d", min=2, max=8, help=_DEVICES_HELP)),
    "precision": (_OptionalPrecision, typer.Option("--precision", help="Of matrix products. (default: float32)")),
}


def network_command(method: str) -> Callable[..., None]:
    """Return the subcommand that trains a method's network."""
    trainable: Trainable = import_module(METHODS[method].trainer).trainable(method)
    help = f"Graphs to train on, and folders of them. (default: {trainable.drawn})"
    graphs = made_option("graphs", list[str] | None, None, typer.Argument(metavar="GRAPHS", help=help))
    own = [made_option(name, _OPTIONS[name][0], None, _OPTIONS[name][1]) for name in trainable.options]

    def run(
        output: str | None = typer.Option(None, "--output", "-o", help=_FOLDER_HELP),
        validation: list[str] | None = typer.Option(
            None, help="Other graphs, or a folder, to validate on; repeatable."
        ),
        config: str | None = typer.Option(None, help="YAML file of settings. (default: those of the shipped weights)"),
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
        jobs: ClusterJobsOption = None,
        backend: BackendOption = "loky",
        address: AddressOption = None,
        json: JsonFlag = False,
        quiet: QuietFlag = False,
        **given: Any,
    ) -> None:
        from ....core.api.graphs import graphs_of
        from ....policies.training.run_folder import has_tensorboard
        from ....policies.training.trainable import Work

        out = Output(quiet)
        named = {"start": start, "seed": seed, "device": device}
        folder = folder_of(output, method, resume, out)
        if not has_tensorboard():
            out.note("without curves for TensorBoard, which is not installed; pip install 'schedopt[train]'")
        here = resume_command(method, folder, given["graphs"] or [], validation or [], recipe)
        again = " ".join([here, *workers_words(backend, address, jobs)])
        read = graphs_of(given["graphs"], out.note) if given["graphs"] else []
        others = graphs_of(validation, out.note) if validation else []
        with workers_of(backend, address, jobs, lambda: how_to_go_on(folder, here)) as workers:
            if recipe is not None:
                options = {name: given[name] for name in trainable.options}
                check_alone({"config": config, "set": setting, "start": start, "seed": seed, **options})
                for work in chained_works(recipe, trainable, Work(folder, device, read, others, workers, resume), out):
                    trainer = _trained(trainable, work, out, again)
            else:
                changes = [f"{name}={value}" for name, value in trainable.changes(given).items() if value is not None]
                changes += setting or []
                default = partial(trainable.recipe, given)
                settings = chosen_settings(folder, resume, trainable.kind, config, default, named, changes)
                training, validated = split(read, others, settings.seed, out)
                work = Work(folder, settings, training, validated, workers, resume)
                trainer = _trained(trainable, work, out, again)
        report(trainable, trainer, json)

    return with_options(run, {"output": [graphs, *own]}, f"{METHODS[method].training}\n\n{trainable.help}")


def _trained(trainable: Trainable, work: Work, out: Output, again: str) -> PhasedTrainer[Any, Any]:
    """Run a trainer to the end, with a live line on a terminal and a line per epoch, or leave when interrupted."""
    from ....policies.training.trainable import Screen
    from ...progress import compiling, interruptible, progress_bar

    with interruptible(out, "a checkpoint") as interrupt:
        screen = Screen(partial(compiling, out), partial(progress_bar, out))
        trainer = trainable.trainer(work, screen, interrupt.is_set)
        if trainer is None:
            leave(work.folder, again)
        if trainer.is_finished:
            out.note(f"the run in {trainer.folder} is finished; nothing is left to do")
            return trainer
        with compiling(out):
            trainer.compile()
        phases = len(trainer.parameters.phases)
        with progress_bar(out, "starting", 1.0) as bar:
            is_done = trainer.run(
                lambda progress: bar(done=progress.share_done, what=step_line(progress, phases, trainable)),
                interrupt.is_set,
                lambda line: out.say(epoch_line(line, phases, trainable, trainer.seconds_left)),
                lambda what, done, total: bar(0, what=validation_line(trainer, what, done, total)),
            )
        if not is_done:
            leave(work.folder, again)
    return trainer
