"""Networks made from parameters: their safetensors files, the graphs they see as one, and how a search stops them."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ...core.base.arrays import IndexArray
from ...core.base.errors import FormatError, UsageError
from ...core.files.atomic import write_atomically
from ...core.files.reading import shown
from ...core.search.search import Cancelled, Search
from ...core.search.settings import from_plain, plain

Network = TypeVar("Network", bound="PolicyNetwork")


class PolicyNetwork(nn.Module):
    """A network whose parameters say its shape; a file has its weights and these."""

    shape: ClassVar[type[Any]]  # dataclass of the parameters
    command: ClassVar[str]  # of `schedopt train`

    def __init__(self, parameters: Any) -> None:
        super().__init__()
        self.parameters_ = parameters

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @classmethod
    def load(cls: type[Network], path: str | Path) -> Network:
        """Read a file of `write_network`; other tensors in the file are left alone."""
        try:
            with safe_open(str(path), "pt") as file:
                about = (file.metadata() or {}).get("network", "null")
                with torch.device("meta"):  # shapes alone: no weights are allocated
                    network = cls(from_plain(cls.shape, json.loads(about), "its network"))
                weights = {name: file.get_tensor(name).float() for name in network.state_dict()}
        except OSError as error:
            raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
        except (SafetensorError, ValueError, RecursionError, UsageError) as error:
            raise FormatError(f"{path}: is not a file of schedopt train {cls.command} ({shown(str(error))})") from error
        for name, wanted in network.state_dict().items():
            if weights[name].shape != wanted.shape:
                found, wanted = list(weights[name].shape), list(wanted.shape)
                raise FormatError(f"{path}: {name} has the shape {found}, not {wanted}; train the network again")
            if not weights[name].isfinite().all():
                raise FormatError(f"{path}: {name} holds numbers that are not finite; train the network again")
        network.load_state_dict(weights, assign=True)
        return network.eval()


def write_network(path: str | Path, network: nn.Module) -> None:
    """Write weights and shape to a safetensors file, whole or not at all."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    write_atomically(path, save(tensors, {"network": json.dumps(plain(network.parameters_))}))


def joined(arrays: Sequence[Any]) -> Tensor:
    """Put arrays of several graphs one after the other."""
    return torch.from_numpy(np.concatenate(arrays))


def joined_nodes(arrays: Sequence[IndexArray], sizes: Sequence[int]) -> Tensor:
    """Put numbers of nodes one after the other, as graphs of these sizes become one; int64."""
    first = np.cumsum(sizes) - sizes
    return joined([array.astype(np.int64) + start for array, start in zip(arrays, first.tolist(), strict=True)])


def stop_if_due(search: Search) -> None:
    """Raise `Cancelled` once the search must stop."""
    if search.exhausted():
        raise Cancelled


@contextmanager
def heeding(search: Search, network: nn.Module) -> Iterator[None]:
    """Let a network raise `Cancelled` from within, at its next module, once the search must stop."""
    hooks = [module.register_forward_pre_hook(lambda *_: stop_if_due(search)) for module in network.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
