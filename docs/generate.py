"""Write the tables of the docs that the code knows: options of commands, parameters of methods, public names.

A page says where a table goes:

    <!-- generated: options solve -->
    <!-- end -->

`python docs/generate.py` writes what is between the two lines; `tests/test_docs.py` fails where that changes a file.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from copy import copy
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import schedopt
import typer
import yaml
from schedopt.cli.main import app
from schedopt.core.base.options import written_range
from schedopt.core.search.registry import METHODS, parameter_fields
from schedopt.core.solvers.portfolio import ROWS, Step
from typer.models import ArgumentInfo

DOCS = Path(__file__).parent
MARKED = re.compile(r"(<!-- generated: (\w+)(?: ([^\n]*?))? -->\n).*?(<!-- end -->)", re.DOTALL)


class Option(NamedTuple):
    """A parameter of a command function: its name, what kind of value it takes, its default, what Typer is told."""

    name: str
    kind: Any
    default: Any
    info: Any

    @property
    def is_argument(self) -> bool:
        """Whether it is given by its place."""
        return isinstance(self.info, ArgumentInfo)


def commands() -> dict[str, Any]:
    """Return every subcommand by its name, those of groups as `gen layered`."""

    def leaves(group: Any, before: str) -> Iterator[tuple[str, Any]]:
        for name in group.list_commands(None):
            command = group.get_command(None, name)
            if hasattr(command, "list_commands"):
                yield from leaves(command, f"{before}{name} ")
            else:
                yield f"{before}{name}", command

    return dict(leaves(typer.main.get_command(app), ""))


def options(command: Any) -> list[Option]:
    """Return the arguments and options of a subcommand, as its function declares them to Typer."""
    command = inspect.unwrap(command.callback)
    hints = get_type_hints(command, include_extras=True)
    found = []
    for name, parameter in inspect.signature(command).parameters.items():
        hint = hints.get(name, parameter.annotation)
        if hint is typer.Context:
            continue
        default = parameter.default
        if isinstance(default, typer.models.ParameterInfo):
            kind, info = hint, copy(default)
            default = inspect.Parameter.empty if info.default is ... else info.default
            info.default = ...
        else:
            if not hasattr(hint, "__metadata__"):  # Python 3.10 makes optional what is None by default
                hint = get_args(hint)[0]
            kind, info = get_args(hint)
        inner = [part for part in get_args(kind) if part is not type(None)]
        optional = type(None) in get_args(kind)
        found.append(Option(name, inner[0] if optional else kind, default, info))
    return sorted(found, key=lambda option: not option.is_argument)


def page_of(kind: str, name: str) -> str:
    """Return the page of a folder that holds a table, as `one-device.md`.

    Raises
    ------
    LookupError
        If there is none.
    """
    for page in sorted((DOCS / kind).glob("*.md")):
        if f"generated: {'options' if kind == 'commands' else 'parameters'} {name} -->" in page.read_text():
            return page.name
    raise LookupError(f"docs/{kind} has no page with the table of '{name}'")


def options_table(name: str) -> str:
    """Return the arguments and options of a subcommand with their values, defaults and help."""
    found = options(commands()[name])
    rows = []
    for option in found:
        text = re.sub(r"\s+", " ", option.info.help or "").strip()
        default = _default(option)
        if stated := re.search(r" ?\(default: ([^()]*)\)", text):  # a default that the code finds out by itself
            default, text = stated[1], text.replace(stated[0], "")
        said = written_range(option.info.min, option.info.max) or _bracketed(option)
        if said and said not in text:
            text += f" ({said})"
        rows.append((_written(option), default, text))
    usage = " ".join(["schedopt", name, *(_metavar(option) for option in found if option.is_argument), "[OPTIONS]"])
    return f"`{usage}`\n\n{_table(('option', 'default', 'meaning'), rows)}"


def _metavar(option: Option) -> str:
    text = (option.info.metavar or option.name.upper()).strip("[].")
    more = "..." if get_origin(option.kind) is list else ""
    return f"{text}{more}" if option.default is inspect.Parameter.empty else f"[{text}{more}]"


def _written(option: Option) -> str:
    """Return how an option is written, with the choices or the metavar of its value."""
    if option.is_argument:
        return f"`{_metavar(option)}`"
    # Typer keeps the first name that an annotation gives as its default.
    declared = [text for text in (option.info.default, *(option.info.param_decls or ())) if isinstance(text, str)]
    if not declared:
        word = option.name.replace("_", "-")
        declared = [f"--{word}/--no-{word}" if option.kind is bool else f"--{word}"]
    names = ", ".join(f"`{text}`" for given in declared for text in given.split("/"))
    return names if option.kind is bool else f"{names} {_value(option)}"


def _value(option: Option) -> str:
    kind = get_args(option.kind)[0] if get_origin(option.kind) is list else option.kind
    if get_origin(kind) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(f"`{choice.value}`" for choice in kind)
    name = None if _bracketed(option) else option.info.metavar
    return f"`{name or {int: 'N', float: 'X'}.get(kind, 'TEXT')}`"


def _bracketed(option: Option) -> str:
    """Return the range that a metavar such as `<int range> [from 1]` holds."""
    found = re.fullmatch(r"<\w+ range> \[(.*)\]", option.info.metavar or "")
    return found[1] if found else ""


def _default(option: Option) -> str:
    value = option.default
    if value is inspect.Parameter.empty:
        return "required"
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{value.value if isinstance(value, Enum) else value}`"


def parameters_table(name: str) -> str:
    """Return what a method is in one line, its source, and its parameters."""
    method = METHODS[name]
    text = f"{method.summary} ({method.source})."
    limits = [
        ("peak memory on one device only", method.memory_on_one_device_only),
        ("several devices only", method.several_devices_only),
        ("with `--recompute`, too", method.recomputation == "also"),
        ("with `--recompute` only", method.recomputation == "only"),
        ("can start from `--initial`", method.searches),
        ("does not count evaluations", not method.counts_evaluations),
        (f"{method.default_devices} devices by default", method.default_devices > 1),
        (f"{method.default_evaluations:,} evaluations by default" if method.default_evaluations else "", True),
        (f"{method.default_seconds:g} s by default" if method.default_seconds else "", True),
    ]
    if known := ", ".join(said for said, holds in limits if said and holds):
        text += f"\n\nUse: {known}."
    fields = parameter_fields(name)
    if not fields:
        return f"{text}\n\nNo parameters."
    rows = [
        (f"`{f.name}`", f"`{f.default}`" if f.default != "" else "", _field_range(f), f.metadata["help"])
        for f in fields
    ]
    return f"{text}\n\n{_table(('parameter', 'default', 'range', 'meaning'), rows)}"


def _field_range(field: Any) -> str:
    return written_range(field.metadata.get("low"), field.metadata.get("high"))


def methods_table(_: str) -> str:
    """Return every method with a link to its page."""
    rows = [
        (f"[`{name}`]({page_of('methods', name)}#{name})", method.summary, method.source)
        for name, method in METHODS.items()
    ]
    return _table(("method", "what", "source"), rows)


def commands_table(_: str) -> str:
    """Return every subcommand with a link to its page."""
    rows = []
    for name, command in commands().items():
        summary = inspect.cleandoc(command.help or "").split("\n\n")[0]
        rows.append((f"[`{name}`]({page_of('commands', name)})", " ".join(summary.split())))
    return _table(("command", "what"), rows)


def names_table(_: str) -> str:
    """Return the public names of the package with the first sentence of what their docstrings say."""
    rows = []
    for name in public_names():
        text = inspect.cleandoc(getattr(schedopt, name).__doc__ or "")
        rows.append((f"[`{name}`](#{name.lower()})", " ".join(text.split("\n\n")[0].split())))
    return _table(("name", "what"), rows)


def reference(_: str) -> str:
    """Return a section per public name, whose docstring Sphinx puts there."""
    sections = []
    for name in public_names():
        public = getattr(schedopt, name)
        if not inspect.isclass(public):
            directive = f".. autofunction:: schedopt.{name}"
        elif issubclass(public, Exception):
            directive = f".. autoexception:: schedopt.{name}"
        else:
            directive = f".. autoclass:: schedopt.{name}\n   :members:"
        sections.append(f"## {name}\n\n```{{eval-rst}}\n{directive}\n```")
    return "\n\n".join(sections)


def schedule_table(part: str) -> str:
    """Return the fields of the schedule JSON, or of one of its kinds of steps, as its JSON Schema says them."""
    schema = json.loads((Path(schedopt.__file__).parent / "core" / "files" / "schedule.schema.json").read_text())
    described = schema if part == "document" else schema["$defs"][part]
    rows = []
    for name, field in described["properties"].items():
        field = schema["$defs"][field["$ref"].rpartition("/")[2]] if "$ref" in field else field
        kind = field.get("type", " or ".join(json.dumps(value) for value in field.get("enum", ())))
        kind = " or ".join(kind) if isinstance(kind, list) else kind
        needed = " (needed)" if name in described["required"] else ""
        rows.append((f"`{name}`{needed}", kind, field.get("description", "")))
    return _table(("field", "type", "meaning"), rows)


def public_names() -> list[str]:
    """Return the public names, without those of the module itself."""
    return [name for name in schedopt.__all__ if not name.startswith("__")]


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


KINDS = {
    "recompute": "ops may run again",
    "order": "peak, one device",
    "peak": "peak, several devices",
    "free": "makespan, free transfers, no memory limit",
    "costly": "makespan, transfers take time or memory is limited",
}


def rows_table(_: str) -> str:
    """Return the table by which `auto` chooses its searches."""
    found = []
    for row in ROWS:
        most = "any" if math.isinf(row.most_ops) else f"{row.most_ops:g}"
        found.append(("; ".join(KINDS[kind] for kind in row.kinds), most, ", ".join(map(_step, row.steps))))
    return _table(("problem", "ops up to", "searches, each with its share of the budget left"), found)


def _step(step: Step) -> str:
    given = ",".join(f"{name}={value:g}" for name, value in step.parameters.items())
    share = f" {step.share:.0%}" if step.share < 1 else ""
    most = f" {step.evaluations:,.0f} evaluations" if step.evaluations < math.inf else ""
    return f"`{step.method}`{share}{most}{f' (`{given}`)' if given else ''}"


def weights_table(_: str) -> str:
    """Return the shipped weights with what their cards say."""
    rows = []
    for path in sorted((DOCS.parent / "policies" / "weights").glob("*.yaml")):
        card = yaml.safe_load(path.read_text())
        network, used = card["recipe"]["network"], f"`{path.stem.partition('-')[0]}`"
        if "task" in network:
            task = {"memory": "peak", "runtime": "makespan"}[network["task"]]
            used += f", {task}, {network['devices']} devices"
        elif types := card["recipe"].get("types"):
            used += f", makespan, each op on one of {len(types)} types of device"
        rows.append((f"`{path.stem}`", used, card["network"], str(card["hours"]), str(card["commit"])))
    return _table(("weights", "for", "network", "hours", "commit"), rows)


TABLES: dict[str, Callable[[str], str]] = {
    "rows": rows_table,
    "options": options_table,
    "parameters": parameters_table,
    "methods": methods_table,
    "commands": commands_table,
    "names": names_table,
    "reference": reference,
    "schedule": schedule_table,
    "weights": weights_table,
}


def generated(text: str) -> str:
    """Return a page with its tables as the code has them now."""
    return MARKED.sub(lambda m: f"{m[1]}\n{TABLES[m[2]](m[3] or '')}\n\n{m[4]}", text)


def main() -> None:
    """Write every page anew, and name those that changed."""
    for page in sorted(DOCS.rglob("*.md")):
        before = page.read_text()
        if (after := generated(before)) != before:
            page.write_text(after)
            sys.stdout.write(f"wrote {page.relative_to(DOCS.parent)}\n")


if __name__ == "__main__":
    main()
