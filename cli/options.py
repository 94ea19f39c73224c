"""Options that several subcommands share, so that a flag means the same everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias, get_args

import typer

from ..core.search.options import Budget, ProblemOptions, Task
from ..core.search.registry import EXAMPLE, method_names
from .made_options import option_of

if TYPE_CHECKING:
    from .console import Talk

_FEW_BYTES = 1024
TASKS = list(get_args(Task))
"""As shells complete them."""


def remark_bare_bytes(talk: Talk, memory_limit: str | None) -> None:
    """Say that a limit without a unit is of bytes, where that is hardly meant."""
    if memory_limit is not None and memory_limit.isdecimal() and int(memory_limit) < _FEW_BYTES:
        talk.note(
            f"--memory-limit {memory_limit} is {memory_limit} bytes; write {memory_limit}GiB or the like for more"
        )


JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No notes and no progress, only results and errors.")]
SCHEDULE_HELP = "Schedule JSON, as solve --output writes it, or op names, one per line."
ForceFlag = Annotated[bool, typer.Option("--force", help="Take a schedule that was made for another graph.")]
GraphArgument = Annotated[
    str,
    typer.Argument(metavar="GRAPH", help="CostGraphDef file, - for standard input, or a model as `import` reads it."),
]
GraphsArgument = Annotated[
    list[str],
    typer.Argument(metavar="GRAPHS", help="CostGraphDef files, folders of them, and models as `import` reads them."),
]
MethodOption = Annotated[
    str,
    typer.Option(
        "--method",
        "-m",
        help=f"One of `schedopt methods`, with parameters as in {EXAMPLE}.",
        autocompletion=method_names,
    ),
]
if TYPE_CHECKING:
    MachineOption: TypeAlias = str | None
    OpTimesOption: TypeAlias = str | None
    SeedOption: TypeAlias = int
else:
    MachineOption = option_of(ProblemOptions, "machine")
    OpTimesOption = option_of(ProblemOptions, "op_times")
    SeedOption = option_of(Budget, "seed")
