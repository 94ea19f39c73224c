"""Tracing: the ATen calls that a function makes, known types of outputs, and errors of a model's code as a sentence."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import linecache
import logging
import re
import signal
import sys
import threading
import traceback
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from itertools import takewhile
from operator import getitem
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from ...base.errors import ProgramError, SchedoptError, UsageError
from ...base.units import format_bytes
from ...graph.builder import GraphBuilder
from ...problem.problem import Problem
from ...search.method_spec import MethodSpec, check_supported, parse_method
from ...search.registry import DEFAULT_METHOD
from . import torch_internals as internals
from .calls import WITHOUT_EFFECT, run_again
from .torch_internals import pytree

STEP = "step"
LOCK = threading.RLock()  # around what sets or restores what the process has one of: random numbers, logging, profiler
_INLINED = ("wrap_with_set_grad_enabled", "wrap_with_autocast")
_VALUE_DEPENDENT = (*internals.VALUE_DEPENDENT, internals.GuardOnDataDependentSymNode)


# Signals whose handlers may raise, and the code of PyTorch that enters and leaves modes
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGALRM", "SIGINT") if hasattr(signal, name))
_OF_MODES = (torch.overrides.__file__, internals.disable_current_modes.__code__.co_filename)


class _Recording(threading.local):
    """The recorder of this thread; signals within wait while modes or tensors are half changed."""

    recorder: Any = None

    def __init__(self) -> None:
        self.depth = 0  # `with` blocks around the running code
        self.open_at = 0  # those around the innermost code of others, which signals may end
        self.waiting: list[int] = []
        self.handlers: dict[int, Any] = {}  # those of the caller, in the main thread

    def __enter__(self) -> None:
        self.depth += 1
        try:
            if self.depth == 1 and threading.current_thread() is threading.main_thread():
                found = {one: handler for one in _SIGNALS if callable(handler := signal.getsignal(one))}
                known = self.handlers  # an own one is there if code within a step kept it to put it back later
                self.handlers = {one: known[one] if found[one] == self._receive else found[one] for one in found}
                for number in self.handlers:
                    signal.signal(number, self._receive)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._restore()
        except BaseException:
            self._restore()
            raise
        finally:
            self.depth -= 1
        self._deliver()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the code of others."""
        before, self.open_at = self.open_at, self.depth
        try:
            self._deliver()
            return function(*args, **kwargs)
        finally:
            self.open_at = before

    def _restore(self) -> None:
        for number, handler in self.handlers.items() if self.depth == 1 else ():
            if signal.getsignal(number) == self._receive:
                signal.signal(number, handler)

    def _receive(self, number: int, frame: Any) -> None:
        while frame is not None and frame.f_code.co_filename == contextlib.__file__:
            frame = frame.f_back
        self.waiting.append(number)
        if frame is None or frame.f_code.co_filename not in _OF_MODES:
            self._deliver()

    def _deliver(self) -> None:
        """Give the signals that wait to their handlers, unless they still have to wait."""
        while self.waiting and self.depth <= self.open_at:
            number = self.waiting.pop()
            self.handlers[number](number, sys._getframe())


RECORDING = _Recording()


@dataclass(frozen=True)
class TorchProgram:
    """A flat graph of the ATen calls that PyTorch makes below autograd, and the tensors that it works on."""

    name: str
    # placeholders, calls of ATen ops, `getitem` of their results, one output
    module: fx.GraphModule
    # one per placeholder; an input that is no tensor is the value itself
    arguments: tuple[Any, ...]
    roles: tuple[str, ...]  # per argument: `parameter`, `buffer`, `constant`, `input`, or `state` (of the optimizer)
    # the caller's name of each argument, as in its state dict; of an optimizer's state `encoder.weight.exp_avg`
    names: tuple[str, ...]
    # per value returned: `output`, `loss`, or in functionalised exported programs `buffer`, `parameter` or `input`: a
    # new value that the caller copies
    results: tuple[str, ...]
    training: str = "none"  # `none`, `sgd` or `adam`; `step` for a function that does a whole step
    exported: ExportedProgram | None = None  # of a forward program, its graph module being `module`
    source: nn.Module | None = None  # the model that was exported, whose own call may take another branch

    @property
    def device(self) -> torch.device:
        """The CUDA device of the first argument that is on one, else the CPU."""
        return device_of(self.arguments)


def device_of(values: Iterable[Any]) -> torch.device:
    """Return the CUDA device of the first tensor that is on one, else the CPU."""
    found = (value.device for value in values if isinstance(value, torch.Tensor) and value.is_cuda)
    return next(found, torch.device("cpu"))


def counts(tensor: torch.Tensor, device: str) -> bool:
    """Whether the bytes of a tensor count on a device: on CUDA those in the CPU's memory do not."""
    return device in ("cpu", tensor.device.type)


class Held(NamedTuple):
    """A tensor that a program is given: its placeholder's name, its role, itself, and the caller's name of it."""

    name: str
    role: str
    tensor: torch.Tensor
    label: str = ""


def check_flat(graph: fx.Graph, where: str) -> None:
    """Check that one fixed list of ops stands for an exported graph."""
    for node in graph.nodes:
        if isinstance(node.target, internals.HigherOrderOperator) and str(node.target) not in _INLINED:
            raise ProgramError(
                f"{where}: node {node_label(node)} chooses or repeats a graph of its own, "
                "which is not supported; export the model with that part fixed or unrolled"
            )
        if internals.free_unbacked_symbols(node.meta.get("val")):
            raise ProgramError(
                f"{where}: the size of node {node_label(node)} depends on the values of tensors, so no "
                "fixed graph stands for the model; use fixed sizes there"
            )


def trace(
    function: Callable[..., Any], arguments: Sequence[Any], where: str, modules: Mapping[str, nn.Module] | None = None
) -> tuple[fx.GraphModule, list[Any]]:
    """Run `function`, which calls `modules`, on fakes of the arguments; return its ATen calls, and the fakes."""
    mode = fake_mode(arguments)
    fakes = [fake_of(mode, value) for value in arguments]
    with mode:
        module = internals.make_fx(with_sources(function, modules or {}))(*fakes)
    check_flat(module.graph, where)
    for node in list(module.graph.nodes):
        if node.target in WITHOUT_EFFECT:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
        elif node.target is internals.ASSERT_METADATA:
            module.graph.erase_node(node)
    module.recompile()
    return module, fakes


def fake_mode(values: Sequence[Any] = ()) -> internals.FakeTensorMode:
    """Return the mode of the fake tensors among the values, or a new one."""
    for value in values:
        if isinstance(value, internals.FakeTensor):
            return value.fake_mode
    return internals.FakeTensorMode(
        allow_non_fake_inputs=True, allow_fallback_kernels=False, shape_env=internals.ShapeEnv(), static_shapes=True
    )


def fake_of(mode: internals.FakeTensorMode, value: Any) -> Any:
    """Return a fake of a tensor, without its data; of a fake another, in the same memory; any other value itself."""
    if isinstance(value, internals.FakeTensor):
        return value.detach().requires_grad_(value.requires_grad)
    return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value


def zeros_like(fake: torch.Tensor) -> torch.Tensor:
    """Return a real tensor like a fake one."""
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device).zero_()


def restoring(tensor: torch.Tensor) -> Callable[[], Any]:
    """Return a function that gives a tensor the values that it has now."""
    values = tensor.detach().clone()

    def restore() -> None:
        if tensor.shape == values.shape:
            tensor.data.copy_(values)
        else:
            tensor.data = values

    return restore


def undo_all(changes: Iterable[Callable[[], Any]]) -> None:
    """Undo changes, the last one first, each on its own: the error of one is raised when all are done."""
    with ExitStack() as undone:
        for undo in changes:
            undone.callback(undo)


def lift_constants(module: fx.GraphModule, after: int | None = None) -> list[Held]:
    """Turn the tensors that the graph holds as attributes into placeholders, `after` as many others, or after all."""
    graph = module.graph
    constants: dict[str, tuple[Held, fx.Node]] = {}
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    place = list(graph.nodes)[len(placeholders) if after is None else after]
    for node in list(graph.find_nodes(op="get_attr")):
        tensor = getattr(module, node.target, None)
        if not isinstance(tensor, torch.Tensor):
            continue
        if node.target not in constants:
            with graph.inserting_before(place):
                lifted = graph.placeholder(node.target)
            rename(lifted, f"c{node.target}")
            lifted.meta = {"val": node.meta.get("val", tensor)}
            constants[node.target] = (Held(lifted.name, "constant", tensor), lifted)
        node.replace_all_uses_with(constants[node.target][1])
        graph.erase_node(node)
    module.recompile()
    return [held for held, _ in constants.values()]


def rename(node: fx.Node, name: str) -> None:
    """Name a placeholder, and the parameter of the generated code with it; a taken name gets a number."""
    if node.name != name:
        internals.rename_node(node, name)
    node.target = node.name


@contextmanager
def foreign_code(where: str, what: str) -> Iterator[None]:
    """Turn errors of a model's own code, or of PyTorch in tracing it, into one sentence."""
    try:
        yield
    except SchedoptError:
        raise
    except _VALUE_DEPENDENT as error:
        raise ProgramError(
            f"{where}: the model reads the value of a tensor to decide what to do{line_of(error)}, so no fixed graph "
            "stands for it; use torch.where or fixed sizes there"
        ) from None
    except internals.UnsupportedOperatorException as error:
        raise ProgramError(
            f"{where}: op {error.func}{line_of(error)} has no meta implementation; register a fake for it"
        ) from None
    except Exception as error:  # code of others raises what it likes
        text = str(error).strip().split("\n")[0].split(". ")[0].removesuffix(".") or type(error).__name__
        if "fake impl" in text:
            text += " (register one with torch.library.register_fake)"
        if "UntypedStorage" in text and torch.cuda.is_available():
            text += " (cuDNN has weights of an LSTM, GRU or RNN in one buffer: torch.backends.cudnn.enabled=False)"
        raise ProgramError(f"{where}: {what}{line_of(error)}: {text}") from None


def line_of(error: BaseException) -> str:
    """Return ` at FILE:LINE` of the innermost line of the user's code; nothing if there is none."""
    lines = [user_line(frame) for frame, _ in traceback.walk_tb(error.__traceback__)]
    traced = getattr(error, "real_stack", None) or ()  # TorchDynamo's errors: what it was tracing
    lines += [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traced if is_users(frame.filename)]
    return next((f" at {line}" for line in reversed(lines) if line), "")


@contextmanager
def silent() -> Iterator[None]:
    """Keep PyTorch's warnings, logs and prints about tracing from the terminal."""
    with LOCK, warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(before)


_PLAIN = (torch.Tensor, bool, int, float, complex, str, torch.dtype, torch.device, type(None))


def known_outputs(model: nn.Module, where: str, *, every: bool) -> RemovableHandle:
    """Have a model's results within `with` known as soon as it returns them; see `know_outputs`."""
    return model.register_forward_hook(lambda _model, _args, outputs: know_outputs(outputs, where, every=every))


def know_outputs(outputs: Any, where: str, *, every: bool) -> None:
    """Register the dataclasses that a model returns in PyTorch's trees, for ever; with `every`, refuse other types."""
    for leaf in pytree.tree_leaves(outputs):
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            torch.export.register_dataclass(type(leaf))
            know_outputs(outputs, where, every=every)
            return
        if every and not isinstance(leaf, _PLAIN):
            remedy = "call it with use_cache=False"
            if "Cache" not in type(leaf).__name__:
                remedy = (
                    "return tensors, a dict or a dataclass, or register the type by "
                    "torch.utils._pytree.register_pytree_node"
                )
            raise ProgramError(
                f"{where}: the model returns a {type(leaf).__name__}, whose tensors PyTorch does not know; {remedy}"
            )


_WRAPPERS = {"DistributedDataParallel": "its module", "FullyShardedDataParallel": "the module before it is wrapped"}
_WRAPPERS["FSDPModule"] = "the module before fully_shard"


def refuse_wrapped(model: nn.Module, where: str) -> None:
    """Raise `ProgramError` for a model that is wrapped for several processes."""
    wrappers = [_WRAPPERS[kind.__name__] for kind in type(model).__mro__ if kind.__name__ in _WRAPPERS]
    if wrappers:
        raise ProgramError(
            f"{where}: the model talks to other processes, which no plan holds; plan {wrappers[0]}, or use "
            'torch.compile(model, backend="schedopt")'
        )


def refuse_foreign(model: nn.Module, where: str) -> None:
    """Raise `ProgramError` for a model that no graph of ops on plain tensors stands for."""
    refuse_wrapped(model, where)
    if isinstance(model, torch.jit.ScriptModule):
        raise ProgramError(f"{where}: the model is compiled by TorchScript; give the module that it was made of")
    for path, module in model.named_modules():
        before = f"{path}." if path else ""
        if "quantized" in type(module).__module__.split("."):
            raise ProgramError(
                f"{where}: module '{path}' is quantised ({type(module).__name__}), and its weights are no tensors; "
                "give the model in floating point, or quantised by torchao"
            )
        for name, value in vars(module).items():
            if isinstance(value, torch.Generator):
                raise ProgramError(
                    f"{where}: attribute '{before}{name}' is a torch.Generator, whose draws no graph holds; draw from "
                    "PyTorch's default generator (torch.manual_seed)"
                )
        for kind, registry in zip(("parameter", "buffer"), internals.REGISTRIES, strict=False):
            for name, tensor in vars(module)[registry].items():
                what = "" if tensor is None or tensor.layout is torch.strided else f"sparse ({tensor.layout})"
                remedy = "give its to_dense(), or use indices and index_add"
                if is_lazy(tensor):
                    what, remedy = "not initialised yet", "call the model once before"
                elif tensor is not None and tensor.is_quantized:
                    what, remedy = "quantised", "give its dequantize()"
                if what:
                    raise ProgramError(f"{where}: {kind} '{before}{name}' is {what}; {remedy}")


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


class Source(NamedTuple):
    """Where a call comes from."""

    # path of the module, in an update the parameter's; empty if there is none
    module: str = ""
    line: str = ""  # of the user's code, such as `model.py:31`; empty if unknown
    phase: str = "forward"  # `forward`, `backward` or `update`


def source_of(node: Any) -> Source:
    """Return the origin of a node or op recorded when it was called, or the one that `torch.export` has noted."""
    source: Source | None = node.meta.get(_META)
    return source or _exported_source(node)


def node_label(node: fx.Node) -> str:
    """Return a node as errors name it: `'mm_3' (aten.mm.default, encoder.layer.0, model.py:31)`."""
    source = source_of(node)
    return f"'{node.name}' ({', '.join(filter(None, (str(node.target), source.module, source.line)))})"


def with_sources(function: Callable[..., Any], modules: Mapping[str, nn.Module]) -> Callable[..., Any]:
    """Return the function, to be traced by `make_fx`, so that the source of every node made meanwhile is recorded."""

    def recorded(*args: Any) -> Any:
        mode = internals.get_proxy_mode()
        assert mode is not None
        tracer: Any = mode.tracer
        recorder = SourceRecorder(modules, recorded.__code__)
        create_node = tracer.create_node

        def create_recorded(*args: Any, **kwargs: Any) -> fx.Node:
            node: fx.Node = create_node(*args, **kwargs)
            if node.op == "call_function":
                recorder.note(node.meta, sys._getframe(1))
            return node

        with patch.object(tracer, "create_node", create_recorded):
            return function(*args)

    return recorded


def sources_of(graph: fx.Graph, names: Sequence[str], roles: Sequence[str]) -> dict[str, Source]:
    """Return where each call of a program comes from, by name; ops after a gradient or state are an update."""
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
        self.named: dict[Any, dict[str, fx.Node]] = {}  # nodes of exported graphs

    def note(self, meta: dict[str, Any], frame: FrameType) -> Source:
        """Note the origin of a call in a frame, and return it."""
        source, original = self._look_up(frame)
        if original is not None:  # so that a saved program keeps them
            meta.update({key: original.meta[key] for key in _KEPT if key in original.meta})
        if internals.current_graph_task_id() != -1:
            running = internals.current_autograd_node()
            if running is not None and (at := bisect_right(self.made, internals.sequence_number(running))):
                maker = self.makers[at - 1]
                source = Source(source.module or maker.module, source.line or maker.line)
            source = source._replace(phase="backward")
        else:
            latest = internals.next_sequence_number() - 1
            if not self.made or latest > self.made[-1]:
                self.made.append(latest)
                self.makers.append(source)
        meta[_META] = source
        return source

    def _look_up(self, frame: FrameType | None) -> tuple[Source, fx.Node | None]:
        """Walk the stack outwards, up to traced code or the backward's caller; return the exported node met, too."""
        module = line = ""
        phase = "forward"
        while frame is not None and frame.f_code is not self.outermost:
            file = frame.f_code.co_filename
            if frame.f_code is internals.MODULE_CALL:
                module = module or self.paths.get(id(frame.f_locals["self"]), "")
            elif file.startswith(_GENERATED):
                node = _exported_node(frame, self.named)
                noted = Source() if node is None else _exported_source(node)
                if noted.module or noted.line:  # Dynamo's own graphs say nothing
                    return Source(module or noted.module, line or noted.line, phase), node
            elif file == _BACKWARD:
                return Source(module, line, "backward"), None
            elif file.startswith(_OPTIMIZERS):
                phase = "update"
            elif not line and is_users(file):
                line = f"{Path(file).name}:{frame.f_lineno}"
            frame = frame.f_back
        return Source(module, line, phase), None


def user_line(frame: FrameType) -> str:
    """Return the line of the user's code that a frame runs, itself or by an exported graph; empty if it runs none."""
    file = frame.f_code.co_filename
    if is_users(file):
        return f"{Path(file).name}:{frame.f_lineno}"
    node = _exported_node(frame, {}) if file.startswith(_GENERATED) else None
    return "" if node is None else _exported_source(node).line


def _exported_node(frame: FrameType, named: dict[Any, dict[str, fx.Node]]) -> fx.Node | None:
    """Return the node of an exported graph whose generated code a frame runs: it assigns to the name of the node."""
    module = frame.f_locals.get("self")
    assigned = _ASSIGNED.match(linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals))
    if assigned is None or not isinstance(module, fx.GraphModule):
        return None
    if module not in named:
        named[module] = {node.name: node for node in module.graph.nodes}
    return named[module].get(assigned[1])


def _exported_source(node: fx.Node) -> Source:
    """Return the module and the line that `torch.export` has noted at a node."""
    stack = [str(entry[0]) for entry in (node.meta.get("nn_module_stack") or {}).values()]
    path = _REPEATED_CALL.sub("", stack[-1]) if stack else ""
    frames = _TRACE_LINE.findall(node.meta.get("stack_trace") or "")
    users = [f"{Path(file).name}:{number}" for file, number in frames if is_users(file)]
    return Source(path, users[-1] if users else "")


@cache
def is_users(file: str) -> bool:
    """Whether a file of code is neither PyTorch's, nor ours, nor Python's import system."""
    return not file.startswith(_NOT_THE_USERS)


def _common_path(paths: set[str]) -> str:
    """Return the common beginning of the paths of several parameters, whole names only."""
    columns = zip(*(path.split(".") for path in paths), strict=False)
    return ".".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, columns))


def order_method(method: Any, evaluations: int | None = None) -> MethodSpec:
    """Return a method by its name, once it is clear that it can order ops, within so many evaluations if given."""
    if not isinstance(method, str):
        raise UsageError(f"a method is a name such as '{DEFAULT_METHOD}', not {method!r}")
    spec = parse_method(method)
    builder = GraphBuilder("one op")
    builder.add_op("op")
    check_supported(spec, Problem(builder.build()), evaluations)
    return spec


@dataclass(frozen=True)
class OrderedGraph:
    """A graph that PyTorch compiled, before and after its ops were put in order; prints as one line."""

    name: str  # PyTorch's
    ops: int  # with Inductor kernels, after fusion
    stock_peak: int  # peak bytes without schedopt, as counted
    peak: int  # peak bytes, as counted
    bound: int  # peak bytes that no order is below, as counted
    seconds: float  # added to its compilation

    def __str__(self) -> str:
        stock, peak, bound = map(format_bytes, (self.stock_peak, self.peak, self.bound))
        found = f"peak {stock} as it was, {peak} now, no order needs less than {bound}"
        return f"{self.name}: {self.ops} ops, {found}, {self.seconds:.2f} s"


def is_number(node: fx.Node) -> bool:
    """Whether a node computes a plain number, such as a size, and no tensor: it costs nothing and is no op."""
    value = node.meta.get("val")
    return node.op == "call_function" and isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float)


def in_order(module: fx.GraphModule, names: Iterable[str]) -> fx.GraphModule:
    """Return a module with its ops in another order, some perhaps several times; arguments and results stay.

    A `getitem` follows the op that it takes from, and a number the last op that it needs.
    """
    old = module.graph
    nodes = {node.name: node for node in old.nodes}
    new = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    runs: Counter[fx.Node] = Counter()

    def add(node: fx.Node) -> None:
        runs[node] += 1
        name = node.name if runs[node] == 1 else f"{node.name}_run_{runs[node]}"
        args, kwargs = fx.map_arg((node.args, node.kwargs), copies.__getitem__)
        if runs[node] > 1:
            args, kwargs = run_again(node.target, args, kwargs)
        copies[node] = new.create_node(node.op, node.target, args, kwargs, name, node.type)
        copies[node].meta = dict(node.meta)
        for user in node.users:
            takes = user.target is getitem and bool(user.users)
            follows = takes or (is_number(user) and user not in copies)
            if follows and all(needed in copies for needed in user.all_input_nodes):
                add(user)

    for node in old.nodes:
        if node.op in ("placeholder", "get_attr") or (is_number(node) and not node.all_input_nodes):
            add(node)
    for name in names:
        add(nodes[name])
    add(old.output_node())
    for node in reversed(new.nodes):
        if node.target is getitem and not node.users:  # of a run whose other results alone are taken
            new.erase_node(node)
    return fx.GraphModule(module, new)
