"""Options of the commands that run a program, and what they mean to its importer."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="An .onnx, .tflite or .pt2 file, or module:function that returns a PyTorch model."
    ),
]
_TRAINING = (
    "none, or a training step of PyTorch with its optimizer: sgd, adam, or adam:learning_rate=0.01. (default: none)"
)
_DEVICE = "Where a PyTorch program runs: cpu or cuda. (default: cpu)"
TrainingOption = Annotated[
    Optional[str],  # noqa: UP045 - Typer reads it at run time on Python 3.10
    typer.Option("--training", help=_TRAINING),
]
ShapeOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--shape",
        metavar="NAME=VALUE",
        help="Size of a symbolic dimension, or keyword argument of the function; repeatable.",
    ),
]
ProgramDeviceOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--device", help=_DEVICE),
]
ScheduleTrainingOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--training", help=_TRAINING.replace("none)", "the schedule's, else none)")),
]
ScheduleDeviceOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--device", help=_DEVICE.replace("cpu)", "the schedule's, else cpu)")),
]
RepeatsOption = Annotated[int, typer.Option("--repeats", min=1, help="Rounds; in each, a new process per order.")]


def given_options(training: str | None, shapes: list[str] | None, device: str | None) -> dict[str, Any]:
    """Return the options that are given, by fields of `ImportOptions`.

    Raises
    ------
    UsageError
        If a shape is not NAME=VALUE, or there is no such device.
    """
    from ..core.errors import UsageError

    given: dict[str, Any] = {} if training is None else {"training": training}
    sizes = {}
    for text in shapes or []:
        name, _, value = text.rpartition("=")
        if not name or not value.isdecimal() or int(value) == 0:
            raise UsageError(f"--shape '{text}' is not understood; write it like batch=8")
        sizes[name] = int(value)
    if sizes:
        given["shapes"] = sizes
    if device is not None:
        if device not in ("cpu", "cuda"):
            raise UsageError(f"--device '{device}' is unknown; use cpu or cuda")
        given["device"] = device
    return given
