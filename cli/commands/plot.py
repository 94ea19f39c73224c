"""`schedopt plot`: schedules as a picture, an interactive page, or a trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ...core.base.errors import ScheduleError
from ...core.base.names import one_line
from ...core.base.units import format_bytes
from ...core.search.options import machine_of
from ...core.search.registry import INPUT_METHOD as INPUT
from ..console import Output, tell, write_json
from ..options import MACHINE, OP_TIMES, SCHEDULE_HELP, ForceFlag, GraphArgument, JsonFlag, QuietFlag, output_option

if TYPE_CHECKING:
    from ...core.files.schedule_json import LoadedSchedule
    from ...core.graph.graph import CostGraph
    from ...core.problem.machine import Machine


def plot(
    graph: GraphArgument,
    schedules: list[str] | None = typer.Argument(
        None, metavar="SCHEDULE", help=f"{SCHEDULE_HELP} Or {INPUT} for the graph's own order. (default: {INPUT})"
    ),
    output: str | None = output_option(
        ".png, .svg or .pdf: a picture; .html: a page to click through; .json: a Chrome or Perfetto trace. "
        "(default: GRAPH.png)"
    ),
    kind: str | None = typer.Option(
        None,
        help="Of picture: memory, gantt, arena or graph. (default: gantt for several devices)",
        autocompletion=lambda: ["memory", "gantt", "arena", "graph"],
    ),
    without_weights: bool = typer.Option(
        False, "--without-weights", help="Leave persistent bytes out, so that the rest fills the height."
    ),
    force: ForceFlag = False,
    machine: str | None = MACHINE,
    op_times: str | None = OP_TIMES,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Draw schedules: memory by tensor with its peak, several orders over each other, devices and transfers."""
    from ...core.files.atomic import check_apart, write_atomically
    from ...core.files.costgraph import graph_name
    from ...core.model.timeline import beside_weights, timeline_of
    from ...core.problem.problem import Problem
    from ...core.programs.importers import is_model, kind_of, read_any
    from ...core.report.plots.draw import check_target, draw
    from ...core.report.result import reference_timeline

    out = Output(quiet)
    target = output or f"{graph_name(graph) or INPUT}.png"
    check_target(target)
    check_apart([target], (graph, *(schedules or []), machine, op_times))
    snapshot = None
    if is_model(graph) and kind_of(graph) == "snapshot":
        from ...core.programs.graphs.snapshot import read_snapshot

        snapshot = read_snapshot(graph, out.note).timeline()
    read = snapshot.problem.graph if snapshot else read_any(graph, out.note)
    on = machine_of(machine, op_times)
    stems = {path: path if path == INPUT else Path(path).stem for path in schedules or [INPUT]}
    shared = Counter(stems.values())
    labels = {path: stem if shared[stem] == 1 else path for path, stem in stems.items()}
    plans = {path: _replayed(path, read, force, on) for path in labels if path != INPUT}
    problem = next((plan.problem for plan in plans.values()), None) or Problem(read, "runtime", machine=on)
    timelines = [
        timeline_of(label, plan.problem, plan.schedule, plan.addresses)
        if (plan := plans.get(path))
        else snapshot or reference_timeline(problem)
        for path, label in labels.items()
    ]
    if without_weights:
        timelines = [beside_weights(timeline) for timeline in timelines]
    write_atomically(target, draw(timelines, target, kind))  # type: ignore[arg-type]
    if json:
        summaries = [
            {
                "label": timeline.label,
                "steps": timeline.steps,
                "peak_memory": timeline.simulation.peak,
                "peak_memory_per_device": timeline.simulation.peak_per_device.tolist(),
                "peak_step": timeline.peak_step + 1,
                "peak_at": timeline.step_name(timeline.peak_step),
                "runtime_us": timeline.simulation.runtime,
            }
            for timeline in timelines
        ]
        write_json({"graph": read.name, "output": target, "schedules": summaries})
        return
    for timeline in timelines:
        at = f"step {timeline.peak_step + 1:,} of {timeline.steps:,}, {timeline.step_label(timeline.peak_step)}"
        where = f" on {timeline.device_names[timeline.fullest_device]}" if timeline.problem.devices > 1 else ""
        tell(one_line(f"{timeline.label}: peak {format_bytes(timeline.simulation.peak)}{where} at {at}"))
    out.note(f"wrote {target}")


def _replayed(path: str, graph: CostGraph, force: bool, machine: Machine | None) -> LoadedSchedule:
    from ...core.files.schedule_json import read_schedule

    loaded = read_schedule(path, graph, force=force, machine=machine)
    try:
        loaded.verify(enforce_limit=False)
    except ScheduleError as error:
        raise ScheduleError(f"{path}: not a schedule of {error}") from error
    return loaded
