"""Sets of up to 64 devices, as the bits of one number."""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import inlined


@inlined
def bit_of(device: int) -> Any:
    """Return the set that holds one device."""
    return np.uint64(1) << np.uint64(device)


@inlined
def has_bit(devices: Any, device: int) -> bool:
    """Whether a device is in a set."""
    return bool((devices >> np.uint64(device)) & np.uint64(1) != 0)
