"""List scheduling where data costs nothing: an idle device takes the most urgent ready op that it can run."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.arrays import FloatArray, IndexArray
from ...graph.graph import Buffers
from ..heap import larger_first, pop, push
from ..jit import inlined, kernel


def start_along(b: Buffers, times: FloatArray, priorities: Any) -> tuple[IndexArray, FloatArray]:
    """Return the ops as they start by each row of priorities, and when the last one ends; `(rows, ops)`, `(rows,)`."""
    # times: of the ops on each device, infinite where it cannot run them; of equal ops the first is the most urgent
    can, kind = np.unique(np.isfinite(times), axis=0, return_inverse=True)  # ops that the same devices can run
    first = np.append(0, np.cumsum(np.bincount(kind.ravel(), minlength=len(can))))
    rows = np.argsort(-priorities, axis=1, kind="stable")
    ends, of_ops, of_kinds = np.empty(len(rows)), np.empty((4, len(times)), np.int64), np.empty((2, len(can)), np.int64)
    start_rows(b, times, (kind.ravel(), can, first), rows, ends, of_ops, of_kinds, np.empty((2, times.shape[1])))
    return rows.astype(np.int32), ends


@kernel
def start_rows(
    b: Buffers, times: Any, kinds: Any, rows: Any, ends: Any, of_ops: Any, of_kinds: Any, of_devices: Any
) -> None:
    """Put each row of ops, the most urgent first, into the order in which they start."""
    kind, can, first = kinds
    urgent, score, waiting, heap = of_ops[0], of_ops[1], of_ops[2], of_ops[3]  # a heap of scores per kind, of `size`
    size, can_start, until, running = of_kinds[0], of_kinds[1], of_devices[0], of_devices[1]
    for row in range(len(rows)):
        size[:], can_start[:], until[:] = 0, 0, np.inf
        for device in range(len(until)):
            _count(can_start, can, device, 1)
        for place in range(len(times)):
            op = urgent[place] = rows[row, place]
            score[op] = len(times) - place
            waiting[op] = b.predecessor_ptr[op + 1] - b.predecessor_ptr[op]
            if waiting[op] == 0:
                _wait(heap, size, first, kind[op], score[op])
        started, now = 0, 0.0
        while True:
            ending, most, chosen = 0, 0, 0
            for device in range(1, len(until)):
                if until[device] < until[ending]:
                    ending = device
            for k in range(len(can)):
                if can_start[k] and size[k] and heap[first[k]] > most:
                    most, chosen = heap[first[k]], k
            if most and until[ending] > now:
                op = urgent[len(times) - most]
                size[chosen] = pop(heap[first[chosen] : first[chosen + 1]], size[chosen], heap, larger_first)
                fastest = -1
                for device in range(len(until)):
                    is_idle = can[chosen, device] and until[device] == np.inf
                    if is_idle and (fastest < 0 or times[op, device] < times[op, fastest]):
                        fastest = device
                running[fastest], until[fastest] = op, now + times[op, fastest]
                _count(can_start, can, fastest, -1)
                rows[row, started] = op
                started += 1
            elif until[ending] < np.inf:  # all that end now do so before any starts
                op, now, until[ending] = int(running[ending]), until[ending], np.inf
                _count(can_start, can, ending, 1)
                for at in range(b.successor_ptr[op], b.successor_ptr[op + 1]):
                    after = b.successors[at]
                    waiting[after] -= 1
                    if waiting[after] == 0:
                        _wait(heap, size, first, kind[after], score[after])
            else:
                break
        ends[row] = now


@inlined
def _count(can_start: Any, can: Any, device: int, change: int) -> None:
    """Note that a device is idle, or not any more."""
    for k in range(len(can)):
        can_start[k] += change * can[k, device]


@inlined
def _wait(heap: Any, size: Any, first: Any, k: int, score: int) -> None:
    """Add a ready op to those of its kind."""
    size[k] = push(heap[first[k] : first[k + 1]], size[k], score, heap, larger_first)
