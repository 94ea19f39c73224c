"""`schedopt optimize`: a program in, the same program in an order of less peak memory out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import typer

from ...core.base.errors import UsageError
from ...core.programs.options import AUTO, ImportOptions, OptimizeOptions
from ...core.search.registry import DEFAULT_METHOD
from .. import options as shared
from ..console import Output, complain, write_json
from ..made_options import options_of, with_options

if TYPE_CHECKING:
    from ...core.problem.problem import Problem
    from ...core.programs.pipeline import Job, Solve
    from ...core.report.result import Result


def optimize(
    model: shared.ModelArgument,
    output: str = shared.output_option("The file to write: .onnx or .tflite, as the model is, or .pt2.", ...),
    training: shared.TrainingOption = None,
    shape: shared.ShapeOption = None,
    device: shared.ProgramDeviceOption = None,
    costs: Literal["measured", "roofline"] = typer.Option(
        "measured", help="measured: run each op here, for its workspace; roofline: no workspace."
    ),
    method: shared.MethodOption = DEFAULT_METHOD,
    no_measure: bool = typer.Option(False, "--no-measure", help="Do not run both orders."),
    repeats: shared.RepeatsOption = 5,
    schedule: str | None = typer.Option(None, help="Write the schedule as JSON to this file, too."),
    overwrite: shared.OverwriteModelFlag = False,
    plot: str | None = typer.Option(None, help="Draw both orders: .png, .svg or .pdf, .html page, .json trace."),
    json: shared.JsonFlag = False,
    quiet: shared.QuietFlag = False,
    **given: Any,
) -> None:
    """Write a model in an order of less peak memory: import, solve, run both orders, compare their results, write.

    Nothing is written unless every stage succeeds and the results are bitwise equal.
    """
    from ...core.files.atomic import check_apart
    from ...core.graph.builder import GraphBuilder
    from ...core.problem.problem import Problem
    from ...core.programs import pipeline
    from ...core.programs.importers import check_options
    from ...core.programs.pipeline import range_in
    from ...core.report.plots.draw import check_target
    from ...core.search.method_spec import check_supported, parse_method
    from ..progress import run_with_progress, stages
    from ..reports import draw_result, optimized_document, print_report

    out = Output(quiet)
    shared.remark_bare_bytes(out, given["memory_limit"])
    spec = parse_method(method)
    asked = OptimizeOptions(**given)
    smallest = GraphBuilder(model)
    smallest.add_op("op")
    check_supported(spec, Problem(smallest.build(), recompute=asked.recompute), spec.evaluations or asked.evaluations)
    options = ImportOptions(**shared.given_options(training, shape, device), costs=costs)
    job = pipeline.Job(model, output, options, asked, schedule, 0 if no_measure else repeats, overwrite)
    check_options(model, options)
    check_target(plot)
    check_apart([plot], [model, output, schedule])

    def solve(problem: Problem, allocator: Any = None) -> Result:
        if allocator == AUTO and options.device == "cuda":
            from ...core.programs.pytorch.plans import allocator_in_use

            allocator = allocator_in_use(problem.graph)
        allocator = None if allocator == AUTO else allocator
        return run_with_progress(out, problem, spec, allocator=allocator, **asked.budget, initial=None)

    if found := range_in(job):
        if plot is not None:
            raise UsageError(f"{plot}: a plot is of one size; leave out --plot, or the range")
        if asked.allocator not in (None, AUTO):
            raise UsageError(f"{asked.allocator}: an allocator is for one size; leave out --allocator, or the range")
        _optimize_range(out, job, *found, solve, json)
        return
    with stages(out, model, pipeline.SEARCHING) as observer:
        optimized = pipeline.optimize(job, partial(solve, allocator=asked.allocator), observer)
    try:
        if json:
            write_json(optimized_document(job, optimized))
        else:
            print_report(job, optimized)
    finally:  # also if the reader of a pipe left
        if plot is not None:
            draw_result(optimized.result, plot)
    out.note(f"wrote {output}: its results are bitwise those of {optimized.source}")
    if schedule is not None:
        out.note(f"wrote {schedule}")
    if plot is not None:
        out.note(f"wrote {plot}")
    if optimized.is_interrupted:
        complain("interrupted: the best order so far was taken, and what was measured is shown")
        raise typer.Exit(130)


with_options(optimize, {"training": options_of(OptimizeOptions)})


def _optimize_range(out: Output, job: Job, name: str, sizes: range, solve: Solve, json: bool) -> None:
    """Write a model in one order for a range of sizes, and say how good it is at each."""
    from ...core.programs.pipeline import SEARCHING, optimize_range
    from ..progress import stages
    from ..reports import print_range, range_document

    with stages(out, job.model, SEARCHING) as observer:
        plan = optimize_range(job, name, sizes, solve, observer)
    if json:
        write_json(range_document(job, name, plan))
    else:
        print_range(job, name, plan)
    out.note(f"wrote {job.output}: its results are bitwise those of {plan.source} at both ends of the range")
    if job.schedule is not None:
        out.note(f"wrote {job.schedule}: the names of the ops in order")
    if plan.is_interrupted:
        raise typer.Exit(130)
