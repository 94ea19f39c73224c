"""`schedopt methods`: every method with one line, and its parameters."""

from __future__ import annotations

from ..options import JsonFlag, QuietFlag


def methods(json: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """List every method, what it does, where it is from, and its parameters with their defaults."""
    from json import dumps

    from ...core.front_door.methods import methods
    from ...core.search.registry import EXAMPLE
    from ..console import show, write

    known = methods()
    if json:
        write(dumps(known.document(), indent=1))
        return
    show(known.table())
    show(f"Set parameters as in --method {EXAMPLE} (help for each: schedopt methods --json).")
