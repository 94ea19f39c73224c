"""Runs of training around the trainer: settings, graphs, recipes, lines of progress, how a run is left."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ....core.base.errors import UsageError
from ...console import Output, complain, show, write, write_json

if TYPE_CHECKING:
    from rich.table import Table

    from ....core.graph.graph import CostGraph
    from ....policies.training.phases import PhasedTrainer, Progress
    from ....policies.training.settings import TrainingSettings
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
    kind: type[TrainingSettings],
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
    from ....policies.training.run_folder import WEIGHTS, has_checkpoint
    from ....policies.training.settings import read_chain

    runs = read_chain(recipe, trainable.method, trainable.trainer.settings)
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


def step_line(progress: Progress[Any], phases: int, trainer: PhasedTrainer[Any, Any]) -> str:
    """Write where a run is, on a line."""
    place, phase = progress.place, progress.phase
    parts = [
        f"phase {place.phase + 1}/{phases}",
        f"epoch {place.epoch + 1}/{phase.epochs}",
        f"step {place.batch}/{progress.phase.steps}",
        *_left(progress.seconds_left),
        f"{trainer.word} {trainer.said(progress.validation)}",
        *trainer.words(progress.measured),
    ]
    return ", ".join([" ".join(parts[:3]), *parts[3:]])


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
    """Print how the validations of a finished run went, and what to do with the weights; or one JSON document."""
    from ....policies.training.run_folder import WEIGHTS, curve_of

    curve, columns = curve_of(trainer.folder), trainer.columns
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
    title = trainer.title.format(trainer.parameters)
    show(_table(lines, columns), f"{trainer.place.step:,} steps in {trainer.place.seconds:,.0f} s: {title}")
    write("The best weights are kept. To use them:")
    use = " ".join(filter(None, (f"--method {method}", trainer.use.format(trainer.network.parameters_))))
    write(f"schedopt solve GRAPH {use} --weights {shlex.quote(str(weights))}")


def _table(lines: dict[str, dict[str, float]], columns: dict[str, str]) -> Table:
    from rich.table import Table

    table = Table("validation", "step", *columns.values())
    for which, line in lines.items():
        table.add_row(which, f"{line['step']:,}", *(f"{line[name]:.2f}" for name in columns))
    return table
