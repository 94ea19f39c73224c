"""Private names of PyTorch that programs use; where one is missing, they are refused in one sentence that names it."""

from __future__ import annotations

import gc
import linecache
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter, methodcaller
from typing import Any

import torch
from torch import fx, nn
from torch.amp.grad_scaler import GradScaler

from ...base.errors import ProgramError

aten = torch.ops.aten
TESTED = "2.9 to 2.15"
"""Versions of PyTorch on which the tests pass."""


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Turn the error of a missing private name into a `ProgramError` that names it."""
    try:
        yield
    except (ImportError, AttributeError) as error:
        raise ProgramError(
            f"{what} cannot run with PyTorch {torch.__version__}: {error}; install a version from {TESTED}"
        ) from error


with needed_by("PyTorch programs"):
    # An op as a node calls it, and an op that runs graphs of its own, which no list of ops stands for
    from torch._ops import HigherOrderOperator, OpOverload

    # Tensors without data, to trace a model and to know sizes; errors of ops that have none
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensor,
        FakeTensorMode,
        UnsupportedOperatorException,
    )

    # The types of tensors that optimizers and norms give to ops on lists
    from torch.optim.optimizer import _foreach_supported_types as optimized_types

    # Nests of arguments and results
    from torch.utils import _pytree as pytree
    from torch.utils._foreach_utils import _foreach_supported_types as listed_types

    # Errors of ops whose sizes depend on values
    VALUE_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException)
    # The tracer of the ATen ops that a function calls
    # The rules of a program that writes to its arguments, to save one in another order
    from torch._export.verifier import TrainingIRVerifier
    from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx

    # Sizes as symbols, and sizes that depend on values
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv, free_unbacked_symbols

    # Names in generated code, to run it in another process
    from torch.fx.graph import _custom_builtins as custom_builtins

    # Sources of generated code, which are kept for ever
    from torch.fx.graph_module import _loader

    # A mode that sees each op of a step, to record it, and that is off while recorded ops run; the modes of others
    from torch.utils._mode_utils import no_dispatch as without_dispatch
    from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode, is_traceable_wrapper_subclass
    from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as current_modes

    # Recorded ops were seen by modes of functions when they were recorded
    disable_torch_function = torch._C.DisableTorchFunction
    # Whether one sees a call, which modules of PyTorch ask: their results follow from it
    function_mode: Callable[[], Any] = torch.overrides._get_current_function_mode
    without_function_mode = torch.overrides._pop_mode_temporarily

    # Recorded ops run without autocast, which has cast their arguments already
    disable_autocast = torch._C._DisableAutocast  # type: ignore[attr-defined]
    # A tensor without memory, for the result of a recorded op
    make_wrapper_subclass = torch.Tensor._make_wrapper_subclass  # type: ignore[attr-defined]
    set_conj, set_neg = torch._C._set_conj, torch._C._set_neg  # type: ignore[attr-defined]
    no_torch_function = torch._C._disabled_torch_function_impl
    # A view that is negated when read, to copy one
    neg_view = torch._neg_view
    # What a packed sequence is padded by, which makes the lengths and writes to them without a call of an op
    PAD_PACKED = torch._VF._pad_packed_sequence
    # Kernels of an op, to know whether a recorded one is made of others
    has_kernel, has_kernel_for = torch._C._dispatch_has_kernel, torch._C._dispatch_has_kernel_for_dispatch_key
    # The running backward pass and its op, to find the source line of the op's forward pass by its number
    current_graph_task_id = torch._C._current_graph_task_id
    current_autograd_node = torch._C._current_autograd_node
    next_sequence_number = torch._C._autograd._get_sequence_nr
    # A taken name gets a number
    rename_node = fx.Node._rename
    # The code that calls a module, to find the module on the stack
    MODULE_CALL = nn.Module._call_impl.__code__
    # A check that tracing has made already
    ASSERT_METADATA = aten._assert_tensor_metadata.default
    # Zeros without memory, as derivatives may be
    MAKE_ZEROS = aten._efficientzerotensor.default
    # The CPU's attention does the FLOPs of the one that PyTorch counts
    SAME_FLOPS = {
        aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: aten._scaled_dot_product_flash_attention_backward,
    }
    # Recurrent layers, which cuDNN has kernels of
    RECURRENT = (torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh, torch._VF.rnn_relu)
    # Attributes of a module that a planned model shares with its model
    MODULES = "_modules"
    REGISTRIES = ("_parameters", "_buffers", MODULES)
    NON_PERSISTENT = "_non_persistent_buffers_set"
    STATE_HOOKS = (
        *("_state_dict_hooks", "_state_dict_pre_hooks"),
        *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
    )
    # The method of a gradient scaler that skips a step with infinite gradients; a rehearsal replaces it
    SCALER_STEP = "_maybe_opt_step"
    for owner, names in (
        (nn.Module(), (*REGISTRIES, NON_PERSISTENT, *STATE_HOOKS)),
        (GradScaler, (SCALER_STEP,)),
        (torch.UntypedStorage, ("_cdata",)),
        (torch.autograd.profiler, ("_is_profiler_enabled",)),
        (torch.Tensor, ("_version", "_use_count", "_is_zerotensor")),
        (torch._C._autograd, ("_unsafe_set_version_counter",)),
        (torch._C._FunctionBase, ("_sequence_nr",)),
        (aten.add.Tensor, ("_schema",)),
    ):
        for name in names:
            getattr(owner, name)


@contextmanager
def forgotten_sources() -> Iterator[None]:
    """Drop the sources of code that is generated inside, which only tracebacks and TorchScript read."""
    before = set(_loader.eval_cache)
    try:
        yield
    finally:
        for name in _loader.eval_cache.keys() - before:
            _loader.eval_cache.pop(name, None)
            linecache.cache.pop(name, None)


@contextmanager
def entered(modes: Sequence[TorchDispatchMode]) -> Iterator[None]:
    """Let modes of dispatch see the calls within."""
    for mode in modes:
        _push_mode(mode)
    try:
        yield
    finally:
        for _ in modes:
            _pop_mode()


@contextmanager
def recorded_memory(snapshot: str | None) -> Iterator[None]:
    """Write a snapshot of the CUDA allocator with all its events meanwhile; nothing without a name for it."""
    if snapshot is None:
        yield
        return
    torch.cuda.memory._record_memory_history()
    yield
    torch.cuda.memory._dump_snapshot(snapshot)  # type: ignore[no-untyped-call]


is_zeros: Callable[[torch.Tensor], bool] = methodcaller("_is_zerotensor")
"""Whether a tensor is what `MAKE_ZEROS` makes."""
write_count: Callable[[torch.Tensor], int] = attrgetter("_version")
"""How often a tensor was written to, as autograd counts it, so that a rehearsal leaves no trace."""
sequence_number: Callable[[Any], int] = methodcaller("_sequence_nr")
"""The number that an op of autograd got in the forward pass."""
schema_of: Callable[[Any], Any] = attrgetter("_schema")
"""The arguments and results of an op, and which of them it writes to."""


def add_listed_type(kind: Any) -> None:
    """Have optimizers and norms give tensors of a type to ops on lists."""
    optimized_types.append(kind)
    listed_types.append(kind)


def runs_by_cudnn(tensor: torch.Tensor) -> bool:
    """Whether a recurrent layer of this input runs by cuDNN: its weights lie in one buffer, whose address it reads."""
    return tensor.is_cuda and torch.backends.cudnn.enabled


def is_profiling() -> bool:
    """Whether a profiler of PyTorch runs, or is warming up: starting a second one then ends the process."""
    if torch.autograd.profiler._is_profiler_enabled:
        return True
    kind = torch.autograd.profiler.profile  # whose instances refer to it; of all objects some may be half built
    profilers = [thing for thing in gc.get_referrers(kind) if type(thing) is kind]
    return any(profiler.entered and profiler.kineto_results is None for profiler in profilers)


def storage_id(storage: torch.UntypedStorage) -> int:
    """Return the identity of a storage among those that are alive; two Python objects may stand for one storage."""
    return int(storage._cdata)


def storage_of(tensor: torch.Tensor) -> int:
    """Return the identity of a tensor's storage: tensors share memory where it is equal."""
    return storage_id(tensor.untyped_storage())


def set_write_count(tensor: torch.Tensor, count: int) -> None:
    """Put the count of writes back."""
    torch._C._autograd._unsafe_set_version_counter((tensor,), (count,))  # type: ignore[attr-defined]


def is_held_by_python_alone(tensor: torch.Tensor) -> bool:
    """Whether nothing in PyTorch, such as autograd, refers to a tensor, so that it can become another."""
    return bool(tensor._use_count() == 1) and not tensor.retains_grad  # type: ignore[attr-defined]
