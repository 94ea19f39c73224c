"""Whether a program in another order gives the same results, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ...base.errors import ScheduleError
from .program import TorchProgram
from .replay import Replay
from .run import digest, digests
from .without_data import refuse_without_data


def check_equal(program: TorchProgram, module: fx.GraphModule, arguments: Sequence[Any]) -> None:
    """Run a program in its own order, then `module` in another, and compare all results bit for bit.

    Both run with the same random numbers, and leave their arguments as they are; what an argument would have become is
    compared, too. Of the first run only digests are kept.
    """
    refuse_without_data(program.name, program.arguments)
    grad = program.training != "none"
    expected = digests_of_run(program.name, program.module, program.arguments, grad)
    found = digests_of_run(program.name, module, arguments, grad)
    names = [f"result {number}" for number in range(len(program.results))]
    names += [f"'{node.name}'" for node in program.module.graph.find_nodes(op="placeholder")]
    for name, one, other in zip(names, expected, found, strict=True):
        if one != other:
            raise ScheduleError(f"{program.name}: {name} would not be bitwise what it is in program order")


def digests_of_run(name: str, module: fx.GraphModule, arguments: Sequence[Any], grad: bool) -> list[str]:
    """Run a program op by op; return digests of its results, then of what its arguments would have become."""
    run = _Digests(name, module)
    results = digests(run.run(arguments, grad))
    return results + [run.written.get(number) or digest(value) for number, value in enumerate(arguments)]


class _Digests(Replay):
    """Keeps the digest of what each argument that is written to becomes, by its number."""

    def __init__(self, name: str, module: fx.GraphModule) -> None:
        super().__init__(name, module)
        self.written: dict[int, str] = {}

    def wrote(self, number: int, value: torch.Tensor) -> None:
        """Digest what an argument has become."""
        self.written[number] = digest(value)
