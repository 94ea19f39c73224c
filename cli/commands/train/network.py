"""`schedopt train METHOD` for a method with a network: on drawn or on given graphs, gone on with after Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import typer

from ....core.search.registry import METHODS
from ....policies.training.trainable import Screen, Trainable, Work, trainable_of
from ...backends import AddressOption, BackendOption, ClusterJobsOption, workers_of
from ...console import Output
from ...made_options import made_option, with_options
from ...options import TASKS, JsonFlag, QuietFlag

if TYPE_CHECKING:
    from ....policies.training.phases import PhasedTrainer

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
    trainable = trainable_of(method)
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
        from .runs import (
            chained_works,
            check_alone,
            chosen_settings,
            folder_of,
            how_to_go_on,
            report,
            resume_command,
            split,
            workers_words,
        )

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
                changes = [*trainable.changes(given), *(setting or [])]
                default = partial(trainable.trainer.recipe, method, given.get("task"), given.get("devices"))
                settings = chosen_settings(folder, resume, trainable.trainer.settings, config, default, named, changes)
                training, validated = split(read, others, settings.seed, out)
                work = Work(folder, settings, training, validated, workers, resume)
                trainer = _trained(trainable, work, out, again)
        report(method, trainer, json)

    return with_options(run, {"output": [graphs, *own]}, f"{METHODS[method].training}\n\n{trainable.help}")


def _trained(trainable: Trainable, work: Work, out: Output, again: str) -> PhasedTrainer[Any, Any]:
    """Run a trainer to the end, with a live line on a terminal and a line per epoch, or leave when interrupted."""
    from ...progress import compiling, interruptible, progress_bar
    from .runs import epoch_line, leave, step_line, validation_line

    with interruptible(out, "a checkpoint") as interrupt:
        screen = Screen(partial(compiling, out), partial(progress_bar, out))
        trainer: PhasedTrainer[Any, Any] | None = trainable.trainer.prepared(work, screen, interrupt.is_set)
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
                lambda progress: bar(done=progress.share_done, what=step_line(progress, phases, trainer)),
                interrupt.is_set,
                lambda line: out.say(epoch_line(line, phases, trainer)),
                lambda what, done, total: bar(0, what=validation_line(trainer, what, done, total)),
            )
        if not is_done:
            leave(work.folder, again)
    return trainer
