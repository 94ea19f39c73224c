"""`schedopt fit`: whether a model fits into a memory, as it is or otherwise, and the largest batch that does."""

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
        from ...core.api.testing import hold_peak

        options = given_options(None, shape, device)
        found, said, difference = hold_peak(model, lock, check, given["allocator"], out.note, **options)
        if json:
            write_json({"model": model, "peak_memory": found.memory, **(difference.document() if difference else {})})
        else:
            if difference is not None:
                show(difference.table(), difference.title())
            tell(said)
        raise typer.Exit(difference is not None)
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


with_options(fit, {"sram": options_of(FitOptions)})
