"""Options of training a network, with whatever method."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

RunFolderOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help="Folder of the run: weights, checkpoint, curves. (default: a new one in runs/; with --resume the last)",
    ),
]
ValidationOption = Annotated[
    list[str] | None, typer.Option("--validation", help="Other graphs, or a folder, to validate on; repeatable.")
]
ConfigOption = Annotated[
    str | None, typer.Option("--config", help="YAML file of settings. (default: those of the shipped weights)")
]
RecipeOption = Annotated[
    str | None,
    typer.Option("--recipe", help="Runs one after the other: a file, or shipped weights by name. (default: one run)"),
]
SettingOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting, as phases.0.epochs=2; repeatable.")
]
StartOption = Annotated[
    str | None, typer.Option("--start", help="Weights to start from: a file, or shipped ones by name.")
]
NetworkSeedOption = Annotated[
    int | None, typer.Option("--seed", min=0, help="Seed of every random choice. (default: the file's, or 0)")
]
DeviceOption = Annotated[
    Literal["cpu", "cuda"] | None, typer.Option("--device", help="Where the network is trained. (default: cpu)")
]
ResumeFlag = Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")]
