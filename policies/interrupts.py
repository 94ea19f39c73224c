"""Networks that stop when the search they run for has to."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..core.search import Search


class Stopped(Exception):
    """The search had to stop while a network ran."""


def heed(search: Search, network: nn.Module) -> None:
    """Let a network raise `Stopped` from within, at its next module, once the search must stop."""

    def check(module: nn.Module, inputs: Any) -> None:
        if search.must_stop():
            raise Stopped

    for module in network.modules():
        module.register_forward_pre_hook(check)
