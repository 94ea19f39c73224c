"""What the subcommands of `train` that train a network share: settings, graphs, progress, and how a run is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    from threading import Event

    from rich.table import Table

    from ....core.graph import CostGraph
    from ....policies.training.phases import PhasedTrainer, Progress
    from ....policies.training.run_folder import RunKind
    from ...console import Talk

Settings = TypeVar("Settings")
OnStep = Callable[["Progress[Any]"], None]
OnEpoch = Callable[[dict[str, float]], None]
_FEW = 10


class Wording(NamedTuple):
    """How a method's training is put into words.

    Parameters
    ----------
    measured
        Writes what was measured in the last steps, a text each.
    validated
        Writes a validation, as progress has it.
    line
        Writes the validation in a line of the curve.
    """

    measured: Callable[[dict[str, float]], list[str]]
    validated: Callable[[dict[str, float]], str]
    line: Callable[[dict[str, float]], str]


def chosen_settings(
    output: str,
    resume: bool,
    kind: RunKind[Any, Any],
    config: str | None,
    recipe: Callable[[], Any],
    named: dict[str, Any],
    settings: list[str] | None,
) -> Any:
    """Return the settings of the file, or else of the run to go on with, or of the recipe; changed by options.

    Parameters
    ----------
    output
        Folder of the run.
    resume
        Whether to go on with the run there.
    kind
        Of the run.
    config
        A file of settings.
    recipe
        Gives the settings without a file.
    named
        Settings with an option of their own; None if not given.
    settings
        Others, as `phases.0.epochs=2`.

    Raises
    ------
    UsageError
        If there is a run to go on with and it is not to be, or the other way round, or for a wrong setting.
    """
    from ....core.errors import UsageError
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
    graphs: list[CostGraph], validation: list[CostGraph], seed: int, talk: Talk
) -> tuple[list[CostGraph], list[CostGraph]]:
    """Return the graphs to train on and those to validate on."""
    import numpy as np

    from ....core.comparison.resume import graph_hash
    from ....core.errors import UsageError

    if validation or not graphs:
        trained_on = {graph_hash(graph) for graph in graphs}
        for graph in validation:
            if graph_hash(graph) in trained_on:
                raise UsageError(
                    f"the validation graph {graph.name} is also trained on; leave it out of one of the two"
                )
        return graphs, validation
    if len(graphs) < _FEW:
        talk.note("so few graphs are validated on, too; name others by --validation")
        return graphs, graphs
    aside = set(np.random.default_rng(seed).permutation(len(graphs))[: len(graphs) // _FEW].tolist())
    talk.note(f"{len(aside)} of {len(graphs)} graphs are set aside to validate on; name others by --validation")
    rest = [graph for at, graph in enumerate(graphs) if at not in aside]
    return rest, [graph for at, graph in enumerate(graphs) if at in aside]


def resume_command(method: str, output: str, graphs: list[str], validation: list[str], jobs: int) -> str:
    """Return the command that goes on with a run."""
    import shlex

    others = [word for path in validation for word in ("--validation", path)]
    words = ["schedopt", "train", method, *graphs, *others, "--output", output, "--resume"]
    return shlex.join(words + ["--jobs", str(jobs)] * (jobs > 1))


def leave(output: str, again: str) -> NoReturn:
    """End an interrupted run, saying how to go on: with the command `again`, once there is a checkpoint."""
    from ....policies.training.run_folder import has_checkpoint

    how = again if has_checkpoint(output) else "the same command"
    typer.echo(f"interrupted: what is done is kept in {output}; go on with: {how}", err=True)
    raise typer.Exit(130)


def train(trainer: PhasedTrainer[Any, Any], talk: Talk, interrupt: Event, wording: Wording, again: str) -> None:
    """Run a trainer to the end with its progress on the screen, or leave when interrupted."""
    from ...progress import compiling

    if trainer.is_finished:
        talk.note(f"the run in {trainer.folder} is finished; nothing is left to do")
        return
    with compiling(talk):
        trainer.compile()
    with _shown(talk, len(trainer.parameters.phases), wording) as (on_step, on_epoch):
        is_finished = trainer.run(on_step, interrupt.is_set, on_epoch)
    if not is_finished:
        leave(str(trainer.folder), again)


@contextmanager
def counted(talk: Talk, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal; yields what to call with the number done."""
    if not talk.shows_progress:
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=talk.console, transient=True, speed_estimate_period=600) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda done: bars.update(bar, completed=done)


@contextmanager
def _shown(talk: Talk, phases: int, wording: Wording) -> Iterator[tuple[OnStep, OnEpoch]]:
    """Show a live line on a terminal, a line per epoch elsewhere; yields what to call after steps and epochs."""

    def on_epoch(line: dict[str, float]) -> None:
        if not talk.quiet:
            typer.echo(_epoch_line(line, phases, wording), err=True)

    if not talk.shows_progress:
        yield lambda progress: None, on_epoch
        return
    from rich.progress import Progress as Bars
    from rich.progress import TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    where = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    columns = (TaskProgressColumn(), TimeRemainingColumn(), where)  # the last is cut where the terminal is narrow
    with Bars(*columns, console=talk.console, transient=True, expand=True, speed_estimate_period=600) as bars:
        bar = bars.add_task("validating", total=1.0)
        yield (
            lambda progress: bars.update(
                bar, completed=progress.share_done, description=_step_line(progress, phases, wording)
            ),
            lambda line: bars.console.print(_epoch_line(line, phases, wording), markup=False),
        )


def _step_line(progress: Progress[Any], phases: int, wording: Wording) -> str:
    """Write where a run is, on a line."""
    place, phase = progress.place, progress.phase
    parts = [
        f"phase {place.phase + 1}/{phases}",
        f"epoch {place.epoch + 1}/{phase.epochs}",
        f"step {place.batch}/{progress.batches}",
        *(["validating"] if place.batch == progress.batches else []),
        wording.validated(progress.validation),
        *wording.measured(progress.measured),
    ]
    return " ".join(parts)


def _epoch_line(line: dict[str, float], phases: int, wording: Wording) -> str:
    """Write a line of the curve for people."""
    where = f"phase {line['phase']}/{phases} epoch {line['epoch']}" if line["epoch"] else "before training"
    return ", ".join([f"{where}: {wording.line(line)}", *wording.measured(line), f"{line['seconds']:.0f} s"])


def report(
    trainer: PhasedTrainer[Any, Any],
    score: Callable[[dict[str, float]], float],
    columns: dict[str, str],
    title: str,
    use: str,
    as_json: bool,
) -> None:
    """Print how the validations went, and what to do with the weights.

    Parameters
    ----------
    trainer
        Of a finished run.
    score
        Of a line of the curve; the smallest is the best.
    columns
        What of a line is shown, and its heading.
    title
        What the numbers are.
    use
        The options of `schedopt solve` that the weights are for.
    as_json
        Whether to print one JSON document instead.
    """
    from json import dumps
    from shlex import quote

    from ....policies.training.run_folder import WEIGHTS, curve_of
    from ...console import show, write

    curve = curve_of(trainer.folder)
    weights = trainer.folder / WEIGHTS
    lines = {"first": curve[0], "best": min(curve, key=score), "last": curve[-1]}
    if as_json:
        facts = {"weights": str(weights), "steps": trainer.place.step, "seconds": round(trainer.place.seconds, 1)}
        kept = {
            which: {name: line[name] for name in ("phase", "epoch", "step", *columns)} for which, line in lines.items()
        }
        write(dumps({**facts, "validation": kept}, indent=1))
        return
    show(_table(lines, columns), f"{trainer.place.step:,} steps in {trainer.place.seconds:,.0f} s: {title}")
    write("The best weights are kept. To use them:")
    write(f"schedopt solve GRAPH {use} --weights {quote(str(weights))}")


def _table(lines: dict[str, dict[str, float]], columns: dict[str, str]) -> Table:
    from rich.table import Table

    table = Table("validation", "step", *columns.values())
    for which, line in lines.items():
        table.add_row(which, f"{line['step']:,}", *(f"{line[name]:.2f}" for name in columns))
    return table
