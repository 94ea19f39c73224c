"""`schedopt measure`: what a program really takes, in its own order and in those of schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..options import ForceFlag, JsonFlag, QuietFlag
from ..program_options import ModelArgument, ProgramDeviceOption, ShapeOption, TrainingOption, import_options

if TYPE_CHECKING:
    from rich.table import Table

    from ...core.programs.measurement import Measurement


def measure(
    model: ModelArgument,
    schedule: Annotated[
        Optional[list[str]],  # noqa: UP045 - Typer reads it at run time on Python 3.10
        typer.Option("--schedule", "-s", metavar="SCHEDULE", help="Schedule of the imported model; repeatable."),
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Runs of each order, each in a new process.")] = 5,
    training: TrainingOption = "none",
    shape: ShapeOption = None,
    device: ProgramDeviceOption = "cpu",
    force: ForceFlag = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Run a model in program order and in schedules' orders: predicted and measured peak, time, equal results.

    Exit code 1 if the results of an order differ from those of program order.
    """
    from contextlib import nullcontext
    from json import dumps

    from rich.markup import escape

    from ...core.programs.importers import check_options, load
    from ...core.programs.runners import runner_of
    from ..console import Talk, show, write

    talk = Talk(quiet)
    options = import_options(training, shape, device)
    runner = runner_of(model)
    check_options(model, options)
    orders = ["program order", *(schedule or [])]
    doing = f"{model}: measuring its ops, then {repeats} x {', '.join(map(escape, orders))}"
    with talk.console.status(doing) if talk.shows_progress else nullcontext():
        run = load(runner.measure)
        rows: list[Measurement] = run(model, schedule or [], repeats, options, talk.note, force=force)
    if json:
        write(
            dumps({"model": model, "training": training, "repeats": repeats, "orders": [_as_json(row) for row in rows]})
        )
    else:
        runs = f"{repeats} run{'s' * (repeats > 1)} of each order, each in a new process"
        show(_table(rows), f"{model}: peak memory, {runs}")
    if not all(row.is_equal for row in rows):
        raise typer.Exit(1)


def _as_json(row: Measurement) -> dict[str, Any]:
    return {
        "order": row.order,
        "predicted_peak": row.predicted_peak,
        "measured_peak": row.measured_peak,
        "measured_peaks": list(row.measured_peaks),
        "error": row.error,
        "microseconds": list(row.microseconds),
        "equal": row.is_equal,
    }


def _table(rows: list[Measurement]) -> Table:
    """Build the table that `measure` prints: one line per order, against program order."""
    from rich.markup import escape
    from rich.table import Table

    from ...core.units import format_bytes, format_microseconds

    table = Table("order")
    for column in ("predicted", "measured", "error", "change", "time", "spread", "results"):
        table.add_column(column, justify="right", no_wrap=True)
    first = rows[0]
    for row in rows:
        change = "" if row is first else f"{100 * (row.measured_peak / first.measured_peak - 1):+.2f}%"
        table.add_row(
            escape(row.order),
            format_bytes(row.predicted_peak),
            f"[bold]{format_bytes(row.measured_peak)}[/]",
            f"{100 * row.error:+.2f}%",
            change,
            format_microseconds(row.median_microseconds),
            format_microseconds(row.spread_microseconds),
            "equal" if row.is_equal else "[bold]differ[/]",
        )
    return table
