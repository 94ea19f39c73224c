"""Rehearsing a step: it is recorded twice and not run, and whatever its Python did is undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .python_state import PythonState
from .recorder import Recorder, Run
from .segment import Segment, Tree
from .step_graph import StepNames
from .tracing import foreign_code, silent

Take = Callable[[Segment, Sequence[int], StepNames, bool], Any]


class Enough(BaseException):
    """Ends a rehearsal."""


def rehearse(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    where: str,
    tree: Tree,
    take: Take,
) -> None:
    """Record two calls of a step; the second has what the first makes: an optimizer's state, gradients.

    Nothing is run, so what the second call finds made is zeros. Modules, optimizers, gradients, attributes, closures,
    globals and generators are then what they were before; what the function does elsewhere (files, iterators that it
    holds) cannot be undone.

    Parameters
    ----------
    function, args, kwargs
        The step and its inputs.
    where
        What errors call it.
    tree
        Where to record.
    take
        Called with the ops recorded, what they shall return, the names of tensors, and whether the function has
        returned; if it has not, it has asked for a value. It may raise `Enough`.

    Raises
    ------
    ProgramError
        If the step fails, or cannot be recorded; the message names the line.
    """
    state = PythonState(function)
    changes: list[Callable[[], Any]] = []
    try:
        for _ in range(2):
            ended: list[bool] = []
            names = StepNames(function, args, kwargs, state.parameters().values())
            recorder = Recorder(tree, _giving_zeros(take, names, ended), changes, state.paths())
            with foreign_code(where, "the step cannot be recorded"), silent(), recorder.recording():
                returned = function(*args, **kwargs)  # what the caller will hold has to be there
            ended.append(True)
            recorder.flush()
            recorder.settle(returned)
            del returned
    except Enough:
        pass
    finally:
        for undo in reversed(changes):
            undo()
        state.restore()


def _giving_zeros(take: Take, names: StepNames, ended: list[bool]) -> Run:
    def run(segment: Segment, wanted: list[int]) -> dict[int, torch.Tensor]:
        take(segment, wanted, names, bool(ended))
        fakes = segment.all_fakes()
        return {
            number: torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device).zero_()
            for number, fake in ((number, fakes[number]) for number in wanted)
        }

    return run
