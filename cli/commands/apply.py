"""`schedopt apply`: a program in the order of a schedule."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import SCHEDULE_HELP, ForceFlag, JsonFlag, QuietFlag
from ..program_options import ModelArgument, ProgramDeviceOption, ShapeOption, TrainingOption, import_options


def apply(
    model: ModelArgument,
    schedule: Annotated[
        str,
        typer.Argument(metavar="SCHEDULE", help=f"Of the imported model: {SCHEDULE_HELP}"),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="The file to write: .onnx for ONNX, .pt2 for PyTorch.")],
    training: TrainingOption = "none",
    shape: ShapeOption = None,
    device: ProgramDeviceOption = "cpu",
    force: ForceFlag = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Write a model with its ops in the order of a schedule, after a run that gave bitwise equal results."""
    from json import dumps

    from ...core.files.atomic import check_writable
    from ...core.programs.importers import check_options, load
    from ...core.programs.runners import runner_of
    from ..console import Talk, write

    talk = Talk(quiet)
    options = import_options(training, shape, device)
    runner = runner_of(model)
    check_options(model, options)
    check_writable(output)
    load(runner.apply)(model, schedule, output, options, talk.note, force=force)
    if json:
        write(dumps({"model": model, "schedule": schedule, "output": output, "equal": True}))
    else:
        talk.note(f"wrote {output}: its results are bitwise those of {model}")
