"""A training step of the user's own: recorded at each call, and run in an order of less peak memory."""

from __future__ import annotations

import functools
import inspect
import math
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from ...base.errors import ProgramError, ScheduleError, UsageError
from ...base.units import format_bytes, format_microseconds
from ...model.simulator import input_peak
from ...search.options import Share
from .dynamo_internals import BoxedCodeGen
from .plans import Facts, PlanSettings, as_traced, difference, graph_for, input_facts, ordered, settings_facts
from .program import as_call
from .recorder import Deferred, Recorder, Segment, Tree
from .run import begin_anew, check_module, held_bytes
from .step_graph import Enough, PythonState, StepNames, has_lists, rehearse, run_in_order, step_graph
from .torch_internals import current_modes, disable_torch_function, entered, pytree, storage_of, write_count
from .tracing import RECORDING, device_of

_MOST_KINDS = 1000


class _Plan(NamedTuple):
    """The plan of recorded ops, and the numbers of the tensors that it returns."""

    wanted: tuple[int, ...]
    module: fx.GraphModule | None  # None: in program order
    peak: int = 0  # bytes
    saved: frozenset[int] = frozenset()  # numbers of tensors that it lets go of


class PlannedStep(nn.Module):
    """A step whose ops are recorded at each call, and run by plans when it returns or reads; see `optimize`."""

    def __init__(self, function: Callable[..., Any], inputs: Any, settings: PlanSettings) -> None:
        super().__init__()
        self._function = function
        self._settings = settings
        self._limit: Any = settings.options.memory_limit
        self._name = step_name(function)
        self._trees: dict[Facts, Tree] = {}
        self._plans = 0
        self._notes: list[str] = []
        self._at_limit = False
        self._parts = 0  # of this call
        self._most_parts = 1
        self._planned_parts = 0
        self._is_planned: dict[Any, bool] = {}  # whether a call with inputs of a kind ran by a plan
        # peaks of the parts of the first call in program order, all that other parts hold included, for a limit that is
        # a share of them, and their maximum
        self._peaks: list[int] = []
        self._peak: int | None = None
        self._is_scheduled = False  # whether a plan is the schedule that was given
        call = as_call(inputs)
        self._only = input_facts(inspect.signature(function), *call) if settings.dynamic is False else None
        state = PythonState(function)
        self._trained = list(state.parameters().values())
        self._optimizers = [optimizer for _, optimizer in state.optimizers]
        try:
            with RECORDING:
                ops, seconds = rehearse(function, call, self._name, self._tree(), self._take)
            whole, each = (format_microseconds(1e6 * seconds / parts) for parts in (1, max(1, ops)))
            if ops:
                self._notes.append(
                    f"{self._name}: a call takes {whole} to record {ops:,} ops before they run, {each} each"
                )
        except ProgramError:
            if not self._plans:  # else the first step is as it should be, and the second on zeros is not
                raise
        if settings.schedule is not None and not self._is_scheduled:
            raise UsageError(
                f"{settings.schedule}: it is no schedule of what {self._name} records with these inputs; solve "
                "schedopt.import_model(step, inputs), or the graph that import wrote of it, and save the result"
            )
        self._give_notes()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Do one step, and return the function's results; its tensors have no graph of autograd."""
        with RECORDING:
            return self._step(args, kwargs)

    def _step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with disable_torch_function():  # modes of functions see the step's calls alone
            if self._only is not None:
                facts = input_facts(inspect.signature(self._function), args, kwargs)
                if found := difference(self._only, facts):
                    raise UsageError(f"{found}; it was made with dynamic=False")
            kind = (*kwargs, *map(_kind_of, pytree.tree_leaves((args, kwargs))))
            recorder = self._recorder(args, kwargs) if self._is_planned.get(kind, True) else None
        if recorder is None:
            return pytree.tree_map_only(
                torch.Tensor, torch.Tensor.detach, RECORDING.call(self._function, *args, **kwargs)
            )
        written = {id(parameter): write_count(parameter) for _, parameter in self._trained}
        known = {id(optimizer): len(optimizer.state) for optimizer in self._optimizers}
        try:
            returned = recorder.call(self._function, args, kwargs)
            recorder.flush()
            with disable_torch_function():
                returned = recorder.settle(returned)
        except BaseException:
            try:
                recorder.recover()  # an op that fails would have ended it earlier: its error goes out
            finally:
                for _, optimizer in PythonState(self._function).optimizers:
                    new = {id(parameter) for parameter in [*optimizer.state][known.get(id(optimizer), sys.maxsize) :]}
                    for parameter, entries in list(optimizer.state.items()):  # the next step makes what lacks
                        lacks = any(isinstance(value, Deferred) and value.value is None for value in entries.values())
                        is_unused = id(parameter) in new and written.get(id(parameter)) == write_count(parameter)
                        if lacks or is_unused:
                            del optimizer.state[parameter]
            raise
        self._most_parts = max(self._most_parts, self._parts)
        if self._peaks and self._peak is None:
            self._peak = max(self._peaks)
        elif self._parts > 0 or not recorder.is_waiting:
            if len(self._is_planned) >= _MOST_KINDS:
                self._is_planned.clear()
            self._is_planned[kind] = self._is_planned.get(kind, False) or self._planned_parts > 0
        self._give_notes()
        return returned

    def _recorder(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recorder:
        """Return a recorder of one call, which runs each part by its plan."""
        self._parts = self._planned_parts = 0
        names = StepNames(self._function, (args, kwargs), self._trained)
        outer = current_modes()

        def run(segment: Segment, wanted: list[int], reason: str) -> dict[int, torch.Tensor]:
            self._parts += 1
            plan = None
            if recorder.recovers:
                segment.last.forget()
            else:
                others = recorder.values() if reason or self._parts > 1 else None
                held = self._held(segment, names, others)
                plan = self._fitting(segment, wanted, held)
                plan = plan or RECORDING.call(self._planned_or_not, segment, wanted, names, held)
            if plan is None or plan.module is None:
                return run_in_order(segment, wanted, outer)
            self._planned_parts += 1
            begin_anew(plan.module)
            with as_traced(grad=True), entered(outer):
                values = RECORDING.call(plan.module, [*segment.given().values(), *segment.numbers])
            return dict(zip(plan.wanted, values, strict=True))

        made = Recorder(self._tree(), run, [], may_grow=self._may_plan)
        made.runs_meta = True
        recorder = weakref.proxy(made)  # which `run` asks; a cycle would keep what the step has read from arrays
        return made

    def _tree(self) -> Tree:
        """Return the recordings under PyTorch's settings of now, such as the default dtype, which shapes follow."""
        return self._trees.setdefault(settings_facts(), Tree())

    def _may_plan(self) -> bool:
        """Whether a further sequence of ops may have a plan; the first that may not is said."""
        if self._plans < self._settings.plan_limit * max(self._parts, self._most_parts):
            return True
        if not self._at_limit:
            self._at_limit = True
            warnings.warn(
                f"{self._name}: {self._plans} sequences of ops have a plan, and plan_limit={self._settings.plan_limit} "
                "allows no more; further ones run in program order: give inputs of fewer shapes, or a higher limit",
                stacklevel=2,
            )
        return False

    def _take(self, segment: Segment, wanted: Sequence[int], names: StepNames, reason: str) -> None:
        """Plan the ops of a rehearsal; end it where the step asks for a value, which no rehearsal can give."""
        held = self._held(segment, names, [] if reason else None)
        if self._fitting(segment, wanted, held) is None and not (reason and isinstance(self._limit, Share)):
            self._planned(segment, wanted, names, held)
        if reason:
            raise Enough

    def _held(self, segment: Segment, names: StepNames, others: Sequence[torch.Tensor] | None) -> int | None:
        """Return the bytes that other parts, of tensors `others`, hold beside one; None if none is, or no limit."""
        if others is None or self._limit is None:
            return None
        here = {storage_of(tensor) for tensor in segment.held.values()}
        left = (tensor for tensor in [*names.tensors(), *others] if storage_of(tensor) not in here)
        return held_bytes(left, device_of(segment.held.values()).type)

    def _bytes(self) -> float:
        """Return the limit of all parts together; infinite for a share of a peak that no call has shown yet."""
        if isinstance(self._limit, Share):
            return math.inf if self._peak is None else int(self._limit * self._peak)
        return int(self._limit)

    def _fitting(self, segment: Segment, wanted: Sequence[int], held: int | None) -> _Plan | None:
        """Return a plan for a recording that returns the wanted values, and keeps the limit beside the held bytes."""
        plans: list[_Plan] = segment.last.plans
        if held is not None:
            most = self._bytes() - held
            plans = [plan for plan in plans if plan.peak <= most and plan.saved <= segment.saved]
        return next((plan for plan in plans if set(wanted) <= set(plan.wanted)), None)

    def _planned_or_not(self, segment: Segment, wanted: Sequence[int], names: StepNames, held: int | None) -> _Plan:
        """Return a new plan; of program order if no better one can be made, as the step has begun and must go on."""
        plan = _Plan(tuple(wanted), None)
        if self._may_plan():
            try:
                return self._planned(segment, wanted, names, held)
            except (ProgramError, ScheduleError, UsageError) as error:
                warnings.warn(f"{error}; it runs in program order", stacklevel=2)
                segment.last.plans.append(plan)
                self._plans += 1
                return plan
        segment.last.forget()
        return plan

    def _planned(self, segment: Segment, wanted: Sequence[int], names: StepNames, held: int | None) -> _Plan:
        """Make a plan for a recording; a limit holds for the whole step, with the bytes that its other parts hold."""
        named = "a part of " * segment.is_part + self._name, segment, wanted, names.of_held()
        program = step_graph(*named)
        settings = self._settings
        if settings.note is not None:
            settings = replace(settings, note=self._notes.append)
        elsewhere = ""
        if held is not None:
            if (most := self._bytes()) == math.inf:
                with as_traced(grad=True):
                    self._peaks.append(held + input_peak(graph_for(program, settings)))
                return _Plan(tuple(wanted), None)
            limit = int(most)
            settings = replace(settings, options=replace(settings.options, memory_limit=max(1, limit - held)))
            elsewhere = f"; of {format_bytes(limit)} other parts of the step hold {format_bytes(held)}"
        try:
            with as_traced(grad=True):
                # Segments of other parts are there, so that a block of one part's own may add to them.
                module = ordered(program, settings, () if segment.is_part else (False,))[1]
                if settings.verify:
                    check_module(step_graph(*named, is_cut=False) if has_lists(segment) else program, module)
                module.graph.set_codegen(BoxedCodeGen())
                module.recompile()
        except ScheduleError as error:
            raise ScheduleError(f"{error}{elsewhere}") from None
        if elsewhere and module.meta["is_reserved"]:
            text = "each part keeps the memory limit beside the others' live bytes; the whole step may reserve more"
            warnings.warn(f"{self._name}: {text}", stacklevel=2)
        plan = _Plan(tuple(wanted), module, module.meta["peak"], frozenset(segment.saved))
        segment.last.plans.append(plan)
        self._plans += 1
        self._is_scheduled |= module.meta.get("scheduled", False)
        return plan

    def _give_notes(self) -> None:
        """Pass on the notes of plans in the making, when the step's own output may be silenced."""
        while self._notes and self._settings.note is not None:
            self._settings.note(self._notes.pop(0))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name}, {self._plans} plan{'s' * (self._plans != 1)})"


def _kind_of(value: Any) -> Any:
    """Return the properties of an input that a sequence of ops may depend on."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.device
    return value if isinstance(value, (bool, int, str)) else type(value)


def step_name(function: Callable[..., Any]) -> str:
    """Return the name of a step in messages."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))
