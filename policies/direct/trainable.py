"""What `schedopt train` must know of the network that schedules in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ..training.trainable import Screen, Trainable, Work

if TYPE_CHECKING:
    from ..training.phases import PhasedTrainer

_PLANS = "plans.jsonl"


class _Schedules(Trainable):
    help = (
        "Synthetic graphs are drawn once and taken again and again, each with devices and links of its own; so are "
        "GRAPHS. A tenth of those is set aside to validate on, unless --validation names others; of fewer than ten, "
        "none is. The plans to imitate are searched once and kept in the folder.\n\n"
        "Each epoch ends with a validation: how much better one pass and the best of 16 are than the rule that the "
        "network corrects. The weights with the largest improvement are kept. Settings are those of --config, "
        "or else of the shipped weights; options win over both, and config.yaml in the folder shows them all. Ctrl-C "
        "leaves a checkpoint; the same command with --resume goes on as if nothing had happened."
    )
    drawn = "synthetic ones"
    options = ("task",)
    measures: ClassVar[dict[str, str]] = {
        "ranking_loss": "ranking loss {:.4f}",
        "sampled_gap_percent": "sampled gap {:.2f}%",
    }
    columns: ClassVar[dict[str, str]] = {
        "greedy_improvement_percent": "greedy",
        "sample_improvement_percent": "best of 16 samples",
    }
    word, kinds = "improvement", "greedy/sample"

    def recipe(self, options: dict[str, Any]) -> Any:
        from .training_settings import recipe

        return recipe(options["task"] or "runtime")

    def changes(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"network.task": options["task"]}

    def trainer(self, work: Work, screen: Screen, must_stop: Callable[[], bool]) -> PhasedTrainer[Any, Any] | None:
        from pathlib import Path

        from ...core.search.method_spec import parse_method
        from ...core.search.warm_up import warm_up
        from ..training.run_folder import check_ready
        from .cases import make_cases, taught
        from .training import Trainer, wants_orders

        settings = work.settings
        check_ready(work, self.kind)
        cases: Any = make_cases(settings, 0, settings.training_graphs, work.graphs, work.jobs)
        if wants_orders(settings):
            with screen.compiling():
                warm_up(cases[0].problem, parse_method(settings.teacher))
            with screen.counting("plans to imitate", len(cases)) as bar:
                on_plan = lambda done: bar(done=done)  # noqa: E731
                cases = taught(cases, Path(work.folder) / _PLANS, settings, work.jobs, on_plan, must_stop)
            if cases is None:
                return None
        return Trainer(work.folder, settings, cases, graphs=work.graphs, validation=work.validation, jobs=work.jobs)

    def title(self, settings: Any) -> str:
        return "improvement over the rule that the network corrects, in percent"

    def use(self, network: Any) -> str:
        return f"--task {network.parameters_.task}"


trainable = _Schedules
