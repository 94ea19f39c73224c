"""Options that several subcommands share, so that a flag means the same everywhere."""

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from ..core.base.errors import ClusterError, UsageError, WorkerRefusedError
from ..core.search.options import Budget, ProblemOptions, Task
from ..core.search.registry import EXAMPLE, method_names
from .console import Output
from .made_options import option_of

Backend = Literal["loky", "dask", "ray"]
BackendOption = Annotated[
    Backend, typer.Option("--backend", help="loky: processes here. dask, ray: the workers of the cluster at --address.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="Of the cluster: tcp://HOST:8786 for dask; ray://HOST:10001, or auto on one of its nodes, for ray.",
    ),
]
ClusterJobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", min=1, help="Workers; the result does not depend on it. (default: 1, or all of the cluster)"
    ),
]


def kept_in(resume: str | None, what: str = "runs", remedy: str = "--resume keeps runs") -> str:
    """Say what a lost cluster leaves of finished work."""
    if resume is None:
        return f"nothing is kept; {remedy}"
    return f"finished {what} are kept in {resume}; the same command goes on from there, without --backend here"


@contextmanager
def workers_of(backend: Backend, address: str | None, jobs: int | None, kept: Callable[[], str]) -> Iterator[int]:
    """Have all parallel work done by the workers that are asked for; yields their number."""
    if backend == "loky":
        if address is not None:
            raise UsageError("--address is of a cluster; give --backend dask or --backend ray with it")
        yield jobs or 1
        return
    from ..core.base.parallel import using
    from ..core.experiments.clusters import EXAMPLES, Cluster

    if address is None:
        examples = " or ".join(f"--address {example}" for example in EXAMPLES[backend])
        raise UsageError(f"--backend {backend} needs the address of a cluster; give {examples}")
    with closing(Cluster(backend, address, jobs)) as cluster, using(cluster):
        try:
            yield cluster.size
        except WorkerRefusedError:
            raise
        except ClusterError as error:
            raise ClusterError(f"{error}; {kept()}") from error


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
RESUME = typer.Option(None, help="Keep finished runs in this .jsonl file, and skip those it has already.")
MACHINE, OP_TIMES = option_of(ProblemOptions, "machine"), option_of(ProblemOptions, "op_times")
SEED = option_of(Budget, "seed")


def output_option(help: str, default: Any = None) -> Any:
    """Return the option of the file or folder to write."""
    return typer.Option(default, "--output", "-o", help=help)


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
