"""`schedopt methods`: every method with one line, or one of them with its parameters."""

import typer

from ...core.search.registry import EXAMPLE, method_names, method_of
from ..console import show, tell, write_json
from ..options import JsonFlag, QuietFlag


def methods(
    name: str | None = typer.Argument(
        None,
        metavar="NAME",
        help="One of the methods, to see what each of its parameters means.",
        autocompletion=method_names,
    ),
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """List every method, what it does and where it is from; or the parameters of one, with their defaults."""
    from ...core.api.methods import methods

    known = methods()
    if name is None:
        if json:
            write_json(known.document(), indent=1)
            return
        show(known.table())
        tell(f"What the parameters of each mean: schedopt methods NAME. Set them as in --method {EXAMPLE}")
        return
    method_of(name)
    at, method = next((at, method) for at, method in enumerate(known) if method.name == name)
    if json:
        write_json(known.document()[at], indent=1)
        return
    show(f"{method.name}: {method.summary} ({method.source}).")
    if method.parameters:
        show(method.table())
        first, field = next(iter(method.parameters.items()))
        tell(f"Set them as in --method {method.name}:{first}={field.default or 'FILE'}")
    else:
        tell("It has no parameters.")
