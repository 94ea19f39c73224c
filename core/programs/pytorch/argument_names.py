"""What a model's own signature calls its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from .torch_internals import pytree

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def argument_names(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the name of each leaf of a call's arguments, in the order of `tree_flatten((args, kwargs))`.

    Such as `image`, `batch['ids']` or `args[0]`; a call that does not fit the function names its places alone.
    """
    try:
        signature = inspect.signature(function)
        taken = [name for name, parameter in signature.parameters.items() if parameter.kind in _BY_POSITION]
    except (TypeError, ValueError):  # written in C, or without one
        taken = []
    names = [*taken[: len(args)], *(f"args[{place}]" for place in range(len(taken), len(args))), *kwargs]
    paths: list[Any] = [path for path, _ in pytree.tree_flatten_with_path([*args, *kwargs.values()])[0]]
    return [f"{names[path[0].idx]}{pytree.keystr(path[1:])}" for path in paths]
