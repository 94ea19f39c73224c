"""Tracing: the ATen calls that a function makes, known types of outputs, and errors of a model's code as a sentence."""

from __future__ import annotations

import dataclasses
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.nn.parameter import is_lazy

from ...base.errors import ProgramError, SchedoptError
from .source_lines import is_users, node_label, user_line, with_sources
from .torch_internals import (
    ASSERT_METADATA,
    REGISTRIES,
    VALUE_DEPENDENT,
    FakeTensor,
    FakeTensorMode,
    GuardOnDataDependentSymNode,
    HigherOrderOperator,
    ShapeEnv,
    UnsupportedOperatorException,
    free_unbacked_symbols,
    make_fx,
    pytree,
    rename_node,
)

# Calls that return their argument as it is (no autograd here).
_WITHOUT_EFFECT = (
    torch.ops.aten.detach.default,
    torch.ops.aten.detach_.default,
    torch.ops.aten.alias.default,
    torch.ops.aten.lift_fresh.default,
)
_INLINED = ("wrap_with_set_grad_enabled", "wrap_with_autocast")
_VALUE_DEPENDENT = (*VALUE_DEPENDENT, GuardOnDataDependentSymNode)


class Held(NamedTuple):
    """A tensor that a program is given: its placeholder's name, its role, itself, and what the caller calls it."""

    name: str
    role: str
    tensor: torch.Tensor
    label: str = ""


def check_flat(graph: fx.Graph, where: str) -> None:
    """Check that one fixed list of ops stands for an exported graph."""
    for node in graph.nodes:
        if isinstance(node.target, HigherOrderOperator) and str(node.target) not in _INLINED:
            raise ProgramError(
                f"{where}: node {node_label(node)} chooses or repeats a graph of its own, "
                "which is not supported; export the model with that part fixed or unrolled"
            )
        if free_unbacked_symbols(node.meta.get("val")):
            raise ProgramError(
                f"{where}: the size of node {node_label(node)} depends on the values of tensors, so no "
                "fixed graph stands for the model; use fixed sizes there"
            )


def trace(
    function: Callable[..., Any], arguments: Sequence[Any], where: str, modules: Mapping[str, nn.Module] | None = None
) -> tuple[fx.GraphModule, list[Any]]:
    """Run `function` on fakes of the arguments and return the ATen calls it makes, and the fakes.

    Calls without effect (`detach`) are left out; `modules` are those that the function calls, for `source_of`.
    """
    mode = fake_mode(arguments)
    fakes = [fake_of(mode, value) for value in arguments]
    with mode:
        module = make_fx(with_sources(function, modules or {}))(*fakes)
    check_flat(module.graph, where)
    for node in list(module.graph.nodes):
        if node.target in _WITHOUT_EFFECT:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
        elif node.target is ASSERT_METADATA:
            module.graph.erase_node(node)
    module.recompile()
    return module, fakes


def fake_mode(values: Sequence[Any] = ()) -> FakeTensorMode:
    """Return the mode of the fake tensors among the values, or a new one."""
    for value in values:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return FakeTensorMode(
        allow_non_fake_inputs=True, allow_fallback_kernels=False, shape_env=ShapeEnv(), static_shapes=True
    )


def fake_of(mode: FakeTensorMode, value: Any) -> Any:
    """Return a fake of a tensor, without its data; of a fake another, in the same memory; any other value itself."""
    if isinstance(value, FakeTensor):
        return value.detach().requires_grad_(value.requires_grad)
    return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value


def zeros_like(fake: torch.Tensor) -> torch.Tensor:
    """Return a real tensor like a fake one."""
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device).zero_()


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
        rename_node(node, name)
    node.target = node.name


@contextmanager
def foreign_code(where: str, what: str) -> Iterator[None]:
    """Turn what a model's own code, or PyTorch in tracing it, raises into one sentence."""
    try:
        yield
    except SchedoptError:
        raise
    except _VALUE_DEPENDENT as error:
        raise ProgramError(
            f"{where}: the model reads the value of a tensor to decide what to do{line_of(error)}, so no fixed graph "
            "stands for it; use torch.where or fixed sizes there"
        ) from None
    except UnsupportedOperatorException as error:
        raise ProgramError(
            f"{where}: op {error.func}{line_of(error)} has no meta implementation; register a fake for it"
        ) from None
    except Exception as error:  # code of others raises what it likes
        text = str(error).strip().split("\n")[0].split(". ")[0].removesuffix(".") or type(error).__name__
        if "fake impl" in text:
            text += " (register one with torch.library.register_fake)"
        raise ProgramError(f"{where}: {what}{line_of(error)}: {text}") from None


def line_of(error: BaseException) -> str:
    """Return ` at FILE:LINE` of the innermost line of the user's code; nothing if there is none."""
    lines = [user_line(frame) for frame, _ in traceback.walk_tb(error.__traceback__)]
    traced = getattr(error, "real_stack", None) or ()  # TorchDynamo's errors: what it was tracing
    lines += [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traced if is_users(frame.filename)]
    return next((f" at {line}" for line in reversed(lines) if line), "")


@contextmanager
def silent() -> Iterator[None]:
    """Keep what PyTorch warns, logs and prints about tracing from the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


_PLAIN = (torch.Tensor, bool, int, float, complex, str, torch.dtype, torch.device, type(None))


@contextmanager
def known_outputs(model: nn.Module, where: str, *, every: bool) -> Iterator[None]:
    """Have what a model returns known as soon as it returns it; see `know_outputs`."""
    handle = model.register_forward_hook(lambda _model, _args, outputs: know_outputs(outputs, where, every=every))
    try:
        yield
    finally:
        handle.remove()


def know_outputs(outputs: Any, where: str, *, every: bool) -> None:
    """Register the dataclasses that a model returns with PyTorch's trees; with `every`, refuse other types.

    A type stays registered, as `torch.export.register_dataclass` leaves it, for what runs the program makes one.
    """
    for leaf in pytree.tree_leaves(outputs):
        if isinstance(leaf, _PLAIN):
            continue
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            torch.export.register_dataclass(type(leaf))
            know_outputs(outputs, where, every=every)
            return
        if every:
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
        for kind, registry in zip(("parameter", "buffer"), REGISTRIES, strict=False):
            for name, tensor in vars(module)[registry].items():
                if is_lazy(tensor):
                    raise ProgramError(
                        f"{where}: {kind} '{before}{name}' is not initialised yet; call the model once before"
                    )
                if tensor is not None and (tensor.layout is not torch.strided or tensor.is_quantized):
                    what = "quantised" if tensor.is_quantized else f"sparse ({tensor.layout})"
                    remedy = "dequantize()" if tensor.is_quantized else "to_dense(), or use indices and index_add"
                    raise ProgramError(f"{where}: {kind} '{before}{name}' is {what}; give its {remedy}")
