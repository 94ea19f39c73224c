"""`schedopt.import_model`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..base.errors import UsageError
from ..base.names import unknown
from ..base.options import spelled
from ..base.units import parse_bandwidth, parse_bytes, parse_flops
from ..graph.graph import CostGraph
from ..programs.importers import read_model
from ..programs.options import DEFAULT_FLOPS, DEFAULT_MEMORY_BANDWIDTH, ImportOptions, Size
from .graphs import Note

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

COSTS = ("roofline", "measured")


def import_model(
    model: str | os.PathLike[str] | nn.Module | ExportedProgram | Callable[..., Any],
    inputs: Any = None,
    *,
    training: str = "none",
    shapes: Mapping[str, Size] | None = None,
    costs: str = "roofline",
    flops: float | str = DEFAULT_FLOPS,
    memory_bandwidth: float | str = DEFAULT_MEMORY_BANDWIDTH,
    device: str = "cpu",
    default_size: int | str | None = None,
    reverse: bool = False,
    graph: str | None = None,
    note: Note = lambda text: None,
) -> CostGraph:
    """Import a model as a graph with costs.

    Parameters
    ----------
    model
        A PyTorch module, an exported program, or a function that does a training step, with example `inputs`; or a
        text: the path of an `.onnx`, `.tflite` or `.pt2` file, of an execution trace of PyTorch, Inductor's buffer
        graph, a DOT, networkx node-link JSON or WfCommons JSON file, a CSV file of edges; or `module:function`, which
        returns a PyTorch model or step and its example inputs.
    inputs
        The arguments of a PyTorch module: a tuple of arguments, a dict of keywords, or one tensor.
    training
        `none` for the forward pass (default); `sgd` or `adam` for a training step, or
        `adam:learning_rate=0.01`. (PyTorch)
    shapes
        A size for each symbolic dimension, by its name; of ONNX models also all sizes of an input, as
        `{"image": (1, 3, 320, 320)}`, or its value if it is one whole number. (ONNX, exported programs)
    costs
        `roofline` (default): runtimes from FLOPs and bytes, no workspace; `measured`: each op is run here. (PyTorch,
        ONNX)
    flops, memory_bandwidth
        Of the roofline, as `"100G"` and `"50GB/s"` or numbers per second; by default 1T and 100GB/s.
    device
        Where a PyTorch model is run: `cpu` (default) or `cuda`. A module is not moved.
    default_size, reverse
        Bytes of a node without a size, as `"4KiB"`, else an error (also of WfCommons files), and whether edges lead
        from a user to its dependency. (DOT, node-link JSON, CSV)
    graph
        Which graph, where a file holds several. (Inductor)
    note
        Called with each remark worth showing; by default they are dropped.

    Raises
    ------
    UsageError
        If an option has no use for this kind of model, or is not understood.
    FormatError, ProgramError
        If the model cannot be read or traced; the message names the file, the node or the line.

    Examples
    --------
    >>> import torch
    >>> schedopt.import_model(torch.nn.Linear(8, 4).eval(), torch.ones(2, 8))
    CostGraph('Linear': 2 ops, 2 tensors)
    """
    if costs not in COSTS:
        raise unknown("costs", costs, COSTS)
    if device not in ("cpu", "cuda"):
        raise unknown("device", device, ("cpu", "cuda"))
    options = ImportOptions(
        training=training,
        shapes=shapes or {},
        costs=costs,
        flops=parse_flops(flops),
        memory_bandwidth=parse_bandwidth(memory_bandwidth, spelled("memory_bandwidth")),
        device=device,
        default_size=None if default_size is None else parse_bytes(default_size, spelled("default_size")),
        reverse=reverse,
        graph=graph,
    )
    if isinstance(model, (str, os.PathLike)):
        if inputs is not None:
            raise UsageError(f"inputs are for a PyTorch module; {os.fspath(model)} has its own")
        return read_model(os.fspath(model), options, note)
    return _import_module(model, inputs, options, note)


def _import_module(model: Any, inputs: Any, options: ImportOptions, note: Note) -> CostGraph:
    from torch import nn
    from torch.export import ExportedProgram

    from ..programs.options import Roofline
    from ..programs.pytorch.importer import graph_of
    from ..programs.pytorch.program import program_of
    from ..programs.pytorch.run import measured_costs

    if not isinstance(model, (nn.Module, ExportedProgram)) and (not callable(model) or isinstance(model, type)):
        raise UsageError(f"a model is a path, module:function, or a PyTorch module, not {type(model).__name__}")
    if options.default_size is not None or options.graph is not None or options.reverse:
        raise UsageError("default_size, reverse and graph are for graph files, not for a PyTorch module")
    if inputs is None and not isinstance(model, ExportedProgram):
        raise UsageError("a PyTorch module is imported with example inputs: import_model(model, inputs)")
    program = program_of(model, inputs, options.training, options.plain_shapes, note=note)
    measured = measured_costs(program, options.device) if options.costs == "measured" else None
    return graph_of(program, Roofline(options.flops, options.memory_bandwidth), measured, note)
