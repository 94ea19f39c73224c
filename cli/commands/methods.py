"""`schedopt methods`: every method with one line, and its parameters."""

from __future__ import annotations

from typing import Any

from ..options import JsonFlag, QuietFlag


def methods(json: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """List every method, what it does, where it is from, and its parameters with their defaults."""
    import dataclasses
    from json import dumps

    from rich.table import Table

    from ...core.search.registry import EXAMPLE, METHODS, parameters_class
    from ..console import show, write

    rows: list[dict[str, Any]] = []
    for name, method in METHODS.items():
        fields = dataclasses.fields(parameters_class(name))
        rows.append(
            {
                "name": name,
                "summary": method.summary,
                "source": method.source,
                "parameters": {f.name: {"default": f.default, "help": f.metadata["help"]} for f in fields},
            }
        )
    if json:
        write(dumps(rows, indent=1))
        return
    table = Table("method", "what", "source", "parameters")
    for row in rows:
        parameters = "\n".join(f"{name}={field['default']}" for name, field in row["parameters"].items())
        table.add_row(row["name"], row["summary"], row["source"], parameters)
    show(table)
    show(f"Set parameters as in --method {EXAMPLE} (help for each: schedopt methods --json).")
