"""Options made from data: the fields of a dataclass become options of a subcommand."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import typer

from ..core.base.options import flag_of, option_named, options_in, spelled, value_type, written_range

P = TypeVar("P")


class Notation(NamedTuple):
    """How the values of some fields are written as one text."""

    read: Callable[[str, str], Iterable[Any]]  # of the text, and of what an error calls it
    write: Callable[..., str]  # gives the option's default


class Written(NamedTuple):
    """An option that is called or written otherwise than its field."""

    name: str  # with underscores for hyphens
    fields: tuple[str, ...]  # it stands where the first of them is
    notation: Notation | None = None
    called: str = ""  # in errors; by default the option as it is typed
    help: str = ""  # by default the field's


def options_of(
    kind: type[Any], written: Sequence[Written] = (), without: Iterable[str] = ()
) -> list[inspect.Parameter]:
    """Return an option for each field of a dataclass, without some and those that share one."""
    others = {name for option in written for name in option.fields[1:]} | set(without)
    of_first = {option.fields[0]: option for option in written}
    options = []
    for field in options_in(kind):
        if field.name in others:
            continue
        option = of_first.get(field.name)
        if option is None:
            options.append(_parameter(kind, field.name, field.name, ""))
        elif option.notation is None:
            options.append(_parameter(kind, field.name, option.name, option.help))
        else:
            default = option.notation.write(*(option_named(kind, name).default for name in option.fields))
            info = typer.Option(help=_sentence(option.help or field.metadata["help"]))
            options.append(made_option(option.name, str, default, info))
    return options


def option_of(kind: type[Any], name: str) -> Any:
    """Return the declaration of a command's parameter as the option of one field; Typer checks its range."""
    field, parameter = option_named(kind, name), _parameter(kind, name, name, "")
    made, info = get_args(parameter.annotation)
    info.default = parameter.default
    if made is int:
        info.min, info.max, info.metavar = field.metadata["low"], field.metadata["high"], None
    return info


def _parameter(kind: type[Any], field_name: str, name: str, help: str) -> inspect.Parameter:
    """Return the option of a field as a command's parameter, called and explained as said."""
    field = option_named(kind, field_name)
    said, default, type_ = field.metadata, field.default, value_type(kind, field_name)
    text = _sentence(help or said["help"]) + (f" (default: {said['shown']})" if said.get("shown") else "")
    info: dict[str, Any] = {"help": text, "metavar": said.get("metavar"), "rich_help_panel": said.get("panel")}
    if said.get("read"):
        if choices := get_args(get_type_hints(kind)[field_name]):
            info["autocompletion"] = lambda: [choice for choice in choices if isinstance(choice, str)]
        type_, default = str, default if isinstance(default, str | None) else f"{default:g}"
    elif get_origin(type_) is not Literal and (limits := written_range(said["low"], said["high"])):
        info["metavar"] = f"<{type_.__name__} range> [{limits}]"  # checked by the dataclass
    names = [flag_of(name) + ("/--no" + flag_of(name)[1:] if default is True else "")]
    names += [f"-{said['short']}"] if said.get("short") else []
    return made_option(name, type_ if default is not None else type_ | None, default, typer.Option(*names, **info))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].removesuffix('.')}."


def parameters_of(kind: type[P], written: Sequence[Written], given: dict[str, Any]) -> P:
    """Return the parameters that the options of `options_of` stand for."""
    values = {field.name: given[field.name] for field in dataclasses.fields(kind) if field.name in given}  # type: ignore[arg-type]
    for option in written:
        value = given[option.name]
        if option.notation is None:
            values[option.fields[0]] = value
        else:
            values |= zip(
                option.fields, option.notation.read(value, option.called or spelled(option.name)), strict=True
            )
    return kind(**values)


def made_option(name: str, type_: Any, default: Any, info: Any) -> inspect.Parameter:
    """Return an option as the signature of a command has it."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default, annotation=Annotated[type_, info])


def with_options(
    command: Callable[..., None], options: dict[str, Sequence[inspect.Parameter]], help: str = ""
) -> Callable[..., None]:
    """Return a command with options in place of its `**` argument."""
    parameters = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            parameters += [parameter, *options.get(parameter.name, ())]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__doc__ = help or command.__doc__
    return command
