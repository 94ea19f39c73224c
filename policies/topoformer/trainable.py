"""What `schedopt train` must know of the network that orders ops: Topoformer's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ..training.trainable import Screen, Trainable, Work

if TYPE_CHECKING:
    from ...core.base.arrays import IndexArray
    from ...core.graph.graph import CostGraph
    from ..training.phases import PhasedTrainer

_ORDERS = "orders.jsonl"


class _OrdersOps(Trainable):
    help = (
        "Layered graphs are drawn afresh for each epoch; orders to imitate come from a beam search. GRAPHS are taken "
        "again and again; orders of theirs come from a search, once per graph. A tenth of them is set aside to "
        "validate on, unless --validation names others; of fewer than ten, none is.\n\n"
        "Each epoch ends with a validation: the gaps of greedy, sampled and beam orders to those of a search. The "
        "weights with the smallest gap are kept. Settings are those of --config, or else of the shipped weights; "
        "options win over both, and config.yaml in the folder shows them all. Ctrl-C leaves a checkpoint; the same "
        "command with --resume goes on as if nothing had happened."
    )
    drawn = "layered ones"
    options = ("precision",)
    measures: ClassVar[dict[str, str]] = {"loss": "loss {:.4f}", "sampled_mib": "sampled peak {:.1f} MiB"}
    columns: ClassVar[dict[str, str]] = {
        "greedy_gap_percent": "greedy",
        "sample_gap_percent": "best of 16 samples",
        "beam_gap_percent": "beam of 16",
    }
    word, kinds, number = "gap", "greedy/sample/beam", "{:.2f}"

    def recipe(self, options: dict[str, Any]) -> Any:
        from .training_settings import shipped_recipe

        return shipped_recipe()

    def changes(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"precision": options["precision"]}

    def trainer(self, work: Work, screen: Screen, must_stop: Callable[[], bool]) -> PhasedTrainer[Any, Any] | None:
        from ..training.run_folder import check_ready
        from .training import Trainer, check_possible
        from .training_settings import wants_orders

        check_possible(work.graphs + work.validation)
        check_ready(work, self.kind)
        imitated = work.graphs if any(map(wants_orders, work.settings.phases)) else []
        orders = _searched(imitated, "to imitate", work, screen, must_stop)
        if orders is None:
            return None
        validation_orders = _searched(work.validation, "to validate against", work, screen, must_stop)
        if validation_orders is None:
            return None
        return Trainer(
            work.folder,
            work.settings,
            graphs=work.graphs,
            orders=orders,
            validation=work.validation,
            validation_orders=validation_orders,
            jobs=work.jobs,
        )

    def title(self, settings: Any) -> str:
        return "gaps to the search, in percent"

    def use(self, network: Any) -> str:
        return ""


trainable = _OrdersOps


def _searched(
    graphs: list[CostGraph], purpose: str, work: Work, screen: Screen, must_stop: Callable[[], bool]
) -> list[IndexArray] | None:
    """Return an order of low peak for each graph: from the folder, or else by a search that leaves it there."""
    from pathlib import Path

    from ...core.problem.problem import Problem
    from ...core.search.method_spec import parse_method
    from ...core.search.warm_up import warm_up
    from .training_graphs import searched_orders

    if not graphs:
        return []
    with screen.compiling():
        warm_up(Problem(graphs[0]), parse_method("order-search"))
    with screen.counting(f"orders {purpose}", len(graphs)) as bar:
        return searched_orders(
            graphs,
            Path(work.folder) / _ORDERS,
            evaluations=work.settings.search_evaluations,
            seed=work.settings.seed,
            jobs=work.jobs,
            on_order=lambda done: bar(done=done),
            must_stop=must_stop,
        )
