"""A training step of the user's own: recorded at each call, and run in an order of less peak memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ...problem import Problem
from ...solve import solve
from .apply import reorder
from .costs import measured_costs
from .equality import check_equal
from .importer import graph_of
from .program import TorchProgram
from .python_state import PythonState
from .recorded import WITHOUT_EFFECT, Deferred, Number, RecordedOp, Result
from .recorder import Recorder, Segment, Tree, settled

class _Stopped(BaseException):
    pass


class _Plan(NamedTuple):
    wanted: tuple[int, ...]
    module: Callable[..., Any]


class OwnStep:
    def __init__(self, function, args, kwargs, settings=None):
        self._function = function
        self._root = Tree()
        self.plans = 0
        self._dry(args, kwargs)

    def _dry(self, args, kwargs):
        state = PythonState(self._function)
        undo = []
        def run(segment, wanted):
            self._plan(segment, wanted)
            raise _Stopped
        recorder = Recorder(self._root, run, undo)
        try:
            with recorder.recording():
                result = self._function(*args, **kwargs)
            recorder.flush()
        except _Stopped:
            pass
        finally:
            for u in reversed(undo):
                u()
            state.restore()

    def __call__(self, *args, **kwargs):
        recorder = Recorder(self._root, self._run)
        with recorder.recording():
            result = self._function(*args, **kwargs)
        recorder.flush()
        return settled(recorder, result)

    def _run(self, segment, wanted):
        plan = next((p for p in segment.last.plans if set(wanted) <= set(p.wanted)), None)
        if plan is None:
            plan = self._plan(segment, wanted)
        outs = plan.module(*[t.data for t in segment.held.values()], *segment.numbers)
        return dict(zip(plan.wanted, outs))

    def _plan(self, segment, wanted):
        self.plans += 1
        program = program_of_segment(segment, wanted, "step")
        graph = graph_of(program, measured=measured_costs(program))
        found = solve(Problem(graph), evaluations=10).schedule
        module = reorder(program, graph, found.op_order().tolist())
        check_equal(program, module, program.arguments)
        plan = _Plan(tuple(wanted), module)
        segment.last.plans.append(plan)
        return plan


def program_of_segment(segment: Segment, wanted: Sequence[int], name: str) -> TorchProgram:
    graph = fx.Graph()
    nodes = {}
    for number, tensor in segment.held.items():
        nodes[number] = graph.placeholder(f"held_{number}")
    numbers = iter([graph.placeholder(f"number_{i}") for i in range(len(segment.numbers))])
    for op in segment.last.path():
        args, kwargs = op.call(lambda key: nodes[key.number], numbers.__next__)
        if op.op in WITHOUT_EFFECT:
            continue
        node = graph.create_node("call_function", op.op, args, kwargs, name=op.op.overloadpacket.__name__)
        node.meta.update(op.meta)
        def take(value, source):
            import operator
            if isinstance(value, Result):
                nodes[value.number] = source
            elif isinstance(value, (tuple, list)):
                for at, part in enumerate(value):
                    if pytree.tree_any(lambda l: isinstance(l, Result), part):
                        take(part, graph.call_function(operator.getitem, (source, at)))
        take(op.returned, node)
    graph.output(tuple(nodes[number] for number in wanted))
    module = fx.GraphModule(torch.nn.Module(), graph)
    return TorchProgram(
        name=name, module=module,
        arguments=(*(t.data for t in segment.held.values()), *segment.numbers),
        roles=("constant",)*len(segment.held)+("input",)*len(segment.numbers),
        results=("output",)*len(wanted),
        training="own",
    )
