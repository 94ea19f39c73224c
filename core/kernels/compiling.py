"""Names of the kernels that are being compiled, for notes to a user who waits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from numba.core import event


class _Teller(event.Listener):  # type: ignore[misc]
    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not function.__module__.startswith("numba."):  # what it compiles of its own for a kernel
            file, kernel = function.__module__.rpartition(".")[2], function.__name__.strip("_")
            self.tell(f"{file}.{kernel}")

    def on_end(self, event: Any) -> None:
        pass


def compiling_tells(tell: Callable[[str], None]) -> AbstractContextManager[Any]:
    """Return a context in which a function is told file and name of each kernel that is compiled, not of those kept."""
    listening: AbstractContextManager[Any] = event.install_listener("numba:compile", _Teller(tell))
    return listening
