"""Remarks of `schedopt solve` beside its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.search.registry import INPUT_METHOD, method_of
from ..console import Output

if TYPE_CHECKING:
    from ...core.report.result import Result


def remark(out: Output, result: Result) -> None:
    """Say on standard error what the table cannot."""
    from ...core.report.reference import feasible_reference_value

    problem = result.problem
    for note in result.notes:
        out.note(note)
    if problem.graph.annotations.phases and problem.devices == 1:
        out.note("peaks are of the program as traced, not of the user's own call, which measure runs")
    if problem.devices > 1:
        _remark_homes(out, result)
        _remark_views(out, result)
    if problem.recompute:
        _remark_recomputation(out, result)
    elif problem.task == "runtime" and not problem.graph.runtime.any():
        out.note(f"{problem.graph.name}: every op has runtime 0, so every schedule takes 0 us")
    elif result.value > result.input_value and result.value > feasible_reference_value(problem):
        better = "the input order" if problem.is_symmetric else "the input order on one device"
        out.note(f"{better} is better than what this method found; --method auto never returns worse")
    if not result.is_repeatable:
        remedy = "; --evaluations repeats exactly" if method_of(result.method).counts_evaluations else ""
        out.note(f"time ended or steered the search, so the same seed may give another result{remedy}")
    if result.is_feasible or problem.recompute:
        return
    if not result.is_proven_infeasible:
        out.note("no schedule within the memory limit was found, nor is it proven that there is none")
    out.note("this is the schedule of least excess that was found")


def draw_result(result: Result, target: str) -> None:
    """Draw the result, and the input order beside it unless that is what was asked for."""
    from ...core.files.atomic import write_atomically
    from ...core.model.timeline import input_timeline, timeline_of
    from ...core.report.plots.draw import draw

    timelines = [timeline_of(result.method, result.problem, result.schedule, result.addresses)]
    if result.method != INPUT_METHOD:
        timelines.insert(0, input_timeline(result.problem.graph))
    write_atomically(target, draw(timelines, target))


def _remark_recomputation(out: Output, result: Result) -> None:
    """Say how every run counts, whether any was needed, and what a limit that is not kept means."""
    problem = result.problem
    if problem.counts_runs:
        out.note(f"{problem.graph.name}: no op has a runtime, so that every run counts alike")
    if result.is_proven_infeasible:
        out.note("this is the schedule of least excess that was found")
    elif not result.is_feasible:
        out.note("no schedule that keeps it was found, nor proven impossible; this has the least excess")
    elif problem.task == "runtime" and len(result.schedule) == problem.graph.num_ops:
        out.note("this order alone keeps the limit: nothing runs again")


def _remark_views(out: Output, result: Result) -> None:
    """Say how many transfers are of views to which the graph gives no bytes of their own."""
    graph, items = result.problem.graph, result.schedule.items
    views = (graph.alias_of >= 0) & (graph.tensor_size == 0) & (graph.tensor_size[graph.root] > 0)
    if free := int(views[~items[items < 0]].sum()):
        out.note(
            f"{graph.name}: {free:,} of the transfers are of views to which the graph gives no bytes, so they cost "
            "nothing but the latency"
        )


def _remark_homes(out: Output, result: Result) -> None:
    """Say how many weights are read on several devices, or that the graph does not know."""
    from ...core.problem.residents import GraphWithHomes

    problem, graph = result.problem, result.problem.graph
    if not isinstance(graph, GraphWithHomes):
        if graph.persistent.any() and not graph.annotations.residents:
            out.note(
                f"{graph.name}: the graph does not say which ops share weights: the persistent bytes of each op are "
                "taken to be its own, and are never sent"
            )
        return
    away = graph.read_away(result.schedule.placement(graph))
    replicated = int((~graph.is_written[away]).sum()) if problem.replicate else 0
    sent = len(away) - replicated
    if replicated or sent:
        how = [f"{replicated:,} as a replica on each of these devices"] if replicated else []
        how += [f"{sent:,} by copies, which are among the transfers"] if sent else []
        out.note(
            f"{replicated + sent:,} of {len(graph.held):,} weights and inputs are read away from their home: "
            f"{', '.join(how)}"
        )
