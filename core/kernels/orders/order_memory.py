"""The memory of every step of an order on one device, from its buffers alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.arrays import IntArray, frozen
from ...graph.buffers import Buffers
from ..jit import kernel


@kernel
def order_memory(b: Buffers, order: Any, base: Any, uses: Any, memory: IntArray) -> None:
    """Write to `memory` the bytes that each step of `order` takes; `base` bytes are there throughout."""
    for buffer in range(b.size.size):
        uses[buffer] = b.user_ptr[buffer + 1] - b.user_ptr[buffer]
    resident = base
    for step in range(order.size):
        op = order[step]
        resident += b.own[op]
        memory[step] = resident + b.workspace[op]
        for at in range(b.used_ptr[op], b.used_ptr[op + 1]):
            buffer = b.used[at]
            uses[buffer] -= 1
            if uses[buffer] == 0 and not b.is_final[buffer]:
                resident -= b.size[buffer]
        for buffer in range(b.made_ptr[op], b.made_ptr[op + 1]):
            if b.user_ptr[buffer] == b.user_ptr[buffer + 1] and not b.is_final[buffer]:
                resident -= b.size[buffer]


def memory_of_steps(b: Buffers, order: Any, base: int = 0) -> IntArray:
    """Return the bytes that each step of an order takes, shape `(ops,)`; `base` bytes are there throughout."""
    memory = np.empty(len(order), np.int64)
    order_memory(b, frozen(order, np.int32), np.int64(base), np.empty(len(b.size), np.int32), memory)
    return memory
