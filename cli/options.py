"""Options that several subcommands share, so that a flag means the same everywhere."""

from __future__ import annotations

import re
import shlex
import sys
from itertools import count
from pathlib import Path
from typing import Annotated, get_args

import typer

from ..core.search.options import Budget, ProblemOptions, Task
from ..core.search.registry import EXAMPLE, method_names
from .console import Output
from .made_options import option_of

_FEW_BYTES = 1024
DEFAULT_OUTPUT = "(default: standard output; on a terminal, a new file)"
TASKS = list(get_args(Task))  # as shells complete them


def remark_bare_bytes(out: Output, memory_limit: str | None) -> None:
    """Say that a limit without a unit is of bytes, where that is hardly meant."""
    if memory_limit is not None and memory_limit.isdecimal() and int(memory_limit) < _FEW_BYTES:
        out.note(f"--memory-limit {memory_limit} is {memory_limit} bytes; write {memory_limit}GiB or the like for more")


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
MACHINE, OP_TIMES = option_of(ProblemOptions, "machine"), option_of(ProblemOptions, "op_times")
SEED = option_of(Budget, "seed")


def output_of(given: str | None, name: str, suffix: str) -> str:
    """Return the output that is given, `-` for standard output, or on a terminal the name of a new file."""
    if given is not None:
        return given
    if not sys.stdout.isatty():
        return "-"
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "graph"
    files = (f"{stem}{f'-{number}' if number > 1 else ''}{suffix}" for number in count(1))
    return next(file for file in files if not Path(file).exists())


def command_line(ctx: typer.Context, silent: set[str]) -> str:
    """Return the command with all that decides its result: no paths, no `silent` options, no defaults but the seed."""
    assert ctx.parent is not None
    words = ["schedopt", str(ctx.parent.info_name), str(ctx.info_name)] + ["GRAPHS"] * ("graphs" in ctx.params)
    for parameter in ctx.command.params:
        name = str(parameter.name)
        value = ctx.params.get(name)
        if parameter.param_type_name != "option" or name in silent:
            continue
        if name == "seed" or (value is not None and value != parameter.default):
            words.append(parameter.opts[0])
            words.extend([] if isinstance(value, bool) else [shlex.quote(str(value))])
    return " ".join(words)
