"""How every kernel is compiled: cached on disk, without the interpreter lock, without reference counts.

Kernels allocate nothing (their callers pass scratch arrays), so numba's reference counting can be off:
counting costs half the time where a kernel takes its arrays from named tuples.
"""

from __future__ import annotations

from numba import njit

kernel = njit(cache=True, nogil=True, _nrt=False)
inlined = njit(cache=True, nogil=True, _nrt=False, inline="always")
