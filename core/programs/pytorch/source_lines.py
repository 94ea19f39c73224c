"""Sources of the calls of a traced program: the module, the line of the user's code, and the phase.

While a function is traced, each new node looks up the Python stack: the innermost module of the model whose call is on
it, and the innermost line that is neither PyTorch's nor ours. In the code of an exported graph, its nodes say both.
Autograd's nodes are numbered as the forward makes them, which gives what runs in the backward its module and line.
"""

from __future__ import annotations

import importlib
import linecache
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from .torch_internals import (
    MODULE_CALL,
    current_autograd_node,
    current_graph_task_id,
    get_proxy_mode,
    next_sequence_number,
    sequence_number,
)

_META = "schedopt_source"
_KEPT = ("nn_module_stack", "stack_trace")
_GENERATED = "<eval_with_key>"
_TORCH = str(Path(torch.__file__).parent)
_NOT_THE_USERS = (_TORCH, str(Path(__file__).parents[2]), str(importlib.__path__[0]), "<")
_BACKWARD = torch.autograd.__file__
_OPTIMIZERS = str(Path(_TORCH, "optim"))
_TRACE_LINE = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)
_ASSIGNED = re.compile(r"\s*(\w+)")
_REPEATED_CALL = re.compile(r"@\d+")
_Exported = tuple[tuple[str, str], fx.Node]


class Source(NamedTuple):
    """Where a call comes from."""

    # path of the module, in an update the parameter's; empty if there is none
    module: str = ""
    line: str = ""  # of the user's code, such as `model.py:31`; empty if unknown
    phase: str = "forward"  # `forward`, `backward` or `update`


def source_of(node: fx.Node) -> Source:
    """Return what was recorded of a node when it was traced, or what `torch.export` has noted at it."""
    source: Source | None = node.meta.get(_META)
    return source or Source(*_exported_source(node))


def line_in(meta: Mapping[str, Any]) -> str:
    """Return the line of the user's code that a `SourceRecorder` has noted."""
    source: Source = meta[_META]
    return source.line


def node_label(node: fx.Node) -> str:
    """Return a node as errors name it: `'mm_3' (aten.mm.default, encoder.layer.0, model.py:31)`."""
    source = source_of(node)
    return f"'{node.name}' ({', '.join(filter(None, (str(node.target), source.module, source.line)))})"


def with_sources(function: Callable[..., Any], modules: Mapping[str, nn.Module]) -> Callable[..., Any]:
    """Return the function, to be traced by `make_fx`, so that the source of every node made meanwhile is recorded."""

    def recorded(*args: Any) -> Any:
        mode = get_proxy_mode()
        assert mode is not None
        tracer: Any = mode.tracer
        recorder = SourceRecorder(modules, recorded.__code__)
        create_node = tracer.create_node

        def create_recorded(*args: Any, **kwargs: Any) -> fx.Node:
            node: fx.Node = create_node(*args, **kwargs)
            if node.op == "call_function":
                recorder.note(node.meta, sys._getframe(1))
            return node

        tracer.create_node = create_recorded
        try:
            return function(*args)
        finally:
            del tracer.create_node

    return recorded


def sources_of(graph: fx.Graph, names: Sequence[str], roles: Sequence[str]) -> dict[str, Source]:
    """Return where each call of a program comes from, by the name of its node.

    What follows from a gradient or the optimizer's state, and no backward reads, is the update of its parameter.
    """
    sources = {node: source_of(node) for node in graph.nodes if node.op == "call_function"}
    needed: set[fx.Node] = set()
    for node in reversed(sources):
        if sources[node].phase == "backward" or node in needed:
            needed.update(node.all_input_nodes)
    follows: set[fx.Node] = set()
    owners: dict[fx.Node, str] = {}
    for node, name, role in zip(graph.find_nodes(op="placeholder"), names, roles, strict=True):
        if role in ("state", "gradient"):
            follows.add(node)
            owners[node] = name.rpartition(".")[0]
        elif role == "parameter":
            owners[node] = name
    for node, source in sources.items():
        late = source.phase == "backward" or not follows.isdisjoint(node.all_input_nodes)
        if late:
            follows.add(node)
        if source.phase == "update" or (late and source.phase == "forward" and node not in needed):
            owners[node] = owner = _common_path({owners[given] for given in node.all_input_nodes if owners.get(given)})
            sources[node] = source._replace(phase="update", module=owner or source.module)
    return {node.name: source for node, source in sources.items()}


class SourceRecorder:
    """Says of each call where it comes from, and remembers for the backward which call made which autograd node."""

    def __init__(self, modules: Mapping[str, nn.Module], outermost: CodeType | None = None) -> None:
        self.paths = {id(module): path for path, module in reversed(list(modules.items()))}
        self.outermost = outermost
        self.made: list[int] = []
        self.makers: list[Source] = []
        self.exported: dict[tuple[CodeType, int], _Exported | None] = {}
        self.named: dict[Any, dict[str, fx.Node]] = {}

    def note(self, meta: dict[str, Any], frame: FrameType) -> None:
        """Note where what is called in a frame comes from."""
        source, original = self._look_up(frame)
        if original is not None:  # so that a saved program keeps them
            meta.update({key: original.meta[key] for key in _KEPT if key in original.meta})
        if current_graph_task_id() != -1:
            running = current_autograd_node()
            if running is not None and (at := bisect_right(self.made, sequence_number(running))):
                maker = self.makers[at - 1]
                source = Source(source.module or maker.module, source.line or maker.line)
            source = source._replace(phase="backward")
        else:
            latest = next_sequence_number() - 1
            if not self.made or latest > self.made[-1]:
                self.made.append(latest)
                self.makers.append(source)
        meta[_META] = source

    def _look_up(self, frame: FrameType | None) -> tuple[Source, fx.Node | None]:
        """Walk the stack outwards, up to what is traced or who runs the backward; return the exported node met, too."""
        module = line = ""
        phase = "forward"
        while frame is not None and frame.f_code is not self.outermost:
            file = frame.f_code.co_filename
            if frame.f_code is MODULE_CALL:
                module = module or self.paths.get(id(frame.f_locals["self"]), "")
            elif file.startswith(_GENERATED):
                exported = self._exported(frame)
                if exported is not None and any(exported[0]):  # Dynamo's own graphs say nothing
                    path, at = exported[0]
                    return Source(module or path, line or at, phase), exported[1]
            elif file == _BACKWARD:
                return Source(module, line, "backward"), None
            elif file.startswith(_OPTIMIZERS):
                phase = "update"
            elif not line and is_users(file):
                line = f"{Path(file).name}:{frame.f_lineno}"
            frame = frame.f_back
        return Source(module, line, phase), None

    def _exported(self, frame: FrameType) -> _Exported | None:
        """Return the node of an exported graph whose line of generated code runs; its variable has the node's name."""
        place = frame.f_code, frame.f_lineno
        if place not in self.exported:
            module = frame.f_locals.get("self")
            if isinstance(module, fx.GraphModule) and module not in self.named:
                self.named[module] = {node.name: node for node in module.graph.nodes}
            node = self.named.get(module, {}).get(_assigned_in(frame))
            self.exported[place] = None if node is None else (_exported_source(node), node)
        return self.exported[place]


def user_line(frame: FrameType) -> str:
    """Return the line of the user's code that a frame runs, itself or by an exported graph; empty if it runs none."""
    file = frame.f_code.co_filename
    if is_users(file):
        return f"{Path(file).name}:{frame.f_lineno}"
    module = frame.f_locals.get("self") if file.startswith(_GENERATED) else None
    if not isinstance(module, fx.GraphModule):
        return ""
    name = _assigned_in(frame)
    return next((_exported_source(node)[1] for node in module.graph.nodes if node.name == name), "")


def _assigned_in(frame: FrameType) -> str:
    """Return the variable that the line of generated code which a frame runs assigns to."""
    assigned = _ASSIGNED.match(linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals))
    return assigned[1] if assigned else ""


def _exported_source(node: fx.Node) -> tuple[str, str]:
    """Return the module and the line that `torch.export` has noted at a node."""
    stack = [str(entry[0]) for entry in (node.meta.get("nn_module_stack") or {}).values()]
    path = _REPEATED_CALL.sub("", stack[-1]) if stack else ""
    frames = _TRACE_LINE.findall(node.meta.get("stack_trace") or "")
    users = [f"{Path(file).name}:{number}" for file, number in frames if is_users(file)]
    return path, users[-1] if users else ""


@cache
def is_users(file: str) -> bool:
    """Whether a file of code is neither PyTorch's, nor ours, nor Python's import system."""
    return not file.startswith(_NOT_THE_USERS)


def _common_path(paths: set[str]) -> str:
    """Return what the paths of several parameters begin with, whole names only."""
    columns = zip(*(path.split(".") for path in paths), strict=False)
    return ".".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, columns))
