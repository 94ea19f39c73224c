"""Networks as safetensors files: their weights, and the parameters that say their shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from ...core.base.errors import FormatError, UsageError
from ...core.files.atomic import write_atomically
from ...core.search.settings import from_plain, plain

Shape = TypeVar("Shape")
Module = TypeVar("Module", bound=nn.Module)


def write_network(path: str | Path, network: nn.Module) -> None:
    """Write weights and shape to a safetensors file, whole or not at all."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    write_atomically(path, save(tensors, {"network": json.dumps(plain(network.parameters_))}))


def read_network(path: str | Path, kind: type[Shape], make: Callable[[Shape], Module], command: str) -> Module:
    """Read what `write_network` wrote; other tensors in the file are left alone."""
    try:
        with safe_open(str(path), "pt") as file:
            about = (file.metadata() or {}).get("network", "null")
            with torch.device("meta"):  # shapes alone: no weights are allocated
                network = make(from_plain(kind, json.loads(about), "its network"))
            weights = {name: file.get_tensor(name).float() for name in network.state_dict()}
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (SafetensorError, ValueError, RecursionError, UsageError) as error:
        raise FormatError(f"{path}: is not a file of {command} ({error})") from error
    for name, wanted in network.state_dict().items():
        if weights[name].shape != wanted.shape:
            found, wanted = list(weights[name].shape), list(wanted.shape)
            raise FormatError(f"{path}: {name} has the shape {found}, not {wanted}; train the network again")
        if not weights[name].isfinite().all():
            raise FormatError(f"{path}: {name} holds numbers that are not finite; train the network again")
    network.load_state_dict(weights, assign=True)
    return network.eval()
