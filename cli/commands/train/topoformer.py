"""`schedopt train topoformer`: train a network that orders ops, on layered or on given graphs."""

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
    from threading import Event

    from ....core.graph import CostGraph, IndexArray
    from ....policies.topoformer.training import TrainingParameters
    from ...console import Talk

_OptionalTexts = Optional[list[str]]  # noqa: UP045 - Typer reads it at run time on Python 3.10
_OptionalPrecision = Optional[Literal["float32", "bfloat16"]]  # noqa: UP045
_ORDERS = "orders.jsonl"
_NAMES = {"greedy": "greedy", "sample": "best of 16 samples", "beam": "beam of 16"}


def topoformer(
    output: RunFolderOption,
    graphs: Annotated[
        _OptionalTexts,
        typer.Argument(metavar="GRAPHS...", help="Graphs to train on, and folders of them. (default: layered ones)"),
    ] = None,
    validation: ValidationOption = None,
    config: ConfigOption = None,
    setting: SettingOption = None,
    start: StartOption = None,
    seed: NetworkSeedOption = None,
    device: DeviceOption = None,
    precision: Annotated[
        _OptionalPrecision, typer.Option("--precision", help="Of matrix products. (default: float32)")
    ] = None,
    resume: ResumeFlag = False,
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
    from ....policies.topoformer.training import KIND, Trainer, check_possible, score_of, shipped_recipe
    from ....policies.training.run_folder import check_same
    from ...console import Talk
    from ...problem import read_graphs
    from ...progress import interruptible
    from .runs import chosen_settings, report, resume_command, split, train

    talk = Talk(quiet)
    named = {"start": start, "seed": seed, "device": device, "precision": precision}
    settings: TrainingParameters = chosen_settings(output, resume, KIND, config, shipped_recipe, named, setting)
    given = read_graphs(graphs, talk) if graphs else []
    others = read_graphs(validation, talk) if validation else []
    check_possible(settings, given + others)
    training, validated = split(given, others, settings.seed, talk)
    if resume:
        check_same(output, KIND, settings, training, validated)
    again = resume_command("topoformer", output, graphs or [], validation or [], jobs)
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
        train(trainer, talk, interrupt, _WORDING, again)
    report(
        trainer,
        lambda line: score_of(_gaps_of(line)),
        {f"{name}_gap_percent": heading for name, heading in _NAMES.items()},
        "gaps to the search, in percent",
        "--method topoformer",
        json,
    )


class _Run:
    """What comes before the training proper."""

    def __init__(
        self, output: str, settings: TrainingParameters, jobs: int, talk: Talk, interrupt: Event, again: str
    ) -> None:
        self.output, self.settings, self.jobs = output, settings, jobs
        self.talk, self.interrupt, self.again = talk, interrupt, again

    @property
    def imitates(self) -> bool:
        """Whether there is a phase that imitates orders of a search."""
        from ....policies.topoformer.training import wants_orders

        return any(wants_orders(phase) for phase in self.settings.phases)

    def orders(self, graphs: list[CostGraph], purpose: str) -> list[IndexArray]:
        """Return an order of low peak for each graph: from the folder, or else by a search that leaves it there."""
        from pathlib import Path

        from ....core.errors import FormatError
        from ....core.problem import Problem
        from ....core.search.method_spec import parse_method
        from ....core.search.warm_up import warm_up
        from ....policies.topoformer.searched_orders import searched_orders
        from ...progress import compiling
        from .runs import counted, leave

        if not graphs:
            return []
        try:
            Path(self.output).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FormatError(f"{self.output}: cannot be made: {error.strerror or error}") from error
        with compiling(self.talk):
            warm_up(Problem(graphs[0]), parse_method("order-search"))
        with counted(self.talk, f"orders {purpose}", len(graphs)) as on_order:
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
            leave(self.output, self.again)
        return orders


def _measurements(measured: dict[str, float]) -> list[str]:
    parts = [f"loss {measured['loss']:.4f}"] if "loss" in measured else []
    return parts + ([f"sampled peak {measured['sampled_mib']:.1f} MiB"] if "sampled_mib" in measured else [])


def _gaps_of(line: dict[str, float]) -> dict[str, float]:
    return {name: line[f"{name}_gap_percent"] for name in _NAMES}


def _gaps(validation: dict[str, float]) -> str:
    return "/".join(f"{gap:.2f}" for gap in validation.values()) + "%"


_WORDING = Wording(
    _measurements,
    lambda validation: f"gap {_gaps(validation)}",
    lambda line: f"gap greedy/sample/beam {_gaps(_gaps_of(line))}",
)
