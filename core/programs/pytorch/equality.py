"""Whether a program in another order gives the same results, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import fx

from ...errors import ScheduleError
from .program import TorchProgram
from .run import digests_of_run


def check_equal(program: TorchProgram, module: fx.GraphModule, arguments: Sequence[Any]) -> None:
    """Run a program in its own order and `module` in another, and compare all results bit for bit.

    Both run on copies of their arguments, with the same random numbers; what they change in place is compared too.

    Raises
    ------
    ScheduleError
        If a result differs; the message names it.
    """
    grad = program.training != "none"
    expected = digests_of_run(program.module, copy.deepcopy(program.arguments), grad)
    found = digests_of_run(module, copy.deepcopy(arguments), grad)
    names = [f"result {number}" for number in range(len(program.results))]
    names += [f"'{node.name}'" for node in program.module.graph.find_nodes(op="placeholder")]
    for name, one, other in zip(names, expected, found, strict=True):
        if one != other:
            raise ScheduleError(f"{program.name}: {name} would not be bitwise what it is in program order")
