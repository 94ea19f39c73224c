"""One run of a PyTorch program, in a process of its own when asked by `fresh_process`."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .. import fresh_process
from ..fresh_process import time_runs
from .costs import peak_of
from .replay import SEED
from .sources import as_call, call_function, placed
from .torch_internals import custom_builtins, pytree, storage_of

ARGUMENTS = "arguments.pt"


def held_bytes(values: Iterable[Any]) -> int:
    """Return the bytes of all tensors among the values, each storage once."""
    tensors = [value for value in values if issubclass(type(value), torch.Tensor) and value.layout is torch.strided]
    return sum({storage_of(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}.values())


def function_of(code: str) -> Callable[..., Any]:
    """Return the program that the code of a `GraphModule` defines.

    A pickled one would be traced again when read, and ops without tensors (`arange`, `rand`) would become constants.
    """
    names: dict[str, Any] = {name: builtin.obj for name, builtin in custom_builtins.items()}
    exec(code, names)
    return partial(names["forward"], None)


def digests(*values: Any) -> list[str]:
    """Return the digests of all tensors and values in any nest of values."""
    return [digest(value) for value in pytree.tree_leaves(values)]


def digest(value: Any) -> str:
    """Return what tells values apart: type, shape and all bits of a tensor."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    value = value.detach().resolve_conj().resolve_neg()
    dense = value.cpu().contiguous()
    flat = dense.as_strided((dense.numel(),), (1,))  # one element may keep any stride, of which no bytes are viewed
    return fresh_process.digest(value.dtype, value.shape, flat.view(torch.uint8).numpy().data)


def run_call(model: str, sizes: dict[str, int], device: str, threads: int) -> int:
    """Call a model or a step as its user does, twice, and return the most bytes held in the second call."""
    torch.set_num_threads(threads)
    called, inputs = call_function(model, sizes)
    args, kwargs = as_call(inputs)
    if isinstance(called, torch.nn.Module):
        called, args, kwargs = placed(called, args, kwargs, device, model, print)
    with torch.set_grad_enabled(not isinstance(called, torch.nn.Module)):
        called(*args, **kwargs)  # makes the optimizer's state, and what else is made once
        gc.collect()
        tensors: list[torch.Tensor] = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
        tensors += [tensor.grad for tensor in tensors if tensor.is_leaf and tensor.grad is not None]
        held = held_bytes(tensor for tensor in tensors if tensor.device.type == device)
        del tensors
        return held + peak_of(lambda: called(*args, **kwargs), device)[1]


def run_file(path: str, device: str, threads: int) -> dict[str, Any]:
    """Run the code of a `GraphModule` that a file holds, for memory and again for time.

    The file `ARGUMENTS` beside it holds the arguments, and whether autograd is on.
    """
    torch.set_num_threads(threads)
    module = function_of(Path(path).read_text(encoding="utf-8"))
    arguments, grad = torch.load(Path(path).parent / ARGUMENTS, weights_only=False)
    torch.set_grad_enabled(grad)
    torch.manual_seed(SEED)
    results, peak = peak_of(lambda: module(*arguments), device)
    report = {"peak": peak, "digests": digests(results, arguments)}
    del results, arguments  # before they are read again, for the first run may have written to them
    arguments, grad = torch.load(Path(path).parent / ARGUMENTS, weights_only=False)

    def run() -> None:
        module(*arguments)
        if device == "cuda":
            torch.cuda.synchronize()

    return {**report, **time_runs(run)}
