"""How every kernel is compiled: cached on disk, without the interpreter lock, without reference counts.

Kernels allocate nothing (their callers pass scratch arrays), so numba's reference counting can be off:
counting costs half the time where a kernel takes its arrays from named tuples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a kernel at its first call."""
    return cast(Function, njit(cache=True, nogil=True, _nrt=False)(function))


def inlined(function: Function) -> Function:
    """Compile a function into the kernels that call it."""
    return cast(Function, njit(cache=True, nogil=True, _nrt=False, inline="always")(function))
