"""`schedopt measure`: the real memory and time of a program, in its own order and in those of schedules."""

import typer

from ...core.programs.options import ImportOptions
from .. import options as shared
from ..console import Output, complain, show, tell, write_json


def measure(
    model: shared.ModelArgument,
    schedule: list[str] | None = typer.Option(
        None, "--schedule", "-s", metavar="SCHEDULE", help="Schedule of the imported model; repeatable."
    ),
    repeats: shared.RepeatsOption = 5,
    snapshot: str | None = typer.Option(
        None, metavar="FILE.pickle", help="On a GPU, write PyTorch's memory snapshot of the last schedule's run."
    ),
    training: shared.ScheduleTrainingOption = None,
    shape: shared.ShapeOption = None,
    device: shared.ScheduleDeviceOption = None,
    force: shared.ForceFlag = False,
    json: shared.JsonFlag = False,
    quiet: shared.QuietFlag = False,
) -> None:
    """Run a model in program order and in schedules' orders: predicted and measured peak, time, equal results.

    Exit code 1 if the results of an order differ from those of program order.
    """
    from ...core.programs.importers import check_options, options_for
    from ...core.programs.pipeline import measure as measure_schedules
    from ...core.programs.runtime import limit_sentences, runtime_kind, time_sentences
    from ..progress import stages
    from ..reports import measurement_table, orders_document

    out = Output(quiet)
    schedules = schedule or []
    given = shared.given_options(training, shape, device)
    runtime_kind(model)
    check_options(model, ImportOptions(**given))
    options = options_for(schedules, given, out.note)
    with stages(out, model) as observer:
        rows = measure_schedules(model, schedules, repeats, options, observer, force=force, snapshot=snapshot)
    done, wanted = sum(len(row.microseconds) for row in rows), repeats * (1 + len(schedules))
    if json:
        document = {"model": model, "training": options.training, "repeats": repeats, "orders": orders_document(rows)}
        write_json(document)
    else:
        runs = f"{repeats} run{'s' * (repeats > 1)} of each order" if done == wanted else f"{done} of {wanted} runs"
        show(measurement_table(rows), f"{model}: peak memory, {runs}, each in a new process")
        for row in rows[1:]:
            tell("\n".join((*limit_sentences(row), *time_sentences(row, rows[0]))))
    if not all(row.is_equal for row in rows):
        raise typer.Exit(1)
    if done < wanted:
        complain(f"interrupted: {done} of {wanted} runs are done")
        raise typer.Exit(130)
