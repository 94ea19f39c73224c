"""`schedopt.inductor`: an order of less peak memory for the kernels of PyTorch Inductor, after fusion."""

from __future__ import annotations

from typing import Any

from ...base.errors import UsageError
from ...base.units import parse_seconds
from ...search.registry import DEFAULT_METHOD
from .inductor_internals import HOOK, check_hook, config
from .order_method import order_method
from .ordered_graph import OrderedGraph


class Installation:
    """What `inductor` returns: a context manager that gives the records, and restores the hook when it ends."""

    def __init__(self, previous: Any, graphs: list[OrderedGraph]) -> None:
        self._previous, self.graphs = previous, graphs

    def __enter__(self) -> list[OrderedGraph]:
        return self.graphs

    def __exit__(self, *exception: object) -> None:
        setattr(config, HOOK, self._previous)


def inductor(
    enabled: bool = True, *, method: str = DEFAULT_METHOD, time_limit: float | str | None = None
) -> Installation:
    """Let PyTorch Inductor (`torch.compile` as it is) run its kernels in an order of less peak memory.

    Installed as `torch._inductor.config._post_fusion_custom_pass`, which is called after fusion and before Inductor's
    own three heuristics. An order is taken if its peak, by Inductor's own estimate, is at least a thousandth below that
    of the order that Inductor would take; else all stays as it is. Which kernels there are does not change, and neither
    do the results. Each graph is logged by the logger `schedopt.inductor`. A graph that Inductor finds in its cache was
    put in order when it was compiled, and is not reported again.

    Parameters
    ----------
    enabled
        Whether to install the hook (default), from now on or, in a `with` statement, for its block; False removes it.
    method
        How to search for an order, as in `schedopt.solve`.
    time_limit
        Of the search per graph, as "2s"; by default all together takes 0.2 ms per kernel, of which a search gets what
        Inductor's heuristics leave, and 20 ms at least.

    Returns
    -------
    Installation
        For a `with` statement, which binds a list that fills with an `OrderedGraph` per graph compiled.

    Raises
    ------
    UsageError
        If this version of PyTorch has no such hook, or another program has installed its own pass there.

    Examples
    --------
    >>> import torch
    >>> model = torch.compile(torch.nn.Linear(8, 4))
    >>> with schedopt.inductor() as graphs:
    ...     pass  # call the model here: what is compiled within is put in order
    """
    check_hook()
    from .inductor_order import PeakMemoryOrder

    previous = getattr(config, HOOK)
    if previous is not None and not isinstance(previous, PeakMemoryOrder):
        raise UsageError(f"torch._inductor.config.{HOOK} is taken by {previous!r}; set it to None first")
    order_method(method)
    graphs: list[OrderedGraph] = []
    order = PeakMemoryOrder(method, None if time_limit is None else parse_seconds(time_limit), graphs)
    setattr(config, HOOK, order if enabled else None)
    return Installation(previous, graphs)
