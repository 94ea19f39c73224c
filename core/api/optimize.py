"""`schedopt.optimize`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base.errors import UsageError
from ..base.options import spelled
from ..base.units import whole_number
from ..programs.options import OptimizeOptions
from ..search.registry import DEFAULT_METHOD

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


def optimize(
    model: nn.Module | Callable[..., Any],
    inputs: Any,
    *,
    training: str = "none",
    memory_limit: int | str | None = None,
    recompute: bool = True,
    method: str = DEFAULT_METHOD,
    time_limit: float | str | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    dynamic: bool | None = None,
    plan_limit: int = 8,
    verify: bool = True,
    verbose: bool = False,
) -> nn.Module:
    """Return the model as a program whose ops run in an order of less peak memory, with the same results.

    The ops are run on the example inputs, where these are, to measure their costs. The results are bitwise those of the
    model as it is exported; where PyTorch takes a fused path that it cannot export (`nn.MultiheadAttention` in
    evaluation, without gradients), the model itself differs from that in the last bits.

    What was traced is guarded, before anything is run. A call with other shapes, dtypes, devices, strides or plain
    values, or after a change of the model (its mode, its dtype, a frozen or replaced parameter, an attribute, a hook)
    or of PyTorch's settings (autocast, default dtype and device, deterministic algorithms), makes a plan of its own.
    Attributes are those of its modules, and what these hold in containers and plain objects. What the model reads
    elsewhere (globals, closures, the environment) cannot be seen: optimize it again after a change there.

    A function is recorded at each call: its Python runs, and its ops wait until it returns or reads a value. So
    whatever an optimizer, a schedule of learning rates, a loss scale or a counter does is what it is without; each
    sequence of ops has a plan of its own.

    Parameters
    ----------
    model
        Any module that `torch.export` can trace; or a function that does a whole training step: forward, backward and
        update, on modules and optimizers that it refers to.
    inputs
        Example inputs: a tuple of arguments, a dict of keywords, or one tensor. The first plan is for these.
    training
        `none` for the forward pass (default); `sgd` or `adam` for a training step of a module, with its
        parameters as in `adam:learning_rate=0.01,weight_decay=0.1` (`beta1`, `beta2`, `epsilon`).
        A function has its own.
    memory_limit
        Most bytes of each plan, all that it is given included, as `8589934592` or `"8GiB"`, or a share of program
        order's peak, as `"70%"`; by default none, and the order of least peak is what is looked for.
    recompute
        Whether ops may run again where no order that is found keeps the limit, for the least added time (default); no
        op does without a limit. Random ops and those that write in place never run again.
    method, time_limit, evaluations, seed
        As in `schedopt.solve`: how to find the order, for how long or how many complete schedules, from which seed.
    dynamic
        None (default) to plan anew for each new kind of call, False to refuse all that are not like the first.
    plan_limit
        Most plans that are kept; 8 by default. A call that would need another is refused; of a function, it runs in
        program order, with a warning.
    verify
        Whether each plan is run once, on copies, and its results compared bit for bit with those in program order
        (default).
    verbose
        Whether to print peak memory before and after, and its bound, for each plan; not by default.

    Returns
    -------
    torch.nn.Module
        It is called as the model is; its parameters, buffers and mode are the model's own. Forward it returns what the
        model returns, without gradients. In training it updates the parameters in place and returns the loss; the
        optimizer's state is one for all plans. For a function it does what the function does and returns what it
        returns; the state is in its optimizer, as ever.

    Raises
    ------
    ProgramError, UsageError
        If the model cannot be traced, the method not used like this, or a memory limit is below what is held anyway.
    ScheduleError
        If no schedule that keeps the memory limit was found, or the results would differ from those in program order.

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

    from ..programs.pytorch.optimize import PlannedModel
    from ..programs.pytorch.own_step import PlannedStep
    from ..programs.pytorch.plans import Planned, PlanSettings

    if not isinstance(model, nn.Module) and (not callable(model) or isinstance(model, type)):
        raise UsageError(
            f"what is optimized is a PyTorch module, or a function that does a training step, not "
            f"{type(model).__name__}; optimize(model, inputs)"
        )
    if training != "none" and not isinstance(model, nn.Module):
        raise UsageError(f"a function does its own update; leave out training={training!r}, or give the module")
    if isinstance(model, (Planned, PlannedStep, torch.jit.ScriptModule)):
        what = "compiled by TorchScript" if isinstance(model, torch.jit.ScriptModule) else "optimized already"
        raise UsageError(f"the model is {what}; optimize the module that it was made of")
    if dynamic:
        raise UsageError("dynamic=True is not supported: a plan is for fixed shapes; leave it out for one per shape")
    again = False if recompute is True and memory_limit is None else recompute
    options = OptimizeOptions.picked({**given, "recompute": again})
    kept = whole_number(plan_limit, spelled("plan_limit"), 1)
    settings = PlanSettings(options, method, dynamic, kept, verify, print if verbose else None)
    if not isinstance(model, nn.Module):
        return PlannedStep(model, inputs, settings)
    return PlannedModel(model, inputs, training, settings)
