"""`schedopt apply`: a program in the order of a schedule."""

from typing import Literal

import typer

from ...core.programs.options import ImportOptions
from .. import options as shared
from ..console import Output, write_json


def apply(
    model: shared.ModelArgument,
    schedule: str = typer.Argument(..., metavar="SCHEDULE", help=f"Of the imported model: {shared.SCHEDULE_HELP}"),
    output: str = shared.output_option(
        "The file to write: .onnx or .tflite, as the model is, .pt2, .json (a map), or .h.", ...
    ),
    format: Literal["program", "device-map", "c-header"] = typer.Option(
        "program",
        help="program: the model; device-map: the device of each module of a PyTorch model, for accelerate; "
        "c-header: the arena of a TFLite model, and the offsets of its tensors.",
    ),
    training: shared.ScheduleTrainingOption = None,
    shape: shared.ShapeOption = None,
    device: shared.ScheduleDeviceOption = None,
    force: shared.ForceFlag = False,
    overwrite: shared.OverwriteModelFlag = False,
    json: shared.JsonFlag = False,
    quiet: shared.QuietFlag = False,
) -> None:
    """Write a model with its ops in the order of a schedule, after a run that gave bitwise equal results.

    A schedule on several devices gives a PyTorch model's device map.
    """
    from ...core.programs.device_map import check_map_output, write_device_map
    from ...core.programs.importers import check_options, options_for
    from ...core.programs.pipeline import apply as apply_schedule
    from ...core.programs.runtime import check_output

    out = Output(quiet)
    given = shared.given_options(training, shape, device)
    is_map, is_header = format == "device-map", format == "c-header"
    if is_map:
        check_map_output(model, output)
    else:
        check_output(model, output, overwrite=overwrite, is_header=is_header)
    check_options(model, ImportOptions(**given))
    options = options_for([schedule], given, out.note)
    if is_map:
        found = write_device_map(model, schedule, output, options, out.note, force=force)
        if json:
            write_json({"model": model, "schedule": schedule, "output": output, "device_map": found.devices})
        else:
            out.note(f"wrote {output}: {len(found.devices)} modules on {len(set(found.devices.values()))} devices")
        return
    source = apply_schedule(
        model, schedule, output, options, out.note, force=force, overwrite=overwrite, is_header=is_header
    )
    if json:
        write_json({"model": model, "schedule": schedule, "output": output, "equal": source == model})
    else:
        what = "the arena of an order whose results are" if is_header else "its results are"
        out.note(f"wrote {output}: {what} bitwise those of {source}")
