"""Options made from data: the fields of a dataclass of parameters become options of a subcommand."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import typer

from ..core.base.options import written_range

P = TypeVar("P")


class Notation(NamedTuple):
    """How the values of some fields are written as one text.

    Parameters
    ----------
    read
        Makes the values, one per field, of the text and of what an error calls it.
    write
        Makes the text of the values; it gives the option's default.
    """

    read: Callable[[str, str], Iterable[Any]]
    write: Callable[..., str]


class Written(NamedTuple):
    """An option that is called or written otherwise than its field.

    Parameters
    ----------
    name
        Of the option, with underscores for hyphens.
    fields
        What it sets; it stands where the first of them is.
    notation
        How it is written; by default as the number that it is.
    called
        What an error calls its text; by default the option as it is typed.
    help
        By default the field's.
    """

    name: str
    fields: tuple[str, ...]
    notation: Notation | None = None
    called: str = ""
    help: str = ""


def options_of(kind: type[Any], written: Sequence[Written]) -> list[inspect.Parameter]:
    """Return an option for each field of a dataclass of parameters, but for fields that share one.

    Parameters
    ----------
    kind
        The dataclass: its fields say their default, help and range.
    written
        The options that are called or written otherwise than their field.
    """
    types, fields = get_type_hints(kind), {field.name: field for field in dataclasses.fields(kind)}
    others = {name for option in written for name in option.fields[1:]}
    of_first = {option.fields[0]: option for option in written}
    options = []
    for name, field in fields.items():
        if name in others:
            continue
        option = of_first.get(name, Written(name, (name,)))
        text = option.help or field.metadata["help"]
        info: dict[str, Any] = {"help": f"{text[0].upper()}{text[1:].removesuffix('.')}."}
        type_, default = types[name], field.default
        if option.notation is not None:
            type_, default = str, option.notation.write(*(fields[one].default for one in option.fields))
        elif limits := written_range(field.metadata.get("low"), field.metadata.get("high")):
            info["metavar"] = f"<{type_.__name__} range> [{limits}]"  # checked by the dataclass
        options.append(made_option(option.name, type_, default, typer.Option(**info)))
    return options


def parameters_of(kind: type[P], written: Sequence[Written], given: dict[str, Any]) -> P:
    """Return the parameters that the options of `options_of` stand for.

    Raises
    ------
    UsageError
        If a text is not understood or a value is out of range.
    """
    values = {field.name: given[field.name] for field in dataclasses.fields(kind) if field.name in given}  # type: ignore[arg-type]
    for option in written:
        value = given[option.name]
        if option.notation is None:
            values[option.fields[0]] = value
        else:
            called = option.called or f"--{option.name.replace('_', '-')}"
            values |= zip(option.fields, option.notation.read(value, called), strict=True)
    return kind(**values)


def made_option(name: str, type_: Any, default: Any, info: Any) -> inspect.Parameter:
    """Return an option as the signature of a command has it."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default, annotation=Annotated[type_, info])


def with_options(
    command: Callable[..., None], options: dict[str, Sequence[inspect.Parameter]], help: str
) -> Callable[..., None]:
    """Return a command with options in place of its `**` argument.

    Parameters
    ----------
    command
        What the subcommand runs.
    options
        By the parameter that they come after.
    help
        Of the subcommand.
    """
    parameters = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            parameters += [parameter, *options.get(parameter.name, ())]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__doc__ = help
    return command
