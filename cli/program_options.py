"""Options of the commands that run a program, and what they mean to its importer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from ..core.programs.options import ImportOptions

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="An .onnx or .pt2 file, or module:function that returns a PyTorch model.")
]
TrainingOption = Annotated[
    str,
    typer.Option(
        "--training",
        help="none, or a training step of PyTorch with its optimizer: sgd, adam, or adam:learning_rate=0.01.",
    ),
]
ShapeOption = Annotated[
    Optional[list[str]],  # noqa: UP045 - Typer reads it at run time on Python 3.10
    typer.Option("--shape", metavar="NAME=VALUE", help="Size of a symbolic dimension; repeatable."),
]
ProgramDeviceOption = Annotated[str, typer.Option("--device", help="Where a PyTorch program runs: cpu or cuda.")]


def import_options(training: str, shapes: list[str] | None, device: str = "cpu") -> ImportOptions:
    """Read the options' texts.

    Raises
    ------
    UsageError
        If a shape is not NAME=VALUE, or there is no such device.
    """
    from ..core.errors import UsageError
    from ..core.programs.options import ImportOptions

    sizes = {}
    for text in shapes or []:
        name, _, value = text.rpartition("=")
        if not name or not value.isdecimal() or int(value) == 0:
            raise UsageError(f"--shape '{text}' is not understood; write it like batch=8")
        sizes[name] = int(value)
    if device not in ("cpu", "cuda"):
        raise UsageError(f"--device '{device}' is unknown; use cpu or cuda")
    return ImportOptions(training=training, shapes=sizes, device=device)
