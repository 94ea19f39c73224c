"""Whatever a user names as a graph: a CostGraphDef file, or a model, which is imported on the fly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..base.errors import UsageError
from ..files.costgraph import read_graph
from ..graph.graph import CostGraph
from .importers import kind_by_name, read_model
from .options import ImportOptions


def is_model(name: str) -> bool:
    """Whether a name is that of a model rather than of a CostGraphDef file, `-` or a folder."""
    return (kind_by_name(name) is not None and not (":" in name and Path(name).exists())) or name.endswith(
        (".json", ".json.gz")
    )


def read_any(name: str, note: Callable[[str], None] = lambda text: None) -> CostGraph:
    """Read a CostGraphDef file or standard input, or import a model with the options that `import` has by default."""
    if not is_model(name):
        return read_graph(name, note)
    command = f"schedopt import {name} --output GRAPH"
    try:
        graph = read_model(name, ImportOptions(), note)
    except UsageError as error:
        remedy = f"; {command} takes options" if "--" in str(error) else ""
        raise UsageError(f"{error}{remedy}") from None
    kinds = {"pytorch": "--training, --shape, --costs", "onnx": "--shape, --costs", "tflite": "--costs"}
    options = kinds.get(kind_by_name(name) or "", "--default-size, --graph")
    note(f"{name} is imported with default options; {command} takes others ({options})")
    return graph
