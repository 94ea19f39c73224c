"""`schedopt check`: run the independent verifier on a schedule file."""

from contextlib import suppress

import typer

from ...core.base.errors import FormatError, ScheduleError
from ...core.base.units import format_bytes, format_microseconds
from ...core.search.options import machine_of
from ..console import Output, tell, write_json
from ..options import MACHINE, OP_TIMES, SCHEDULE_HELP, ForceFlag, GraphArgument, JsonFlag, QuietFlag


def check(
    graph: GraphArgument,
    schedule: str = typer.Argument(..., metavar="SCHEDULE", help=SCHEDULE_HELP),
    force: ForceFlag = False,
    machine: str | None = MACHINE,
    op_times: str | None = OP_TIMES,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Verify a schedule: exit 0 if it keeps every rule of the cost model and what it claims is so, else 1 and why."""
    from ...core.files.schedule_json import read_schedule
    from ...core.programs.importers import read_any

    out, on = Output(quiet), machine_of(machine, op_times)
    checked = read_any(graph, out.note)
    loaded = read_schedule(schedule, checked, force=force, machine=on)
    if on is not None:
        with suppress(FormatError):  # what cannot be read on its own machine does not count
            own = read_schedule(schedule, checked, force=force).problem.machine
            if not own.is_anonymous and (own.pins, own.together) != (on.pins, on.together):
                out.note(f"{schedule}: was made with other pins or groups; those of {machine} are checked")
    try:
        totals = loaded.verify()
    except ScheduleError as error:
        if json:
            write_json({"schedule": schedule, "valid": False, "broken_rule": str(error)})
            raise typer.Exit(1) from error
        raise ScheduleError(f"{schedule}: {error}") from error
    problem, facts = loaded.problem, {"peak_memory_per_device": totals.peak_per_device, "runtime_us": totals.runtime}
    peak = f"peak {format_bytes(totals.peak)} ({totals.peak:,} bytes)"
    if problem.counts_shares:
        shares = totals.shares(problem.machine)
        full = shares.index(share := max(shares))
        device, facts = problem.machine.devices[full], facts | {"peak_share": share}
        held = f"{format_bytes(totals.peak_per_device[full])} of {format_bytes(device.memory or 0)}"
        peak = f"largest share {problem.format_value(share)} ({device.name}: {held})"
    if json:
        write_json({"schedule": schedule, "valid": True, **facts})
    else:
        steps, time = len(loaded.schedule), format_microseconds(totals.runtime)
        tell(f"{schedule}: valid, {steps:,} steps, {peak}, makespan {time}")
