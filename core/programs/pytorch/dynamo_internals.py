"""Private names of TorchDynamo and AOTAutograd; where one is missing, its users are refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx.graph import CodeGen

from .torch_internals import needed_by

with needed_by("the backend 'schedopt' of torch.compile, or schedopt.optimize(model),"):
    # The limit of graphs for one function, and errors of a function that is no one graph
    from torch._dynamo import config as dynamo_config
    from torch._dynamo import exc

    # Runs a function by the graphs that there are, without a trace of new ones
    from torch._dynamo import run as run_only

    # The forward and backward graphs of ATen ops that TorchDynamo's graph becomes
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

    # The name of the graph that is compiled
    from torch._functorch._aot_autograd.logging_utils import get_aot_graph_name

    # The cut between both graphs that PyTorch's own backends make
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    # The context of a compilation: how many results of the forward graph are the model's
    from torch._guards import TracingContext

ShortenTraceback: Any = getattr(exc, "ShortenTraceback", None)
"""The base of errors that TorchDynamo passes on as they are; without it they come with its traceback."""


class BoxedCodeGen(CodeGen):
    """Writes a graph as a function that takes its arguments in a list and empties it, so that each can be freed."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        """Return the head of the function, which unpacks the list."""
        names = [name.partition(":")[0].strip() for name in free_vars if name != "self"]
        head = super().gen_fn_def(["self", "args_list"], maybe_return_annotation, **options)
        return head + (f"\n    {', '.join(names)}, = args_list\n    args_list.clear()" if names else "")


def boxed(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Mark a function as one that takes its arguments in a list, and empties it."""
    run._boxed_call = True  # type: ignore[attr-defined]
    return run
