"""Options that several subcommands share, so that a flag means the same everywhere."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..core.base.units import parse_count
from ..core.search.registry import DEFAULT_METHOD, EXAMPLE, METHODS, listed, methods_where

if TYPE_CHECKING:
    from .console import Talk

_FEW_BYTES = 1024
DEVICES, RECOMPUTATION, ADDRESSES = "Devices and their links", "Recomputation", "Addresses"
"""Panels of the help, after the options that all need."""


class Pins(str, enum.Enum):
    """Where pins come from, beside the machine file."""

    from_graph = "from-graph"


def _methods_on_two_devices() -> str:
    return listed(["runtime", *methods_where(lambda method: method.default_devices == 2)], "and")


def _default_time_limits() -> str:
    """Return the time limits of the methods that have one, as a sentence says them."""
    named: dict[float, list[str]] = {}
    for name, method in METHODS.items():
        if method.default_seconds is not None:
            named.setdefault(method.default_seconds, []).append(name)
    return ", ".join(f"{limit:g}s for {listed(names, 'and')}" for limit, names in named.items())


def _evaluations(text: str) -> int:
    return parse_count(text, "--evaluations")


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
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of every random choice.")]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", min=1, help="Worker threads; with a time limit alone auto finds more with more of them."
    ),
]
GraphArgument = Annotated[
    str,
    typer.Argument(metavar="GRAPH", help="CostGraphDef file, - for standard input, or a model as `import` reads it."),
]
GraphsArgument = Annotated[
    list[str],
    typer.Argument(metavar="GRAPHS", help="CostGraphDef files, folders of them, and models as `import` reads them."),
]
TASKS = ["memory", "runtime"]
"""As shells complete them."""
TaskOption = Annotated[
    str,
    typer.Option(
        "--task",
        help="What to minimise: memory (peak) or runtime (makespan).",
        autocompletion=lambda: TASKS,
    ),
]
MethodOption = Annotated[
    str,
    typer.Option(
        "--method",
        "-m",
        help=f"One of `schedopt methods`, with parameters as in {EXAMPLE}.",
        autocompletion=lambda: list(METHODS),
    ),
]
DevicesOption = Annotated[
    Optional[int],  # noqa: UP045 - Typer reads it at run time on Python 3.10
    typer.Option(
        "--devices", "-d", help=f"Devices, 1 to 64. (default: 1 for memory; 2 for {_methods_on_two_devices()})"
    ),
]
MemoryLimitOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--memory-limit",
        help="Bytes per device, e.g. 16GiB, or a share of the input order's peak, e.g. 60%. (default: none)",
    ),
]
RecomputeFlag = Annotated[
    bool,
    typer.Option(
        "--recompute",
        help="Let ops run again, on one device: the least added time that keeps --memory-limit, or the least peak "
        "within --max-overhead.",
        rich_help_panel=RECOMPUTATION,
    ),
]
MaxOverheadOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--max-overhead",
        help="With --recompute: how much of the time of all ops may be added for the least peak, e.g. 10%. "
        "(default: none)",
        rich_help_panel=RECOMPUTATION,
    ),
]
BandwidthOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--bandwidth",
        help="Bytes per second between devices, e.g. 10GB/s. (default: infinite)",
        rich_help_panel=DEVICES,
    ),
]
LatencyOption = Annotated[
    str,
    typer.Option(
        "--latency",
        help="Time that each transfer adds, e.g. 5us.",
        rich_help_panel=DEVICES,
    ),
]
_EVALUATIONS, _TIME_LIMIT = "Budget of complete schedules priced, e.g. 5000 or 1e4.", "Wall time per run, e.g. 10s."
EvaluationsOption = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--evaluations",
        parser=_evaluations,
        metavar="<int>",
        help=f"{_EVALUATIONS} (default: the method's)",
    ),
]
SearchEvaluationsOption = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--evaluations", parser=_evaluations, metavar="<int>", help=f"{_EVALUATIONS} (default: no limit)"),
]
TimeLimitOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--time-limit", "-t", help=f"{_TIME_LIMIT} (default: {_default_time_limits()}, else none)"),
]
SearchTimeOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--time-limit",
        "-t",
        help=f"Wall time of each search, e.g. 10s. (default: {METHODS[DEFAULT_METHOD].default_seconds:g}s)",
    ),
]
"""Of commands that choose the methods themselves, and search more than once."""
MachineOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--machine",
        metavar="FILE",
        help="Machine file: devices that differ, their memory and links. (default: equal devices)",
        rich_help_panel=DEVICES,
    ),
]
OpTimesOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--op-times",
        metavar="FILE",
        help="With --machine: CSV of op, then a time per kind of device; empty: cannot run there. "
        "(default: runtime / speed)",
        rich_help_panel=DEVICES,
    ),
]
PinsOption = Annotated[
    Optional[Pins],  # noqa: UP045
    typer.Option(
        "--pins",
        help="from-graph: ops stay on the devices that the graph names. (default: none)",
        rich_help_panel=DEVICES,
    ),
]
ReplicateFlag = Annotated[
    bool,
    typer.Option(
        "--replicate",
        help="Weights that no op writes are on each device that reads them, instead of being sent.",
        rich_help_panel=DEVICES,
    ),
]
AddressesFlag = Annotated[
    bool,
    typer.Option(
        "--addresses",
        help="Give every tensor an offset in its device's arena, and choose an order whose arena is small.",
        rich_help_panel=ADDRESSES,
    ),
]
AlignOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--align",
        help="With --addresses: what offsets are multiples of, e.g. 16 or 4KiB. (default: 64)",
        rich_help_panel=ADDRESSES,
    ),
]
