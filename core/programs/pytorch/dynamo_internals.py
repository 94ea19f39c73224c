"""Private names of TorchDynamo and AOTAutograd: of `torch.compile(backend="schedopt")` and of planned models.

Where one is missing both are refused in one sentence that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import graph

from .torch_internals import needed_by

with needed_by("the backend 'schedopt' of torch.compile, or schedopt.optimize(model),"):
    from torch._dynamo import config as dynamo_config
    from torch._dynamo import exc
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

    """The limit of graphs for one function, and errors of a function that is no one graph."""
    from torch._dynamo import run as run_only

    """Runs a function by the graphs that there are, without a trace of new ones."""
    from torch._dynamo.backends.common import aot_autograd

    """The forward and backward graphs of ATen ops that TorchDynamo's graph becomes."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    """The cut between both graphs that PyTorch's own backends make."""
    from torch._functorch._aot_autograd.logging_utils import get_aot_graph_name

    """The name of the graph that is compiled."""
    from torch._guards import TracingContext

    """The context of a compilation: how many results of the forward graph are the model's."""

ShortenTraceback: Any = getattr(exc, "ShortenTraceback", None)
"""The base of errors that TorchDynamo passes on as they are; without it they come with its traceback."""
BoxedCodeGen: Any = getattr(graph, "_BoxedCodeGen", None)
"""Generated code that frees its arguments; before 2.9 an interpreter runs the graph."""


def boxed(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Mark a function as one that takes its arguments in a list, and empties it."""
    run._boxed_call = True  # type: ignore[attr-defined]
    return run
