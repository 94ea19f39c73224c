"""Options of the commands that run a program, and what they mean to its importer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..core.base.errors import UsageError

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
TrainingOption = Annotated[str | None, typer.Option("--training", help=_TRAINING)]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=VALUE",
        help="Size of a symbolic dimension (batch=8; to optimize, a range: batch=1..32), of all dimensions of an input "
        "(x=1x3x320x320), value of an input that is one whole number, or keyword argument of the function; repeatable.",
    ),
]
ProgramDeviceOption = Annotated[str | None, typer.Option("--device", help=_DEVICE)]
ScheduleTrainingOption = Annotated[
    str | None, typer.Option("--training", help=_TRAINING.replace("none)", "the schedule's, else none)"))
]
ScheduleDeviceOption = Annotated[
    str | None, typer.Option("--device", help=_DEVICE.replace("cpu)", "the schedule's, else cpu)"))
]
_DIGITS = 15
OverwriteModelFlag = Annotated[bool, typer.Option("--overwrite", help="Write over MODEL, if it is the output.")]
RepeatsOption = Annotated[int, typer.Option("--repeats", min=1, help="Rounds; in each, a new process per order.")]


def given_options(training: str | None, shapes: list[str] | None, device: str | None) -> dict[str, Any]:
    """Return the options that are given, by fields of `ImportOptions`."""
    given: dict[str, Any] = {} if training is None else {"training": training}
    if sizes := dict(map(_shape, shapes or [])):
        given["shapes"] = sizes
    if device is not None:
        if device not in ("cpu", "cuda"):
            raise UsageError(f"--device '{device}' is unknown; use cpu or cuda")
        given["device"] = device
    return given


def _shape(text: str) -> tuple[str, int | tuple[int, ...] | range]:
    """Read `batch=8`, `x=1x3x320x320` or `batch=1..32`."""
    name, _, value = text.rpartition("=")
    first, is_range, last = value.partition("..")
    sizes = value.split("x")
    if name and is_range and _is_size(first) and _is_size(last) and int(first) < int(last):
        return name, range(int(first), int(last) + 1)
    if not name or is_range or not all(map(_is_size, sizes)):
        raise UsageError(f"--shape '{text}' is not understood; write it like batch=8 or input=1x3x320x320")
    return name, int(value) if len(sizes) == 1 else tuple(map(int, sizes))


def _is_size(text: str) -> bool:
    """Whether a text is a whole number above 0 that is the size of something."""
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS and int(text) > 0
