"""`schedopt train regal` and `schedopt train gas`: train a network that chooses what BRKGA draws from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from ...options import (
    ConfigOption,
    DeviceOption,
    JobsOption,
    JsonFlag,
    NetworkSeedOption,
    QuietFlag,
    ResumeFlag,
    RunFolderOption,
    SettingOption,
    StartOption,
    ValidationOption,
)
from .runs import Wording

if TYPE_CHECKING:
    from ....policies.regal.training_settings import TrainingParameters

_OptionalInt = Optional[int]  # noqa: UP045 - Typer reads it at run time on Python 3.10
_OptionalTexts = Optional[list[str]]  # noqa: UP045
_OptionalTask = Optional[Literal["memory", "runtime"]]  # noqa: UP045
_ENCODERS = {"regal": "gnn", "gas": "lstm"}
_COLUMNS = {
    "sample_improvement_percent": "drawn",
    "sample_matched_percent": "no worse",
    "most_likely_improvement_percent": "likely",
    "most_likely_matched_percent": "no worse",
    "expected_improvement_percent": "expected",
    "expected_matched_percent": "no worse",
}
HELP = (
    "Synthetic graphs (A.1.4) are drawn when they are first needed, and taken again and again; so are GRAPHS. A "
    "tenth of those is set aside to validate on, unless --validation names others; of fewer than ten, none is. What "
    "plain BRKGA finds on a graph is searched once and kept in the folder.\n\n"
    "Each epoch ends with a validation: how much better BRKGA is with the network's choices than without, at the same "
    "evaluations. The weights with the largest improvement are kept, by the actions that the network takes or by those "
    "of the setting keep. Settings are those of --config, or else of the shipped weights, or else the paper's; options "
    "win over all, and config.yaml in the folder shows them. Ctrl-C "
    "leaves a checkpoint; the same command with --resume goes on as if nothing had happened."
)


def regal(
    ctx: typer.Context,
    output: RunFolderOption,
    graphs: Annotated[
        _OptionalTexts,
        typer.Argument(metavar="GRAPHS...", help="Graphs to train on, and folders of them. (default: synthetic ones)"),
    ] = None,
    task: Annotated[
        _OptionalTask,
        typer.Option(
            "--task",
            help="What to minimise: memory (peak) or runtime (makespan). (default: the settings', or memory)",
        ),
    ] = None,
    devices: Annotated[
        _OptionalInt,
        typer.Option("--devices", "-d", min=2, max=8, help="Devices, 2 to 8. (default: the settings', or 2)"),
    ] = None,
    validation: ValidationOption = None,
    config: ConfigOption = None,
    setting: SettingOption = None,
    start: StartOption = None,
    seed: NetworkSeedOption = None,
    device: DeviceOption = None,
    resume: ResumeFlag = False,
    jobs: JobsOption = 1,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Train the network of the method that the subcommand names."""
    from ....policies.regal.training import KIND, Trainer, score_of
    from ....policies.regal.training_settings import recipe
    from ...console import Talk
    from ...problem import read_graphs
    from ...progress import interruptible
    from .runs import chosen_settings, report, resume_command, split, train

    talk, method = Talk(quiet), str(ctx.info_name)
    network = {"task": task, "devices": devices, "encoder": _ENCODERS[method]}
    shape = [f"network.{name}={value}" for name, value in network.items() if value is not None]
    settings: TrainingParameters = chosen_settings(
        output,
        resume,
        KIND,
        config,
        lambda: recipe(method, task or "memory", devices or 2),
        {"start": start, "seed": seed, "device": device},
        [*shape, *(setting or [])],
    )
    given = read_graphs(graphs, talk) if graphs else []
    others = read_graphs(validation, talk) if validation else []
    training, validated = split(given, others, settings.seed, talk)
    again = resume_command(method, output, graphs or [], validation or [], jobs)
    with interruptible(talk, "a checkpoint") as interrupt:
        trainer = Trainer(output, settings, graphs=training, validation=validated, jobs=jobs)
        train(trainer, talk, interrupt, _WORDING, again)
    made_for = trainer.network.parameters_
    plain = f"brkga with {settings.validation_evaluations:,} evaluations"
    report(
        trainer,
        lambda line: score_of(line, trainer.kept),
        _COLUMNS,
        f"improvement over {plain} by three kinds of actions, and graphs no worse, in percent",
        f"--method {method} --task {made_for.task} --devices {made_for.devices}",
        json,
    )


def _measurements(measured: dict[str, float]) -> list[str]:
    parts = [f"reward {measured['reward']:.4f}"] if "reward" in measured else []
    name = "imitated_log_probability"
    return parts + ([f"imitated log-probability {measured[name]:.3f}"] if name in measured else [])


def _improvements(validation: dict[str, float]) -> str:
    improvements = [name for name in _COLUMNS if name.endswith("improvement_percent")]
    return "/".join(f"{validation[name]:+.2f}" for name in improvements) + "%"


_WORDING = Wording(
    _measurements,
    lambda validation: f"improvement {_improvements(validation)}",
    lambda line: f"improvement by drawn/likely/expected actions {_improvements(line)}, entropy {line['entropy']:.2f}",
)
