"""A schedule: a total order of ops, each on a device, and of the transfers that it needs; and its addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import INT32_MAX, IndexArray, IntArray, frozen
from ..base.errors import UsageError
from ..graph.graph import CostGraph


@dataclass(frozen=True, eq=False, repr=False)
class Schedule:
    """Steps in the order they run; nothing is checked here, `verify` and `simulate` do.

    Parameters
    ----------
    items
        Shape `(steps,)`: an op's index, or `~tensor` for a transfer of that tensor.
    sources
        Shape `(steps,)`: the device an op runs on, or the one a transfer reads from.
    targets
        Shape `(steps,)`: the device an op runs on, or the one a transfer writes to.

    Examples
    --------
    Ops 0 and 1 on devices 0 and 1, and tensor 0 sent between them:

    >>> schedopt.Schedule.from_steps(items=[0, ~0, 1], sources=[0, 0, 1], targets=[0, 1, 1])
    Schedule(2 ops and 1 transfer on 2 devices)
    """

    items: IndexArray
    sources: IndexArray
    targets: IndexArray

    @staticmethod
    def from_steps(items: Any, sources: Any, targets: Any) -> Schedule:
        """Build from anything array-like.

        Raises
        ------
        UsageError
            If the three are not flat, of one length, and of whole numbers.
        """
        columns = [np.asarray(column) for column in (items, sources, targets)]
        if any(column.ndim != 1 or len(column) != len(columns[0]) for column in columns):
            shapes = ", ".join(str(column.shape) for column in columns)
            raise UsageError(f"items, sources and targets have a number per step, not the shapes {shapes}")
        for column in columns:
            if column.size and (column.dtype.kind not in "iu" or column.min() < -INT32_MAX or column.max() > INT32_MAX):
                raise UsageError("items, sources and targets of a schedule are whole numbers of 32 bits")
        return Schedule(*(frozen(column, np.int32) for column in columns))

    @staticmethod
    def single_device(order: NDArray[Any]) -> Schedule:
        """Run all ops on device 0 in this order; no transfers."""
        zeros = np.zeros(len(order), np.int32)
        return Schedule.from_steps(order, zeros, zeros)

    def placement(self, graph: CostGraph) -> IndexArray:
        """Return the device of each op, shape `(ops,)`; -1 for an op that does not appear."""
        placement = np.full(graph.num_ops, -1, np.int32)
        ops = self.items >= 0
        placement[self.items[ops]] = self.targets[ops]
        return frozen(placement, np.int32)

    def op_order(self) -> IndexArray:
        """Return the ops in the order they run, on whatever device."""
        return frozen(self.items[self.items >= 0], np.int32)

    def first_runs(self) -> IndexArray:
        """Return the ops in the order of their first runs."""
        order = self.op_order()
        return frozen(order[np.sort(np.unique(order, return_index=True)[1])], np.int32)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        ops = self.items >= 0
        parts = [(int(ops.sum()), "op"), (int((~ops).sum()), "transfer"), (len(np.unique(self.targets)), "device")]
        ops_text, transfers, devices = (f"{count:,} {noun}{'s' * (count != 1)}" for count, noun in parts)
        return f"Schedule({ops_text}{'' if ops.all() else f' and {transfers}'} on {devices})"


@dataclass(frozen=True)
class Arena:
    """Bytes of one device beside its persistent bytes."""

    size: int  # bytes, a multiple of the alignment
    # the most bytes alive at any step of this schedule, each piece rounded up to the alignment: no addresses for it
    # take less
    bound: int

    @property
    def is_optimal(self) -> bool:
        """Whether no addresses for this schedule take less."""
        return self.size == self.bound


@dataclass(frozen=True, eq=False)
class Addresses:
    """Offsets of everything that the steps of a schedule make; persistent bytes lie outside."""

    alignment: int  # what the offset of every buffer is a multiple of; a view lies within its buffer
    arenas: tuple[Arena, ...]  # one per device
    # per step the offsets of the data tensors that it makes, in the order of the op's outputs; of a transfer, that of
    # the copy
    made: tuple[tuple[int, ...], ...]
    workspace: IntArray  # shape `(steps,)`: the offset of the op's workspace; 0 where it has none
    is_repeatable: bool = True  # whether the same call gives the same offsets: not if time ended the packing

    @property
    def is_optimal(self) -> bool:
        """Whether every arena equals its bound."""
        return all(arena.is_optimal for arena in self.arenas)


@dataclass(frozen=True)
class Reserved:
    """The worst bytes that a caching allocator reserves where a schedule runs again and again, weights resident."""

    allocator: str  # with its options, as `cuda:expandable_segments:True`
    peak: int
    bound: int  # no order and no opening block reserves less
    # one allocation that is freed at once, from which later ones are cut, before the weights or after them; 0: none
    opening_block: int = 0
    is_before_weights: bool = True
    # of a device on which it runs, with the opening block or without: free segments are given back before an
    # allocation fails, so often in each run
    least_capacity: int = 0
    retries: int = 0

    @property
    def is_optimal(self) -> bool:
        """Whether no order reserves less."""
        return self.peak == self.bound

    @property
    def opening(self) -> str:
        """The line that opens the block, and its place; empty without one."""
        return opening_line(self.opening_block, self.is_before_weights)


def opening_line(block: int, is_before_weights: bool) -> str:
    """Return the line that opens a block of so many bytes, and its place; nothing without one."""
    place = f"{'before' if is_before_weights else 'after'} the model is moved to the device"
    return f'torch.empty({block}, dtype=torch.uint8, device="cuda"), {place}' if block else ""
