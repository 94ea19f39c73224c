"""Networks that stop when the search they run for has to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from ...core.search.search import Cancelled, Search


def stop_if_due(search: Search) -> None:
    """Raise `Cancelled` once the search must stop."""
    if search.exhausted():
        raise Cancelled


@contextmanager
def heeding(search: Search, network: nn.Module) -> Iterator[None]:
    """Let a network raise `Cancelled` from within, at its next module, once the search must stop."""

    def check(module: nn.Module, inputs: Any) -> None:
        stop_if_due(search)

    hooks = [module.register_forward_pre_hook(check) for module in network.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
