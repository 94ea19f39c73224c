"""Whether a schedule of a program keeps its memory limit, and what to say where it does not."""

from __future__ import annotations

from ..base.errors import ScheduleError
from ..base.units import format_bytes
from ..bounds.bounds import recomputation_bound
from ..model.unrolled import repeated_ops
from ..report.infeasible import least_peak
from ..report.result import Result


def check_limit(name: str, result: Result, *, remedy: str = "", consequence: str = "") -> None:
    """Refuse a schedule that does not keep the memory limit."""
    limit = result.problem.memory_limit
    if result.is_feasible or limit is None:
        return
    least = least_peak(result.problem, result.lower_bound if result.is_proven_infeasible else 0)
    if result.is_proven_infeasible and result.problem.recompute:
        reason = result.notes[-1]
    elif least > limit:
        reason = f"no {'schedule' if result.problem.recompute else 'order'} needs less than {format_bytes(least)}"
    else:
        reason = f"the least that was found is {format_bytes(result.peak_memory)}"
    if not result.problem.recompute and remedy:
        lowest = recomputation_bound(result.problem.graph)[0]
        reason += f"; {remedy}" if lowest <= limit else f", and not less than {format_bytes(lowest)} if ops run again"
    text = f"{name}: the memory limit of {format_bytes(limit)} is not kept: {reason}"
    raise ScheduleError("; ".join(filter(None, (text, consequence))))


def limit_sentence(result: Result) -> str:
    """Say how a schedule keeps the memory limit: by its order alone, or what runs again for how much time.

    Empty without a limit.
    """
    problem = result.problem
    if problem.memory_limit is None or not result.is_feasible:
        return ""
    limit = f"the memory limit of {format_bytes(problem.memory_limit)}"
    if len(result.schedule) == problem.graph.num_ops:
        return f"The order alone keeps {limit}: nothing runs again."
    again = len(repeated_ops(problem.graph, result.schedule.op_order().tolist()))
    added = f"+{100 * result.added_share:.2f}% predicted time"
    bound = float(problem.op_times.sum())
    if result.lower_bound > bound:
        added += f", at least +{100 * (result.lower_bound / bound - 1):.2f}% by the bound"
    return f"{again:,} of {problem.graph.num_ops:,} ops run again to keep {limit}: {added}."
