"""Output of `gen`: files or folders of graphs, and the notes about them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from ....core.base.errors import UsageError
from ....core.base.names import one_of, unknown
from ....version import VERSION
from ...console import Output, write_json
from ...options import command_line, output_of

if TYPE_CHECKING:
    from ....core.problem.problem import Task


@dataclass(frozen=True)
class Target:
    """Where graphs go and how: `kind` is stdout, file or folder; `suffix` is the format's."""

    kind: str
    path: str
    suffix: str
    split: tuple[int, int, int] | None

    def write(self, graph: bytes) -> None:
        """Write the one graph that goes to a file or standard output."""
        from ....core.files.atomic import write_atomically

        if self.kind == "file":
            write_atomically(self.path, graph)
        else:
            sys.stdout.buffer.write(graph)
            sys.stdout.buffer.flush()


def resolve_output(ctx: typer.Context, graphs: int, name: str) -> Target:
    """Decide where `graphs` graphs go from the command's options, or say why they cannot."""
    from ....core.files.atomic import check_writable
    from ....core.files.costgraph import SUFFIXES
    from ....datasets.folder import parse_ratio

    given = ctx.params
    argument, option, wanted = given.get("target"), given["output"], given["format_"]
    if argument is not None and option is not None:
        raise UsageError("the output is named twice; give it as an argument or with --output")
    given_path = argument or option
    if given_path is None:
        given_path = output_of(None, name, f".{wanted or 'pb.gz'}" if graphs == 1 else "")
    path = given_path or "-"
    suffix = next((s for s in sorted(SUFFIXES, key=len, reverse=True) if path.endswith(s)), None)
    kind = "stdout" if path == "-" else "file" if suffix else "folder"
    split = parse_ratio(given["split"]) if given.get("split") else None
    if kind == "stdout" and given["json"]:
        raise UsageError("--json prints to standard output, where the graph goes; name another output")
    if kind != "folder" and graphs > 1:
        where = f"the one file {path}" if suffix else "standard output"
        raise UsageError(f"{graphs} graphs do not fit in {where}; name a folder as the output")
    if kind != "folder" and (split or given.get("overwrite")):
        raise UsageError("--split and --overwrite are for data sets; name a folder as the output")
    if wanted is not None and f".{wanted}" not in SUFFIXES:
        raise unknown("format", wanted, [s[1:] for s in SUFFIXES])
    if suffix and wanted not in (None, suffix[1:]):
        raise UsageError(f"{path}: the name asks for another format than {wanted}; leave --format out")
    if suffix is None:
        suffix = f".{wanted}" if wanted else ".pb.gz" if kind == "folder" else ".pbtxt"
    if kind == "file":
        check_writable(path)
    return Target(kind, path, suffix, split)


def room_asked(ctx: typer.Context) -> tuple[Task, int] | None:
    """Return the task and the number of devices that `--improvable` asks about."""
    task, devices = ctx.params["improvable"], ctx.params["devices"]
    if task is None:
        if devices is not None:
            raise UsageError("--devices says where --improvable looks for room; give both, or neither")
        return None
    tasks: tuple[Task, ...] = ("memory", "runtime")
    known = one_of("task", task, tasks)
    return known, devices or (1 if known == "memory" else 2)


def finish_folder(
    ctx: typer.Context, out: Output, folder: Any, parameters: dict[str, Any], counts: dict[str, Any]
) -> None:
    """Write dataset.json and say what was written."""
    description = {
        "schedopt": VERSION,
        "generator": ctx.info_name,
        "command": command_line(ctx, {"output", "jobs", "backend", "address", "json", "quiet", "overwrite"}),
        "seed": ctx.params["seed"],
        "format": folder.suffix[1:],
        "dedup": ctx.params["dedup"],
        "parameters": parameters,
        **counts,
    }
    written = folder.finish(description)
    if ctx.params["json"]:
        write_json({"output": str(folder.path), **written})
        return
    least, most = counts["ops"]["least"], counts["ops"]["most"]
    ops = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    parts = ", ".join(f"{part} {number:,}" for part, number in counts.get("split", {}).items())
    graphs = f"{counts['graphs']:,} graph{'s' * (counts['graphs'] != 1)}"
    out.note(f"wrote {folder.path}: {graphs} of {ops} ops{f' ({parts})' if parts else ''}")


def incomplete(path: str) -> str:
    """Say what becomes of a data set whose workers are lost."""
    return (
        f"the graphs in {path} are not all; the same command with --overwrite makes them anew, without --backend here"
    )


def say_written(ctx: typer.Context, out: Output, path: str, graph: dict[str, Any]) -> None:
    """Say what was written to one file, as JSON or as a note."""
    if ctx.params["json"]:
        write_json({**graph, "output": path})
    elif path != "-":
        out.note(f"wrote {path}: {graph['ops']} ops, {graph['tensors']} tensors")
