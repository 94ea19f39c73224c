"""What `schedopt train` must know of the networks that choose what BRKGA draws from: REGAL's and GAS's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ..training.trainable import Screen, Trainable, Work

if TYPE_CHECKING:
    from ..training.phases import PhasedTrainer

_ENCODERS = {"regal": "gnn", "gas": "lstm"}


class _ChoosesDistributions(Trainable):
    help = (
        "Synthetic graphs (A.1.4) are drawn when they are first needed, and taken again and again; so are GRAPHS. A "
        "tenth of those is set aside to validate on, unless --validation names others; of fewer than ten, none is. "
        "What plain BRKGA finds on a graph is searched once and kept in the folder.\n\n"
        "Each epoch ends with a validation: how much better BRKGA is with the network's choices than without, at the "
        "same evaluations. The weights that improve most are kept; the setting keep says by which of the network's "
        "actions that is measured. Settings are those of --config, or else of the shipped weights, or else the "
        "paper's; options win over all, and config.yaml in the folder shows them. Ctrl-C "
        "leaves a checkpoint; the same command with --resume goes on as if nothing had happened."
    )
    drawn = "synthetic ones"
    options = ("task", "devices")
    measures: ClassVar[dict[str, str]] = {
        "reward": "reward {:.4f}",
        "imitated_log_probability": "imitated log-probability {:.3f}",
    }
    columns: ClassVar[dict[str, str]] = {
        "sample_improvement_percent": "drawn",
        "sample_matched_percent": "no worse",
        "most_likely_improvement_percent": "likely",
        "most_likely_matched_percent": "no worse",
        "expected_improvement_percent": "expected",
        "expected_matched_percent": "no worse",
    }
    word, kinds = "improvement", "by drawn/likely/expected actions"

    def recipe(self, options: dict[str, Any]) -> Any:
        from .training_settings import recipe

        return recipe(self.method, options["task"] or "memory", options["devices"] or 2)

    def changes(self, options: dict[str, Any]) -> dict[str, Any]:
        network = {"task": options["task"], "devices": options["devices"], "encoder": _ENCODERS[self.method]}
        return {f"network.{name}": value for name, value in network.items()}

    def trainer(self, work: Work, screen: Screen, must_stop: Callable[[], bool]) -> PhasedTrainer[Any, Any]:
        from .training import Trainer

        return Trainer(work.folder, work.settings, graphs=work.graphs, validation=work.validation, jobs=work.jobs)

    def line(self, line: dict[str, float]) -> str:
        return f"{super().line(line)}, entropy {line['entropy']:.2f}"

    def title(self, settings: Any) -> str:
        plain = f"brkga with {settings.validation_evaluations:,} evaluations"
        return f"improvement over {plain} by three kinds of actions, and graphs no worse, in percent"

    def use(self, network: Any) -> str:
        return f"--task {network.parameters_.task} --devices {network.parameters_.devices}"


trainable = _ChoosesDistributions
