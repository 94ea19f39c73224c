"""The command line that made a result, for the record."""

from __future__ import annotations

import shlex

import typer


def command_line(ctx: typer.Context, silent: set[str]) -> str:
    """Return the command with all that decides its result: no paths, no `silent` options, no defaults but the seed."""
    assert ctx.parent is not None
    words = ["schedopt", str(ctx.parent.info_name), str(ctx.info_name)] + ["GRAPHS"] * ("graphs" in ctx.params)
    for parameter in ctx.command.params:
        name = str(parameter.name)
        value = ctx.params.get(name)
        if parameter.param_type_name != "option" or name in silent:
            continue
        if name == "seed" or (value is not None and value != parameter.default):
            words.append(parameter.opts[0])
            words.extend([] if isinstance(value, bool) else [shlex.quote(str(value))])
    return " ".join(words)
