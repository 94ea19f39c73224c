"""`schedopt.optimize`: a model as a program whose ops run in an order of less peak memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn

from ...errors import UsageError
from ...problem import Problem
from ...solve import solve
from ...units import parse_seconds
from .apply import export_in_order, reorder
from .costs import measured_costs
from .equality import check_equal
from .example_call import ExampleCall
from .importer import graph_of
from .program import TorchProgram, program_of


class TrainingStep(nn.Module):
    """A training step in the order of a schedule, called as the model is; see `optimize`.

    Parameters
    ----------
    program
        What to run; the model's own parameters and buffers are among its arguments.
    module
        The program in another order.
    call
        What the program was traced with.
    """

    def __init__(self, program: TorchProgram, module: fx.GraphModule, call: ExampleCall) -> None:
        super().__init__()
        self.module = module
        self._call = call
        self._arguments = program.arguments
        self._roles = program.roles

    @torch.enable_grad()
    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run one step on these inputs: update parameters and optimizer state in place and return the loss.

        Raises
        ------
        UsageError
            If an input has another shape or type than that which the step was made for; then nothing is updated.
        """
        given = iter(self._call.tensors_of(args, kwargs))
        values = [
            next(given) if role == "input" else value for value, role in zip(self._arguments, self._roles, strict=True)
        ]
        loss: torch.Tensor = self.module(*values)
        return loss


def _checked(model: Any, time_limit: float | str | None) -> float | None:
    """Refuse what is no model, and return the time limit in seconds."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"a model is a PyTorch module, not {type(model).__name__}; optimize(model, inputs)")
    return None if time_limit is None else parse_seconds(time_limit)


def optimize(
    model: nn.Module,
    inputs: Any,
    *,
    training: str = "none",
    method: str = "auto",
    time_limit: float | str | None = None,
    evaluations: int | None = None,
    seed: int = 0,
) -> nn.Module:
    """Return the model as a program whose ops run in an order of less peak memory, with the same results.

    The ops are run on the example inputs, where these are, to measure their costs. The results are bitwise those of the
    model as it is exported; where PyTorch takes a fused path that it cannot export (`nn.MultiheadAttention` in
    evaluation, without gradients), the model itself differs from that in the last bits.

    Parameters
    ----------
    model
        Any module that `torch.export` can trace.
    inputs
        Example inputs: a tuple of arguments, a dict of keywords, or one tensor. The result is for their shapes.
    training
        `none` for the forward pass; `sgd` or `adam` for a training step.
    method, time_limit, evaluations, seed
        As in `schedopt.solve`: how to find the order, for how long or how many complete schedules, from which seed.

    Returns
    -------
    torch.nn.Module
        It shares the model's parameters and is called as the model is. Forward it is a `GraphModule` that returns what
        the model returns; call it under `torch.no_grad()`, as autograd keeps tensors that the order counts as free. In
        training it is a `TrainingStep`: it updates the parameters in place and returns the loss.

    Raises
    ------
    ProgramError, UsageError
        If the model cannot be traced, or the method not used like this.
    ScheduleError
        If the results would differ from those in program order.

    Examples
    --------
    >>> import torch
    >>> model, inputs = torch.nn.Linear(8, 4).eval(), torch.ones(2, 8)
    >>> optimized = schedopt.optimize(model, inputs, evaluations=10)
    >>> with torch.no_grad():
    ...     torch.equal(optimized(inputs), model(inputs))
    True
    """
    seconds = _checked(model, time_limit)
    program = program_of(model, inputs, training)
    graph = graph_of(program, measured=measured_costs(program, timed_runs=0))
    found = solve(Problem(graph), method, evaluations=evaluations, time_limit=seconds, seed=seed).schedule
    order = found.op_order().tolist()
    module = reorder(program, graph, order)
    check_equal(program, module, program.arguments)
    if training != "none":
        return TrainingStep(program, module, ExampleCall(model.forward, inputs))
    return export_in_order(program, graph, order).module()
