"""What a step has recorded since ops last ran."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.weak import TensorWeakRef

from .recorded import Deferred, RecordedOp, TensorKey, layout_of
from .torch_internals import FakeTensorMode, storage_of


class Tree:
    """The ops that the calls of a step have recorded, and the mode of their fakes."""

    def __init__(self) -> None:
        self.root = RecordedOp()
        self.fake_mode = FakeTensorMode(allow_fallback_kernels=False)


class Segment:
    """The ops that wait, from the last that have run to now."""

    def __init__(self, root: RecordedOp) -> None:
        self.last = root  # its path is all of them
        self.held: dict[int, torch.Tensor] = {}  # tensors with values that they work on, by number
        self.numbers: list[Any] = []  # of their arguments, which may differ in the next call
        self.made: list[TensorWeakRef] = []  # tensors that they make, while anyone refers to them
        self.next = 0
        self.draws = False
        self.number_of: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.read: set[int] = set()
        self.written: set[int] = set()
        self.fakes: dict[int, torch.Tensor] | None = None
        self.owners: dict[int, int] = {}

    def value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the tensor that has the values, or None if an op has to run first."""
        if not isinstance(tensor, Deferred):
            return tensor
        return self.held.get(tensor.number) if tensor.value is None else tensor.value

    def number(self, tensor: torch.Tensor) -> int | None:
        """Return the number of a tensor, or None if it has values and is met for the first time."""
        if isinstance(tensor, Deferred):
            return tensor.number if tensor.value is None else self.number_of.get(id(tensor.value))
        return self.number_of.get(id(tensor))

    def meet(self, tensor: torch.Tensor) -> TensorKey:
        """Give a number to a tensor with values."""
        number = self.next
        self.next += 1
        self.held[number] = tensor
        self.number_of[id(tensor)] = number
        return TensorKey(number, layout_of(tensor), self.storages.setdefault(storage_of(tensor), number))

    def go_on(self, node: RecordedOp, numbers: list[Any], draws: bool) -> None:
        """Add an op."""
        self.last = node
        self.next = node.next
        self.numbers += numbers
        self.draws |= draws
        self.read.update(storage_of(self.held[number]) for number in node.reads)
        self.written.update(storage_of(self.held[number]) for number in node.writes)

    def alive(self) -> dict[int, list[Deferred]]:
        """Return the tensors that wait for an op and that anyone still refers to, by number."""
        found: dict[int, list[Deferred]] = {}
        for reference in self.made:
            tensor = reference()
            if tensor is not None:
                found.setdefault(tensor.number, []).append(tensor)
        return found

    def all_fakes(self) -> dict[int, torch.Tensor]:
        """Return a fake of each tensor, by number."""
        if self.fakes is None:
            self.fakes = {}
            for node in self.last.path():
                self.add_fakes(node)
        return self.fakes

    def add_fakes(self, node: RecordedOp) -> None:
        """Add the fakes of an op, and whose memory each has."""
        assert self.fakes is not None
        self.fakes.update(node.fakes)
        for number, fake in node.fakes.items():
            self.owners.setdefault(storage_of(fake), number)
