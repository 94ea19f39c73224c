"""`schedopt.optimize`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..base.errors import UsageError
from ..base.names import unknown
from ..base.options import spelled
from ..base.units import whole_number
from ..programs.options import OptimizeOptions
from ..search.registry import DEFAULT_METHOD
from .import_ import COSTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


def optimize(
    model: nn.Module | Callable[..., Any],
    inputs: Any,
    *,
    training: object = None,
    memory_limit: int | str | None = None,
    recompute: bool = True,
    costs: str = "measured",
    plan: str | os.PathLike[str] | None = None,
    method: str = DEFAULT_METHOD,
    time_limit: float | str | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    allocator: str | None = "auto",
    dynamic: bool | None = None,
    plan_limit: int = 8,
    verify: bool | None = None,
    verbose: bool = False,
) -> nn.Module:
    """Return the model as a program whose ops run in an order of less peak memory, with the same results.

    The ops are run on the example inputs, where these are, to measure their costs, unless `costs="roofline"`. A model
    is called through the guards of `torch.compile`, as one graph: a call with other shapes, dtypes or plain values, or
    after a change of the model or of PyTorch's settings, makes a plan of its own. Where the results of a plan's first
    call are not the model's, bit for bit, a warning says so, and the model is called from then on. Results have no
    gradients.

    A function is recorded at each call: its Python runs, and its ops wait until it returns or reads a value. Each
    sequence of ops has a plan of its own.

    Parameters
    ----------
    model
        A module of which PyTorch makes one graph (`torch.compile(fullgraph=True)`); or a function that does a whole
        training step: forward, backward and update, on modules and optimizers that it refers to.
    inputs
        Example inputs: a tuple of arguments, a dict of keywords, or one tensor. The first plan is for these.
    training
        Refused: to train, write the step as a function.
    memory_limit, method, time_limit, evaluations, seed
        As in `schedopt.solve`; the limit is of each plan, all that it is given included.
    allocator
        `"auto"` (default): on CUDA plans are for the bytes that PyTorch's caching allocator reserves, by its options
        and cuBLAS's workspace of now, elsewhere for live bytes. `"cuda"`, with options as in `schedopt.solve`: for that
        allocator. None: for live bytes. On CUDA the opening block of a plan is opened before it runs; a larger gain by
        a block before the weights is printed with `verbose` as the line to write.
    recompute
        Whether ops may run again where no order that is found keeps the limit, for the least added time (default); no
        op does without a limit. Random ops and those that write in place never run again.
    costs
        `measured` (default): the ops are run to plan them, for their workspace; `roofline`: no op is run, so that a
        step that does not fit into memory is planned, without workspace, by times from FLOPs and bytes.
    plan
        A schedule file of the step's graph, as `schedopt.solve(schedopt.import_model(step, inputs)).save("step.json")`
        writes it: its order is taken where the step records that graph, which it does once its optimizer has its
        state; all other ops are planned as ever. On CUDA its opening block is opened, if that is after the weights.
        (Functions)
    dynamic
        None (default) to plan anew for each new kind of call, False to refuse all that are not like the first.
    plan_limit
        Most plans that are kept; 8 by default. A call that would need another is refused; of a function, it runs in
        program order, with a warning.
    verify
        Whether the results of each plan are compared bit for bit: a model's with a call of the model itself, a
        function's with program order, on copies. By default yes, but not those of a function with `costs="roofline"`.
    verbose
        Whether to print peak memory before and after, and its bound, for each plan; not by default. With an allocator
        also what it reserves.

    Returns
    -------
    torch.nn.Module
        It is called as the model is, and returns the model's outputs, without gradients; its parameters, buffers and
        mode are the model's own. For a function it has the function's effects and returns its results; the state
        is in its optimizer, as ever.

    Raises
    ------
    ProgramError, UsageError
        If PyTorch makes no one graph of the model, the method is not used like this, a memory limit is below the bytes
        held anyway, or `plan` is of another graph.
    ScheduleError
        If no schedule that keeps the memory limit was found, or a step's results would differ from program order's.

    Examples
    --------
    >>> import torch
    >>> model, inputs = torch.nn.Linear(8, 4).eval(), torch.ones(2, 8)
    >>> optimized = schedopt.optimize(model, inputs, evaluations=10)
    >>> with torch.no_grad():
    ...     torch.equal(optimized(inputs), model(inputs))
    True
    """
    given = locals()
    import torch
    from torch import nn

    from ..programs.pytorch.own_step import PlannedStep
    from ..programs.pytorch.plans import PlanSettings
    from ..programs.pytorch.torch_internals import forgotten_sources

    is_trained = training not in (None, "none")
    if is_trained or isinstance(model, torch.optim.Optimizer):
        what = "training=" if is_trained else f"the optimizer, {type(model).__name__},"
        raise UsageError(
            f"{what} is not for optimize; write the step: def step(x): loss = model(x); loss.backward(); "
            "optimizer.step(); optimizer.zero_grad(); return loss, and call schedopt.optimize(step, inputs)"
        )
    if not isinstance(model, nn.Module) and (not callable(model) or isinstance(model, type)):
        raise UsageError(
            f"optimize takes a PyTorch module, or a function that does a training step, not {type(model).__name__}; "
            "call optimize(model, inputs)"
        )
    if dynamic:
        raise UsageError("dynamic=True is not supported: a plan is for fixed shapes; leave it out for a plan per shape")
    again = False if recompute is True and memory_limit is None else recompute
    options = OptimizeOptions.picked({**given, "recompute": again})
    kept = whole_number(plan_limit, spelled("plan_limit"), 1)
    if costs not in COSTS:
        raise unknown("costs", costs, COSTS)
    if plan is not None and isinstance(model, nn.Module):
        raise UsageError("plan= is for a step function; apply writes a model in the order of a schedule")
    if verify is None:
        verify = costs == "measured" or isinstance(model, nn.Module)
    file = None if plan is None else os.fspath(plan)
    settings = PlanSettings(options, method, dynamic, kept, verify, costs, file, print if verbose else None)
    if not isinstance(model, nn.Module):
        with forgotten_sources():
            return PlannedStep(model, inputs, settings)
    from ..programs.pytorch.optimize import PlannedModel

    if isinstance(model, (PlannedModel, PlannedStep)):
        raise UsageError("the model is optimized already; optimize the module that it was made of")
    with forgotten_sources():
        return PlannedModel(model, inputs, settings)
