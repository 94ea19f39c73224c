"""`schedopt measure`: what a program really takes, in its own order and in those of schedules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..options import ForceFlag, JsonFlag, QuietFlag
from ..program_options import (
    ModelArgument,
    RepeatsOption,
    ScheduleDeviceOption,
    ScheduleTrainingOption,
    ShapeOption,
    given_options,
)

if TYPE_CHECKING:
    from ...core.programs.stream_report import StreamReport
    from ..console import Talk


def measure(
    model: ModelArgument,
    schedule: Annotated[
        Optional[list[str]],  # noqa: UP045 - Typer reads it at run time on Python 3.10
        typer.Option("--schedule", "-s", metavar="SCHEDULE", help="Schedule of the imported model; repeatable."),
    ] = None,
    repeats: RepeatsOption = 5,
    training: ScheduleTrainingOption = None,
    shape: ShapeOption = None,
    device: ScheduleDeviceOption = None,
    plot: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--plot", help="Draw plans of several streams, predicted and real: .png, .svg or .pdf."),
    ] = None,
    force: ForceFlag = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Run a model in program order and in schedules' orders: predicted and measured peak, time, equal results.

    Schedules on several devices run as plans of as many streams (ONNX): predicted and measured time. Exit code 1 if the
    results of an order differ from those of program order.
    """
    from json import dumps

    from ...core.programs.imported import options_for
    from ...core.programs.importers import check_options
    from ...core.programs.measurement import limit_sentences, time_sentences
    from ...core.programs.options import ImportOptions
    from ...core.programs.pipeline import measure as measure_schedules
    from ...core.programs.runners import runner_kind
    from ...core.programs.stream_report import StreamReport
    from ...core.report.plots.draw import PICTURES, check_target
    from ..console import Talk, complain, show, tell, write
    from ..progress import Stages
    from ..reports.measure import orders_document, table

    talk = Talk(quiet)
    schedules = schedule or []
    given = given_options(training, shape, device)
    runner_kind(model)
    check_options(model, ImportOptions(**given))
    options = options_for(schedules, given, talk.note)
    if plot is not None:
        check_target(plot, PICTURES)
    with Stages(talk, model) as stages:
        rows = measure_schedules(model, schedules, repeats, options, stages.observer(), force=force)
    if isinstance(rows, StreamReport):
        _report_streams(talk, model, rows, repeats, plot, json)
        return
    if plot is not None:
        talk.note(f"--plot draws plans of several streams, and no schedule is one; {plot} is not written")
    done, wanted = sum(len(row.microseconds) for row in rows), repeats * (1 + len(schedules))
    if json:
        document = {"model": model, "training": options.training, "repeats": repeats, "orders": orders_document(rows)}
        write(dumps(document))
    else:
        runs = f"{repeats} run{'s' * (repeats > 1)} of each order" if done == wanted else f"{done} of {wanted} runs"
        show(table(rows), f"{model}: peak memory, {runs}, each in a new process")
        for row in rows[1:]:
            tell("\n".join((*limit_sentences(row), *time_sentences(row, rows[0]))))
    if not all(row.is_equal for row in rows):
        raise typer.Exit(1)
    if done < wanted:
        complain(f"interrupted: {done} of {wanted} runs are done")
        raise typer.Exit(130)


def _report_streams(talk: Talk, model: str, report: StreamReport, repeats: int, plot: str | None, json: bool) -> None:
    """Print, and draw, what was measured of plans of several streams."""
    from json import dumps

    from ...core.programs.stream_report import stream_sentences
    from ..console import complain, show, tell, write
    from ..reports.streams import streams_document, streams_table

    done = len(report.rows[0].microseconds)
    if json:
        write(dumps({"model": model, "repeats": repeats, **streams_document(report)}))
    else:
        runs = sum(map(len, report.rows[0].runs))
        rounds = f"{done} round{'s' * (done != 1)}"
        show(streams_table(report), f"{model}: time, {runs} runs of each in turns, {rounds}, each in a new process")
        tell("\n".join(stream_sentences(report)))
    if plot is not None:
        from ...core.files.atomic import write_atomically
        from ...core.programs.onnx.stream_chart import stream_figure
        from ...core.report.plots.figures import render

        write_atomically(plot, render(stream_figure(report), Path(plot).suffix))
        talk.note(f"wrote {plot}")
    if not all(row.is_equal for row in report.rows if row.plan is not None):
        raise typer.Exit(1)
    if done < repeats:
        complain(f"interrupted: {done} of {repeats} rounds are done")
        raise typer.Exit(130)
