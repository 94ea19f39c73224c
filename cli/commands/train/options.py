"""Options of training a network, with whatever method."""

from __future__ import annotations

from typing import Annotated, Literal, Optional

import typer

RunFolderOption = Annotated[
    Optional[str],  # noqa: UP045 - Typer reads it at run time on Python 3.10
    typer.Option(
        "--output",
        "-o",
        help="Folder of the run: weights, checkpoint, curves. (default: a new one in runs/; with --resume the last)",
    ),
]
ValidationOption = Annotated[
    Optional[list[str]],  # noqa: UP045 - Typer reads it at run time on Python 3.10
    typer.Option("--validation", help="Other graphs, or a folder, to validate on; repeatable."),
]
ConfigOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--config", help="YAML file of settings. (default: those of the shipped weights)"),
]
RecipeOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--recipe", help="Runs one after the other: a file, or shipped weights by name. (default: one run)"),
]
SettingOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", metavar="NAME=VALUE", help="A setting, as phases.0.epochs=2; repeatable."),
]
StartOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--start", help="Weights to start from: a file, or shipped ones by name."),
]
NetworkSeedOption = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--seed", min=0, help="Seed of every random choice. (default: the file's, or 0)"),
]
DeviceOption = Annotated[
    Optional[Literal["cpu", "cuda"]],  # noqa: UP045
    typer.Option("--device", help="Where the network is trained. (default: cpu)"),
]
ResumeFlag = Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")]
