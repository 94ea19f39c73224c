"""`schedopt fit`: whether a model fits into a memory, as it is or otherwise, and the largest batch that does."""

from __future__ import annotations

import re
from typing import Any

import typer

from ...core.base.errors import UsageError
from ...core.base.options import flag_of, options_in
from ...core.search.options import FitOptions
from ..console import Output, show, tell, write, write_json
from ..made_options import options_of, with_options
from ..options import JsonFlag, ProgramDeviceOption, QuietFlag, ShapeOption, TrainingOption, given_options


def fit(
    model: str = typer.Argument(
        ..., metavar="MODEL", help="A CostGraphDef file, or what import takes, such as module:function."
    ),
    memory: str | None = typer.Option(
        None, "--memory", "-m", help="Memory of each device, e.g. 8GiB; this, --sram or --machine is needed."
    ),
    sram: str | None = typer.Option(
        None, help="The same as data sheets of microcontrollers write it: 256K is 256 KiB."
    ),
    lock: str | None = typer.Option(
        None, metavar="FILE", help="Instead, write the peak of MODEL's own call, counted without a run, into FILE."
    ),
    check: str | None = typer.Option(
        None,
        metavar="FILE",
        help="Instead, compare that peak with the one locked in FILE; exit code 1 if it is larger.",
    ),
    training: TrainingOption = None,
    shape: ShapeOption = None,
    device: ProgramDeviceOption = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    **given: Any,
) -> None:
    """Say whether a model fits into a memory: as it is, in another order, on several devices; or its largest batch.

    Exit code 1 if it fits in no way.
    """
    out = Output(quiet)
    if lock is not None or check is not None:
        others = {"memory": memory, "sram": sram, "training": training, **given}
        defaults = {field.name: field.default for field in options_in(FitOptions)}
        for name, value in others.items():
            if value != defaults.get(name) and name != "allocator":
                raise UsageError(f"--lock and --check are of MODEL's own call; leave {flag_of(name)} out")
        _lock_or_check(model, lock, check, given_options(None, shape, device), given["allocator"], out, json)
        return
    from ...core.api.fit import fit as fit_model
    from ..progress import LiveLine

    if (memory is None) == (sram is None) and (given["machine"] is None or memory is not None):
        raise UsageError("give the memory once, as --memory 8GiB or --sram 256K, or a --machine")
    if sram is not None:  # in units that the library knows
        memory = re.sub(r"(?<=\d)\s*([kKmM])$", lambda unit: f"{unit[1].upper()}iB", sram.strip())
    options = given_options(training, shape, device)
    with LiveLine(out, f"{model}: loading") as line:
        answer = fit_model(
            model, memory, **options, **given, note=out.note, progress=lambda text: line(f"{model}: {text}", text)
        )
    if json:
        write(answer.json())
    else:
        show(answer.table(), answer.title())
        tell(answer.sentence())
    if not answer.fits:
        raise typer.Exit(1)


def _lock_or_check(
    model: str,
    lock: str | None,
    check: str | None,
    options: dict[str, Any],
    allocator: str | None,
    out: Output,
    json: bool,
) -> None:
    """Write the peak of a model's own call into a file, or compare it with the one there."""
    from ...core.api.testing import check_peak, count_peak, lock_peak
    from ...core.programs.importers import check_options, kind_by_name
    from ...core.programs.options import ImportOptions

    check_options(model, ImportOptions(**options))
    if kind_by_name(model) != "pytorch" or ":" not in model:
        raise UsageError(f"{model}: --lock and --check call the result of module:function")
    from ...core.programs.pytorch.program import call_function

    sizes, device = options.get("shapes", {}), options.get("device")
    found = count_peak(*call_function(model, sizes), allocator, model, device, out.note)
    key = " ".join([model, *(f"{name}={size}" for name, size in sizes.items()), *filter(None, (device, allocator))])
    said, difference = (found.sentence, None) if check is None else check_peak(check, key, found)
    if lock is not None and difference is None:
        lock_peak(lock, key, found)
    if json:
        write_json({"model": model, "peak_memory": found.memory, **(difference.document() if difference else {})})
    else:
        if difference is not None:
            show(difference.table(), difference.title())
        tell(said)
    if difference is not None:
        raise typer.Exit(1)


with_options(fit, {"sram": options_of(FitOptions)})
