"""`schedopt pack`: buffers with lifetimes in, offsets in an arena out."""

from typing import Any, Literal

import typer

from ...core.base.errors import FormatError
from ...core.base.units import format_bytes
from ...core.search.options import PackOptions
from ..console import Output, complain, show, tell, write_json
from ..made_options import options_of, with_options
from ..options import JsonFlag, QuietFlag, output_option


def pack(
    buffers: str = typer.Argument(
        ...,
        metavar="BUFFERS",
        help="CSV with the columns id, lower, upper (exclusive), size, maybe alignment and offset.",
    ),
    check: bool = typer.Option(
        False, "--check", help="Only verify the offsets that the file has: exit 0 if they hold, else 1."
    ),
    output: str | None = output_option("Write the buffers with their offsets to this file."),
    format: Literal["csv", "c-header"] = typer.Option("csv", help="Of this file: CSV, or macros for a C program."),
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    **given: Any,
) -> None:
    """Give buffers with lifetimes offsets in an arena that is as small as possible, and verify them."""
    from ...core.api.pack import pack as pack_buffers
    from ...core.files.atomic import check_writable
    from ...core.search.search import interrupted_by
    from ..progress import interruptible

    out = Output(quiet)
    if check:
        _check(buffers, json)
        return
    if output is not None:
        check_writable(output)
    with interruptible(out, "the best so far") as interrupt, interrupted_by(interrupt):
        packed = pack_buffers(buffers, **given)
    if output is not None:
        packed.save(output, format)
    if json:
        write_json(packed.document())
    else:
        show(packed.table(), buffers)
    if not packed.packing.is_repeatable:
        out.note("time steered the search, so the same seed may give other offsets")
    if output is not None:
        out.note(f"wrote {output}")
    if packed.is_interrupted:
        complain("interrupted: the best so far is shown")
        raise typer.Exit(130)


with_options(pack, {"buffers": options_of(PackOptions)})


def _check(path: str, json: bool) -> None:
    """Verify the offsets of a file."""
    from ...core.addresses.packing import rounded_up
    from ...core.api.pack import verify_buffers
    from ...core.files.buffers_csv import read_buffers

    buffers = read_buffers(path)
    if buffers.offsets is None:
        raise FormatError(f"{path}: there is no column offset to check; pack without --check gives offsets")
    known = buffers.lifetimes
    arena = int(rounded_up(buffers.offsets + known.size, known.unit).max(initial=0))
    verify_buffers(path, buffers, buffers.offsets.tolist(), arena)
    if json:
        write_json({"buffers": len(buffers.ids), "valid": True, "arena": arena, "bound": known.live})
    else:
        tell(
            f"{path}: valid, {len(buffers.ids):,} buffers in {format_bytes(arena)} ({arena:,} bytes); "
            f"{known.live:,} bytes live at once"
        )
