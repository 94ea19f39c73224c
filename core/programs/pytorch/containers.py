"""Containers in the hands of a user's program: what they hold is kept, and put back into them."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

_BUILTINS: tuple[Any, ...] = (OrderedDict, dict, list, set, deque)  # the first that a container is


def copy_of(container: Any) -> Any:
    """Return what a dict, list, set or deque holds, in one of no class of its own."""
    return next(builtin for builtin in _BUILTINS if isinstance(container, builtin))(container)


def is_as(container: Any, kept: Any) -> bool:
    """Whether a container holds the very same things as when it was copied."""
    if len(container) != len(kept):
        return False
    if isinstance(container, dict):
        return all(key in container and dict.__getitem__(container, key) is kept[key] for key in kept)
    if isinstance(container, set):
        return {id(part) for part in container} == {id(part) for part in kept}
    return all(one is other for one, other in zip(container, kept, strict=True))


def put_back(container: Any, kept: Any) -> None:
    """Let a container hold what it held when it was copied.

    The methods are those of the builtin: a class of its own may refuse them, as configurations do that are frozen.
    """
    if is_as(container, kept):
        return
    if isinstance(container, OrderedDict):
        OrderedDict.clear(container)
        for key, value in kept.items():
            OrderedDict.__setitem__(container, key, value)
    elif isinstance(container, list):
        list.__setitem__(container, slice(None), kept)
    elif isinstance(container, deque):
        deque.clear(container)
        deque.extend(container, kept)
    else:
        builtin: Any = dict if isinstance(container, dict) else set
        builtin.clear(container)
        builtin.update(container, kept)
