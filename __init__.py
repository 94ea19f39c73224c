"""schedopt: decide where and in which order the ops of a neural network run (least memory or time)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import VERSION as __version__

if TYPE_CHECKING:
    from .core.programs.pytorch.apply import optimize

__all__ = ["__version__", "optimize"]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first asked for."""
    if name != "optimize":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .core.programs.pytorch.apply import optimize

    return optimize
