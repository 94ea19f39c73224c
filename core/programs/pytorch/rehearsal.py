"""Rehearsing a step: it is recorded twice and not run, and whatever its Python did is undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.amp import GradScaler

from ...base.errors import ProgramError
from .python_state import PythonState
from .recorder import Recorder, Run
from .segment import Segment, Tree
from .step_graph import StepGraph, StepNames, step_graph
from .torch_internals import SCALER_STEP
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
    what: str = "the step cannot be recorded",
) -> None:
    """Record two calls of a step; the second has what the first makes: an optimizer's state, gradients.

    Nothing is run, so what the second call finds made is zeros. Modules, optimizers, gradients, attributes, closures,
    globals and generators are then what they were before; what the function does elsewhere (files, iterators that it
    holds) cannot be undone. `take` is called with the segment, what it shall return, the names of tensors, and whether
    the function has returned; it may raise `Enough`.
    """
    state = PythonState(function)
    changes: list[Callable[[], Any]] = []
    try:
        for _ in range(2):
            ended: list[bool] = []
            names = StepNames(function, args, kwargs, state.parameters().values())
            recorder = Recorder(tree, _giving_zeros(take, names, ended), changes, state.paths())
            with foreign_code(where, what), silent(), torch.enable_grad(), recorder.recording():
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


def graph_of_step(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> StepGraph:
    """Return the graph of a step, as it is once optimizers have their state.

    Where a `GradScaler` asks whether gradients are finite, they are taken to be.
    """
    found: list[StepGraph] = []

    def take(segment: Segment, wanted: Sequence[int], names: StepNames, ended: bool) -> None:
        if not ended:
            raise RuntimeError(
                "it reads a value there that its ops have to give first; return the tensor instead, or give the step "
                "to schedopt.optimize, which runs it in parts"
            )
        found.append(step_graph(segment, wanted, names.of_held()))

    with _finite_gradients():
        rehearse(function, args, kwargs, where, Tree(), take, "no one graph stands for the step")
    if not found:
        raise ProgramError(f"{where}: the step calls no op of PyTorch")
    return found[-1]


@contextmanager
def _finite_gradients() -> Iterator[None]:
    """Have gradient scalers do their optimizers' steps without a look at what they have found."""

    def step(scaler: Any, optimizer: torch.optim.Optimizer, state: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs)

    before = getattr(GradScaler, SCALER_STEP)
    setattr(GradScaler, SCALER_STEP, step)
    try:
        yield
    finally:
        setattr(GradScaler, SCALER_STEP, before)


def _giving_zeros(take: Take, names: StepNames, ended: list[bool]) -> Run:
    def run(segment: Segment, wanted: list[int]) -> dict[int, torch.Tensor]:
        take(segment, wanted, names, bool(ended))
        fakes = segment.all_fakes()
        return {
            number: torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device).zero_()
            for number, fake in ((number, fakes[number]) for number in wanted)
        }

    return run
