"""Plans: traced programs in a good order, one for each kind of call, chosen by guards.

The seam: a `Tracer` says what is called, what a trace of it depends on besides the inputs, and how to trace it;
`Planned` does the rest: it binds inputs, compares the facts of a call with those of each plan (`guards`), makes a plan
where none fits (trace, measure, solve, reorder, verify), and runs it on the tensors that the tracer holds now.
"""

from __future__ import annotations

import copy
import gc
import inspect
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import fx, nn

from ...base.errors import ProgramError, SchedoptError, UsageError
from ...base.units import format_bytes
from ...model.simulator import input_peak
from ...report.result import Result
from ...solve.solve import solve
from ..options import OptimizeOptions
from ..pipeline import check_limit, limit_sentence
from ..system_allocator import return_freed_memory
from .apply import check_module, reorder
from .costs import measured_costs
from .guards import Facts, Inputs, State, autocast_devices, bind, difference, settings_facts
from .importer import graph_of
from .node_order import OrderedGraph
from .program import TorchProgram

PLAN_LIMIT = 8
"""Plans kept for one model: as `torch._dynamo.config.recompile_limit`."""
log = logging.getLogger("schedopt.optimize")


Arguments = Callable[[Sequence[Any], Mapping[str, torch.Tensor]], Sequence[Any]]
Finish = Callable[[Any, Sequence[Any], Mapping[str, torch.Tensor]], Any]


class Traced(NamedTuple):
    """What a tracer gives for one kind of call."""

    # its `arguments` are those with which costs are measured and results compared, on copies
    program: TorchProgram
    # (leaves of the call's `(args, kwargs)`, tensors of `Tracer.state`) -> the program's arguments
    arguments: Arguments
    # (what the module returned, leaves, tensors) -> what the caller gets; does what is left to do after the run
    result: Finish


class Tracer(Protocol):
    """What `Planned` knows of the thing that it plans: a model, a training step, a step function."""

    @property
    def name(self) -> str:
        """What to call it in messages."""

    @property
    def signature(self) -> inspect.Signature:
        """What its inputs are called, and their defaults."""

    def state(self) -> State:
        """Return what a trace depends on besides the inputs, and the tensors that the thing holds now, by name."""

    def check(self, inputs: Inputs) -> None:
        """Raise `UsageError` for inputs that no trace stands for, whatever their kind."""

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
        """Trace it with these inputs, without a change of anything that it holds."""


@dataclass(frozen=True)
class PlanSettings:
    """How plans are made."""

    options: OptimizeOptions = OptimizeOptions()
    method: str = "auto"
    dynamic: bool | None = None  # False: refuse all but the first kind of call
    plan_limit: int = PLAN_LIMIT  # plans kept
    verify: bool = True  # compare results with program order, bit for bit
    # called with a line per plan: peak memory before and after, and its bound
    note: Callable[[str], None] | None = None


class Plan(NamedTuple):
    """A program in a good order, and what calls it is for; it holds no tensor that the caller may replace."""

    # of the calls that it stands for: facts of inputs, model and PyTorch's settings
    structure: Any
    facts: tuple[Facts, ...]
    module: fx.GraphModule
    # as in `Traced`
    arguments: Arguments
    result: Finish
    grad: bool  # with autograd on, as steps that train; see `digests_of_run`


class Planned(nn.Module):
    """What a tracer traces, in orders of less peak memory: a plan for each kind of call, and the same results.

    A copy, and what a pickle holds, makes its plans anew at its first call.
    """

    def __init__(self, tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any], settings: PlanSettings) -> None:
        super().__init__()
        self._tracer = tracer
        self._settings = settings
        self._plans: list[Plan] = []
        self._only: tuple[Facts, ...] | None = None  # with dynamic=False: what each call must be like
        plan = self._plan_for(bind(tracer.signature, args, kwargs), tracer.state())
        if settings.dynamic is False:
            self._only = plan.facts

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the plan for these inputs, which is made where there is none yet."""
        inputs = bind(self._tracer.signature, args, kwargs)
        state = self._tracer.state()
        plan = self._plan_for(inputs, state)
        with as_traced(plan.grad):
            returned = plan.module(*plan.arguments(inputs.leaves, state.tensors))
            return plan.result(returned, inputs.leaves, state.tensors)

    def _plan_for(self, inputs: Inputs, state: State) -> Plan:
        """Return the plan for a call; make it if there is none and it may be made."""
        self._tracer.check(inputs)
        facts = inputs.facts, state.facts, settings_facts()
        for plan in self._plans:
            if plan.facts == facts and plan.structure == inputs.structure:
                return plan
        self._refuse_or_go_on(facts)
        try:
            plan = self._made_for(inputs)
        except SchedoptError as error:  # `from None`: below it lies PyTorch's own, which are long and say less
            if isinstance(error, ProgramError) and self._plans:
                error = ProgramError(f"{self._difference(facts)}; no plan can be made for that: {error}")
            raise error.with_traceback(None) from None
        self._plans.append(plan)
        return plan

    def _refuse_or_go_on(self, facts: tuple[Facts, ...]) -> None:
        """Raise `UsageError` if no further plan may be made."""
        ours, count = self._settings, len(self._plans)
        if self._only is not None and (found := difference(sum(self._only, ()), sum(facts, ()))):
            raise UsageError(f"{found}; it was made with dynamic=False")
        if count >= ours.plan_limit:
            raise UsageError(
                f"{self._difference(facts)}; there are {count} plans, one per kind of call, and plan_limit={count} "
                "allows no more: give inputs of fewer shapes, or a higher limit"
            )

    def _difference(self, facts: tuple[Facts, ...]) -> str:
        return difference(sum(self._plans[-1].facts, ()), sum(facts, ())) or "inputs are nested otherwise than before"

    def _made_for(self, inputs: Inputs) -> Plan:
        """Trace the call and put the program in order."""
        with torch.inference_mode(False), torch.enable_grad():  # as anywhere else: a trace depends on these, too
            args, kwargs = inputs.args, inputs.kwargs
            if any(isinstance(leaf, torch.Tensor) and leaf.is_inference() for leaf in inputs.leaves):
                args, kwargs = copy.deepcopy((args, kwargs))  # autograd takes no tensors of inference mode
            traced = self._tracer.trace(args, kwargs)
        # The tracer knows by now which attributes the model itself writes, which are no facts any more.
        facts = inputs.facts, self._tracer.state().facts, settings_facts()
        grad = traced.program.training != "none"
        with as_traced(grad):
            module = in_order(traced.program, self._settings)
        return Plan(inputs.structure, facts, module, traced.arguments, traced.result, grad)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": []}

    def __repr__(self) -> str:
        plans = len(self._plans)
        return f"{type(self).__name__}({self._tracer.name}, {plans} plan{'s' * (plans != 1)})"


def in_order(program: TorchProgram, settings: PlanSettings) -> fx.GraphModule:
    """Measure, solve, reorder and verify a program; the logger `schedopt.optimize` is told its `OrderedGraph`."""
    start = time.monotonic()
    on_cuda = any(isinstance(value, torch.Tensor) and value.is_cuda for value in program.arguments)
    graph = graph_of(program, measured=measured_costs(program, "cuda" if on_cuda else "cpu", timed_runs=0))
    result = solve(settings.options.problem(graph), settings.method, **settings.options.budget)
    check_limit(program.name, result, remedy="let ops run again with recompute=True")
    module = reorder(program, graph, result.schedule.op_order().tolist())
    if settings.verify:
        check_module(program, module)
    if settings.note is not None:
        settings.note(_summary(program.name, result))
    before, peak, bound = int(result.input_value), int(result.value), int(result.lower_bound)
    log.info("%s", OrderedGraph(program.name, graph.num_ops, before, peak, bound, time.monotonic() - start))
    gc.collect(1)  # what planning took goes back before the first step takes its own; older objects take a second
    return_freed_memory()
    return module


def _summary(name: str, result: Result) -> str:
    problem = result.problem
    before = format_bytes(input_peak(problem.graph))
    text = f"{name}: peak memory {before} -> {format_bytes(result.peak_memory)}"
    if problem.recompute:
        return f"{text}. {limit_sentence(result)}"
    about = "optimal" if result.status == "optimal" else f"gap {100 * result.gap:.2f}%"
    return f"{text} (bound {format_bytes(int(result.lower_bound))}, {about})"


@contextmanager
def as_traced(grad: bool) -> Iterator[None]:
    """Run a traced program: its casts are ops of its own, and so is its backward."""
    with ExitStack() as stack:
        for device in autocast_devices():
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if grad:  # what it updates is no inference tensor
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(grad))
        yield
