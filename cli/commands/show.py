"""`schedopt show`: a graph, a folder of graphs, or a schedule's peak."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ...core.base.errors import UsageError
from ...core.base.names import one_line
from ...core.base.units import bytes_alike, format_bytes, times_alike
from ..console import Output, tell, write, write_json
from ..console import show as print_table
from ..options import SCHEDULE_HELP, ForceFlag, JsonFlag, QuietFlag

if TYPE_CHECKING:
    from rich.table import Table

_BAR = 40
_MEASURED = ("ops", "edges", "diameter")
_LIST_HELP = "Of a folder: a row per graph, with the hash of its topology, not histograms."


def show(
    graph: str = typer.Argument(
        ..., metavar="GRAPH", help="CostGraphDef file, - for stdin, a folder, or a model as `import` reads it."
    ),
    schedule: str | None = typer.Argument(
        None, metavar="SCHEDULE", help=f"Show what is alive at its peak. {SCHEDULE_HELP}"
    ),
    top: int = typer.Option(20, min=1, help="Holders of memory to list at the peak."),
    list_: bool = typer.Option(False, "--list", help=_LIST_HELP),
    force: ForceFlag = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Show a graph: ops, edges, bytes, depth, width, bounds; a folder: histograms; a schedule, a snapshot: its peak."""
    from ...core.programs.importers import is_model, kind_of, read_any

    out = Output(quiet)
    if graph != "-" and Path(graph).is_dir():
        if schedule is not None:
            raise UsageError(f"{graph} is a folder; name the one graph that {schedule} belongs to")
        _show_folder(graph, out, json, list_)
    elif list_:
        raise UsageError(f"{graph} is no folder; --list shows the graphs of one")
    elif schedule is None and is_model(graph) and kind_of(graph) == "snapshot":
        _show_snapshot(graph, out, top, json)
    elif schedule is None:
        _show_graph(read_any(graph, out.note), json)
    else:
        _show_peak(graph, schedule, out, top, json, force)


def _show_graph(graph: Any, json: bool) -> None:
    from rich.table import Column, Table

    from ...core.report.differences import summarise
    from ...core.report.memory_by_role import resident_roles

    summary = summarise(graph)
    roles = resident_roles(graph) if graph.annotations.residents else {}
    if json:
        write_json({**summary, **({"persistent_by_role": roles} if roles else {})})
        return
    peaks = (summary["persistent_bytes"], summary["input_peak"], summary["memory_bound"])
    memory = bytes_alike(peaks, also=(summary["tensor_bytes"], *roles.values()))
    time = times_alike([summary["total_runtime"], summary["critical_path"]])
    table = Table("", Column(justify="right"), show_header=False)
    table.add_row("ops", f"{summary['ops']:,}")
    table.add_row("tensors", f"{summary['tensors']:,}")
    table.add_row("edges", f"{summary['edges']:,}")
    table.add_row("bytes in tensors", memory(summary["tensor_bytes"]))
    table.add_row("persistent bytes", memory(summary["persistent_bytes"]))
    for role, size in roles.items():
        table.add_row(f"  {role}", memory(size))
    table.add_row("total runtime", time(summary["total_runtime"]))
    table.add_row("depth (longest path)", f"{summary['depth']:,} ops")
    table.add_row("width (largest antichain)", f"{summary['width']:,} ops")
    table.add_section()
    table.add_row("peak memory, input order, 1 device", memory(summary["input_peak"]))
    table.add_row("peak memory, lower bound, 1 device", memory(summary["memory_bound"]))
    table.add_row("critical path", time(summary["critical_path"]))
    print_table(table, one_line(graph.name))


def _show_snapshot(path: str, out: Any, top: int, json: bool) -> None:
    from ...core.programs.graphs.snapshot import read_snapshot
    from ..reports import snapshot_tables

    document = read_snapshot(path, out.note).document()
    if json:
        write_json(document)
        return
    for title, table in snapshot_tables(document, top):
        print_table(table, title or f"{path}, device {document['device']}")
    for refused in document["refused"]:
        size, left = format_bytes(refused["size"]), format_bytes(refused["left"])
        tell(f"refused: {size} at {refused['line']}, event {refused['event']:,}; the device had {left} left\n")


def _show_folder(folder: str, out: Any, json: bool, is_list: bool) -> None:
    """Print the histograms of sizes and diameters (REGAL figures 5 and 6), or a row per graph."""
    from json import dumps

    from rich.table import Column, Table

    from ...core.base.tables import escape
    from ...core.bounds.diameter import diameter
    from ...core.files.costgraph import find_graphs, read_graph
    from ...datasets.filters import topology_hash
    from ..progress import progress_bar

    rows = []
    paths = find_graphs([folder])
    with progress_bar(out, "measuring", len(paths)) as bar:
        for path in paths:
            graph = read_graph(path, out.note)
            row: dict[str, Any] = {"graph": str(path), "ops": graph.num_ops, "edges": len(graph.edges[0])}
            row["diameter"] = diameter(graph)
            rows.append(row | ({"topology": topology_hash(graph)} if json or is_list else {}))
            bar()
    if json:
        write("\n".join(dumps(row) for row in rows))
        return
    graphs = f"{len(rows):,} graph{'s' * (len(rows) != 1)}"
    if is_list:
        table = Table("graph", *(Column(key, justify="right") for key in _MEASURED), "topology")
        for row in rows:
            name = escape(str(Path(row["graph"]).relative_to(folder)))
            table.add_row(name, *(f"{row[key]:,}" for key in _MEASURED), row["topology"])
        print_table(table, f"{folder}, {graphs}")
        return
    for key in _MEASURED:
        print_table(_histogram([row[key] for row in rows]), f"{key}, {graphs}")


def _histogram(values: list[Any]) -> Table:
    from rich.table import Table

    from ...core.report.differences import log_histogram

    table = Table(show_header=False, box=None)
    bins = log_histogram(values)
    most = max(count for _, _, count in bins)
    for low, high, count in bins:
        table.add_row(f"{low:,} to {high:,}", f"{count}", "█" * round(_BAR * count / most))
    return table


def _show_peak(graph_path: str, schedule_path: str, out: Any, top: int, json: bool, force: bool) -> None:
    from ...core.files.schedule_json import address_fields, read_schedule
    from ...core.model.verifier import verify, verify_addresses
    from ...core.programs.importers import read_any
    from ...core.report.memory_by_role import alive_at_peak, memory_shares
    from ..reports import module_table, peak_table, phase_table, shares_table

    loaded = read_schedule(schedule_path, read_any(graph_path, out.note), force=force)
    verify(loaded.problem, loaded.schedule, enforce_limit=False)
    if loaded.addresses is not None:
        verify_addresses(loaded.problem, loaded.schedule, loaded.addresses)
    peak = alive_at_peak(loaded.problem, loaded.schedule, loaded.addresses)
    known = loaded.problem.graph.annotations
    shares = memory_shares(loaded.problem, loaded.schedule) if known else None
    if json:
        arenas = address_fields(loaded.addresses)
        write_json({**dataclasses.asdict(peak), **(dataclasses.asdict(shares) if shares else {}), **arenas})
        return
    names = [one_line(device.name) for device in loaded.problem.machine.devices]
    where = f"{names[peak.device]} at step {peak.step:,} of {len(loaded.schedule):,}"
    source = one_line(f"{peak.runs} ({peak.source})" if peak.source else peak.runs)
    print_table(peak_table(peak, top), f"peak {format_bytes(peak.memory)} on {where}, running {source}")
    for device, arena in enumerate(loaded.addresses.arenas if loaded.addresses else ()):
        above = "optimal for this order" if arena.is_optimal else f"{format_bytes(arena.bound)} alive at once"
        tell(f"arena of {names[device]}: {format_bytes(arena.size)} ({arena.size:,} bytes), {above}\n")
    if shares is not None:
        print_table(shares_table("role", shares.roles), "the peak by role")
        if known.modules:
            print_table(module_table(shares), "the peak by module")
        if len(shares.phases) > 1:
            print_table(phase_table(shares), "the peak of each phase")
