"""Remarks of `schedopt train` on a network: its validations, and the use of its weights."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from ..console import show, write, write_json

if TYPE_CHECKING:
    from rich.table import Table

    from ...policies.training.phases import PhasedTrainer
    from ...policies.training.trainable import Trainable


def report(trainable: Trainable, trainer: PhasedTrainer[Any, Any], as_json: bool) -> None:
    """Print how the validations of a finished run went, and what to do with the weights; or one JSON document."""
    from ...policies.training.run_folder import WEIGHTS, curve_of

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
    write(f"schedopt solve GRAPH {use} --weights {quote(str(weights))}")


def _table(lines: dict[str, dict[str, float]], columns: dict[str, str]) -> Table:
    from rich.table import Table

    table = Table("validation", "step", *columns.values())
    for which, line in lines.items():
        table.add_row(which, f"{line['step']:,}", *(f"{line[name]:.2f}" for name in columns))
    return table
