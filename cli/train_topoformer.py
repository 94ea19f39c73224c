"""`schedopt train topoformer`: train a network that orders ops, on layered or on given graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Optional

import typer

from .options import JobsOption, JsonFlag, QuietFlag

if TYPE_CHECKING:
    from threading import Event

    from rich.table import Table

    from ..core.graph import CostGraph, IndexArray
    from ..policies.topoformer_training import Progress, Trainer, TrainingParameters
    from .console import Talk

_OptionalInt = Optional[int]  # noqa: UP045 - Typer reads it at run time on Python 3.10
_OptionalText = Optional[str]  # noqa: UP045
_OptionalTexts = Optional[list[str]]  # noqa: UP045
_OptionalDevice = Optional[Literal["cpu", "cuda"]]  # noqa: UP045
_OptionalPrecision = Optional[Literal["float32", "bfloat16"]]  # noqa: UP045
_ORDERS = "orders.jsonl"
_FEW = 10
_NAMES = {"greedy": "greedy", "sample": "best of 16 samples", "beam": "beam of 16"}


def topoformer(
    output: Annotated[str, typer.Option("--output", "-o", help="Folder of the run: weights, checkpoint, curves.")],
    graphs: Annotated[
        _OptionalTexts,
        typer.Argument(metavar="GRAPHS...", help="Graphs to train on, and folders of them. (default: layered ones)"),
    ] = None,
    validation: Annotated[
        _OptionalTexts,
        typer.Option("--validation", help="Other graphs, or a folder, to validate on; repeatable."),
    ] = None,
    config: Annotated[
        _OptionalText, typer.Option("--config", help="YAML file of settings. (default: those of the shipped weights)")
    ] = None,
    setting: Annotated[
        _OptionalTexts,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting, as phases.0.epochs=2; repeatable."),
    ] = None,
    start: Annotated[
        _OptionalText, typer.Option("--start", help="Weights to start from: a file, or shipped ones by name.")
    ] = None,
    seed: Annotated[
        _OptionalInt, typer.Option("--seed", min=0, help="Seed of every random choice. (default: the file's, or 0)")
    ] = None,
    device: Annotated[_OptionalDevice, typer.Option("--device", help="Where to train. (default: cpu)")] = None,
    precision: Annotated[
        _OptionalPrecision, typer.Option("--precision", help="Of matrix products. (default: float32)")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    jobs: JobsOption = 1,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Train Topoformer by REINFORCE, by imitation or both, in phases (Topoformer 4.3, C).

    Layered graphs are drawn afresh for each epoch; orders to imitate come from a beam search. GRAPHS are taken again
    and again; orders of theirs come from order-search, once per graph. A tenth of them is set aside to validate on,
    unless --validation names others; of fewer than ten, none is.

    Each epoch ends with a validation: the gaps of greedy, sampled and beam orders to those of a search. The weights
    with the smallest gap are kept. Settings are those of --config, or else of the shipped weights; options win over
    both, and config.yaml in the folder shows them all. Ctrl-C leaves a checkpoint; the same command with --resume goes
    on as if nothing had happened.
    """
    from ..policies.topoformer_training import Trainer, check_possible, check_same
    from .console import Talk
    from .problem import read_graphs
    from .progress import compiling, interruptible

    talk = Talk(quiet)
    named = {"start": start, "seed": seed, "device": device, "precision": precision}
    settings = _settings(output, config, resume, {k: v for k, v in named.items() if v is not None}, setting or [])
    given = read_graphs(graphs, talk) if graphs else []
    others = read_graphs(validation, talk) if validation else []
    check_possible(settings, given + others)
    training, validated = _split(given, others, settings.seed, talk)
    if resume:
        check_same(output, settings, training, validated)
    again = _command(output, graphs or [], validation or [], jobs)
    with interruptible(talk, "a checkpoint") as interrupt:
        run = _Run(output, settings, jobs, talk, interrupt, again)
        orders = run.orders(training, "to imitate") if run.imitates else []
        trainer = Trainer(
            output,
            settings,
            graphs=training,
            orders=orders,
            validation=validated,
            validation_orders=run.orders(validated, "to validate against"),
            jobs=jobs,
        )
        if trainer.is_finished:
            talk.note(f"the run in {output} is finished; nothing is left to do")
        else:
            with compiling(talk):
                trainer.compile()
            with _shown(talk, trainer) as (on_step, on_epoch):
                is_finished = trainer.run(on_step, interrupt.is_set, on_epoch)
            if not is_finished:
                run.leave()
    _report(trainer, json)


def _settings(
    output: str, config: str | None, resume: bool, named: dict[str, Any], settings: list[str]
) -> TrainingParameters:
    """Return the settings of the file, or else of the run to go on with, or the shipped ones; changed by options."""
    from ..core.errors import UsageError
    from ..policies.config import from_plain, plain, read_config, with_settings
    from ..policies.topoformer_training import TrainingParameters, has_checkpoint, settings_of, shipped_recipe

    if resume and not has_checkpoint(output):
        raise UsageError(f"{output}: holds no checkpoint to go on with; leave out --resume to start a run there")
    if has_checkpoint(output) and not resume:
        raise UsageError(f"{output}: holds a run already; give --resume to go on with it, or name another folder")
    if config is not None:
        base = read_config(config, TrainingParameters)
    else:
        base = settings_of(output) if resume else shipped_recipe()
    return from_plain(TrainingParameters, with_settings(plain(base), settings) | named, "settings")


def _split(
    graphs: list[CostGraph], validation: list[CostGraph], seed: int, talk: Talk
) -> tuple[list[CostGraph], list[CostGraph]]:
    """Return the graphs to train on and those to validate on."""
    import numpy as np

    from ..core.errors import UsageError
    from ..core.resume import graph_hash

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


def _command(output: str, graphs: list[str], validation: list[str], jobs: int) -> str:
    """Return the command that goes on with the run."""
    import shlex

    others = [word for path in validation for word in ("--validation", path)]
    words = ["schedopt", "train", "topoformer", *graphs, *others, "--output", output, "--resume"]
    return shlex.join(words + ["--jobs", str(jobs)] * (jobs > 1))


class _Run:
    """What comes before the training proper, and how to leave it."""

    def __init__(
        self, output: str, settings: TrainingParameters, jobs: int, talk: Talk, interrupt: Event, again: str
    ) -> None:
        self.output, self.settings, self.jobs = output, settings, jobs
        self.talk, self.interrupt, self.again = talk, interrupt, again

    @property
    def imitates(self) -> bool:
        """Whether there is a phase that imitates orders of a search."""
        from ..policies.topoformer_training import wants_orders

        return any(wants_orders(phase) for phase in self.settings.phases)

    def orders(self, graphs: list[CostGraph], purpose: str) -> list[IndexArray]:
        """Return an order of low peak for each graph: from the folder, or else by a search that leaves it there."""
        from pathlib import Path

        from ..core.errors import FormatError
        from ..core.problem import Problem
        from ..core.registry import parse_method
        from ..core.solve import warm_up
        from ..policies.searched_orders import searched_orders
        from .progress import compiling

        if not graphs:
            return []
        try:
            Path(self.output).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FormatError(f"{self.output}: cannot be made: {error.strerror or error}") from error
        with compiling(self.talk):
            warm_up(Problem(graphs[0]), parse_method("order-search"))
        with _counted(self.talk, f"orders {purpose}", len(graphs)) as on_order:
            orders = searched_orders(
                graphs,
                Path(self.output) / _ORDERS,
                evaluations=self.settings.search_evaluations,
                seed=self.settings.seed,
                jobs=self.jobs,
                on_order=on_order,
                must_stop=self.interrupt.is_set,
            )
        if orders is None:
            self.leave()
        return orders

    def leave(self) -> NoReturn:
        """End an interrupted run, saying how to go on."""
        from ..policies.topoformer_training import has_checkpoint

        how = self.again if has_checkpoint(self.output) else "the same command"
        typer.echo(f"interrupted: what is done is kept in {self.output}; go on with: {how}", err=True)
        raise typer.Exit(130)


@contextmanager
def _counted(talk: Talk, what: str, total: int) -> Iterator[Callable[[int], None]]:
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
def _shown(
    talk: Talk, trainer: Trainer
) -> Iterator[tuple[Callable[[Progress], None], Callable[[dict[str, float]], None]]]:
    """Show a live line on a terminal, a line per epoch elsewhere; yields what to call after steps and epochs."""
    phases = trainer.parameters.phases

    def on_epoch(line: dict[str, float]) -> None:
        if not talk.quiet:
            typer.echo(_epoch_line(line, len(phases)), err=True)

    if not talk.shows_progress:
        yield lambda progress: None, on_epoch
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(20), TaskProgressColumn(), TimeRemainingColumn())
    with Bars(*columns, console=talk.console, transient=True, speed_estimate_period=600) as bars:
        bar = bars.add_task("validating", total=1.0)
        yield (
            lambda progress: bars.update(
                bar, completed=progress.share_done, description=_step_line(progress, len(phases))
            ),
            lambda line: bars.console.print(_epoch_line(line, len(phases)), markup=False),
        )


def _step_line(progress: Progress, phases: int) -> str:
    """Write where a run is, on a line."""
    place, phase = progress.place, progress.phase
    parts = [
        f"phase {place.phase + 1}/{phases}",
        f"epoch {place.epoch + 1}/{phase.epochs}",
        f"step {place.batch}/{progress.batches}",
        *_measurements(progress.measured),
        f"gap {_gaps(progress.validation)}",
    ]
    if place.batch == progress.batches:
        parts.append("validating")
    return " ".join(parts)


def _epoch_line(line: dict[str, float], phases: int) -> str:
    """Write a line of the curve for people."""
    where = f"phase {line['phase']}/{phases} epoch {line['epoch']}" if line["epoch"] else "before training"
    gaps = _gaps(_gaps_of(line))
    return ", ".join([f"{where}: gap greedy/sample/beam {gaps}", *_measurements(line), f"{line['seconds']:.0f} s"])


def _measurements(measured: dict[str, float]) -> list[str]:
    parts = [f"loss {measured['loss']:.4f}"] if "loss" in measured else []
    return parts + ([f"sampled peak {measured['sampled_mib']:.1f} MiB"] if "sampled_mib" in measured else [])


def _gaps_of(line: dict[str, float]) -> dict[str, float]:
    return {name: line[f"{name}_gap_percent"] for name in _NAMES}


def _gaps(validation: dict[str, float]) -> str:
    return "/".join(f"{gap:.2f}" for gap in validation.values()) + "%"


def _report(trainer: Trainer, as_json: bool) -> None:
    """Print how the gaps went, and what to do with the weights."""
    from json import dumps
    from shlex import quote

    from ..policies.topoformer_training import WEIGHTS, curve_of, score_of
    from .console import show, write

    curve = curve_of(trainer.folder)
    weights = trainer.folder / WEIGHTS
    lines = {"first": curve[0], "best": min(curve, key=lambda line: score_of(_gaps_of(line))), "last": curve[-1]}
    if as_json:
        facts = {"weights": str(weights), "steps": trainer.place.step, "seconds": round(trainer.place.seconds, 1)}
        chosen = ("phase", "epoch", "step", *(f"{name}_gap_percent" for name in _NAMES))
        kept = {which: {name: line[name] for name in chosen} for which, line in lines.items()}
        write(dumps({**facts, "validation": kept}, indent=1))
        return
    show(
        _table(lines), f"{trainer.place.step:,} steps in {trainer.place.seconds:,.0f} s: gaps to the search, in percent"
    )
    write("The best weights are kept. To use them:")
    write(f"schedopt solve GRAPH --method topoformer --weights {quote(str(weights))}")


def _table(lines: dict[str, dict[str, float]]) -> Table:
    from rich.table import Table

    table = Table("validation", "step", *_NAMES.values())
    for which, line in lines.items():
        table.add_row(which, f"{line['step']:,}", *(f"{gap:.2f}" for gap in _gaps_of(line).values()))
    return table
