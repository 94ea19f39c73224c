"""Whether a program in another order gives the same results, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..runtime import check_equal
from .program import TorchProgram
from .replay import Replay
from .run import digest, digests
from .without_data import refuse_without_data


def check_module(program: TorchProgram, module: fx.GraphModule) -> None:
    """Run a program in its own order, then `module` in another; raise `ScheduleError` if a result differs."""
    refuse_without_data(program.name, program.arguments)
    expected = results_of(program, program.module, program.arguments)
    check_equal(program.name, expected, results_of(program, module, program.arguments))


def results_of(program: TorchProgram, module: fx.GraphModule, arguments: Sequence[Any]) -> dict[str, str]:
    """Run a program in some order; return digests by the names of its results and of its arguments as they become.

    Random numbers are the same in every run, and the arguments stay as they are.
    """
    names = [f"result {number}" for number in range(len(program.results))]
    names += [f"'{node.name}'" for node in program.module.graph.find_nodes(op="placeholder")]
    found = digests_of_run(program.name, module, arguments, program.training != "none")
    return dict(zip(names, found, strict=True))


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
