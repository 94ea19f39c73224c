"""Importers of models, whoever wrote them: a table, the test of a model's kind, and the options that go with it.

An importer is a function `read(model, options, note) -> CostGraph`, or a `Runtime` where such models can be run. It is
named here as a string and imported when chosen, since PyTorch and ONNX take seconds to load.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ..base.errors import FormatError, UsageError
from ..base.options import flag_of
from ..files.costgraph import SUFFIXES, read_graph
from ..files.reading import read_bytes, read_raw
from ..files.schedule_json import read_imported
from ..graph.graph import CostGraph
from .options import ImportOptions, size_text

_ROOFLINE = frozenset(("costs", "flops", "memory_bandwidth"))
_EDGES = frozenset(("default_size", "reverse"))
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_LOOKED_AT = 65536
_COMMENT = re.compile(rb"\s+|//[^\n]*|#[^\n]*|/\*.*?\*/|\xef\xbb\xbf", re.DOTALL)


@dataclass(frozen=True)
class Importer:
    """A kind of model."""

    what: str  # for messages
    entry: str  # its `read` as `module:function`, or its `Runtime` as `module:class`
    options: frozenset[str]  # fields of `ImportOptions` that it uses
    suffix: str = ""  # of a file that a runtime writes; empty where such models cannot be run


IMPORTERS = {
    "pytorch": Importer(
        "a PyTorch model", "pytorch.runtime:TorchRuntime", _ROOFLINE | {"training", "shapes", "device"}, ".pt2"
    ),
    "onnx": Importer("an ONNX model", "onnx.runtime:OnnxRuntime", _ROOFLINE | {"shapes"}, ".onnx"),
    "tflite": Importer("a TFLite model", "tflite.runtime:TfliteRuntime", _ROOFLINE, ".tflite"),
    "execution-trace": Importer("an execution trace of PyTorch", "graphs.execution_trace:read", _ROOFLINE - {"costs"}),
    "inductor": Importer("a buffer graph of Inductor", "graphs.inductor:read", frozenset({"graph"})),
    "dot": Importer("a DOT graph", "graphs.attributed_graph:read_dot", _EDGES),
    "node-link": Importer("a node-link JSON graph", "graphs.attributed_graph:read_node_link", _EDGES),
    "edge-list": Importer("a list of edges", "graphs.attributed_graph:read_edges", _EDGES),
    "snapshot": Importer("a memory snapshot of PyTorch", "graphs.snapshot:read", frozenset()),
    "workflow": Importer("a WfCommons workflow", "graphs.workflow:read", frozenset({"default_size"})),
}
_NEEDS = {"onnx": "an ONNX model needs onnx and onnxruntime", "tflite": "a TFLite model needs tflite and flatbuffers"}
_BY_SUFFIX = {".onnx": "onnx", ".tflite": "tflite", ".pt2": "pytorch", ".dot": "dot", ".gv": "dot"}
_BY_SUFFIX |= {".csv": "edge-list", ".tsv": "edge-list", ".pickle": "snapshot", ".pkl": "snapshot"}
_READABLE = (
    "an .onnx, .tflite or .pt2 file, module:function, an execution trace of PyTorch, Inductor's buffer JSON or "
    "TORCH_TRACE folder, networkx node-link .json, .dot, a .csv of edges, a memory snapshot or a WfCommons workflow"
)


def read_model(model: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Import a model of any kind."""
    check_options(model, options)
    importer = IMPORTERS[kind_of(model)]
    found = load(importer.entry)(model, options, note)
    return with_imported(found.graph(options.costs, note) if importer.suffix else found, model, options)


def load(entry: str) -> Any:
    """Import the object of `core.programs` named as `module:function` or `module:class`."""
    module, _, function = entry.partition(":")
    try:
        return getattr(import_module(f"schedopt.core.programs.{module}"), function)
    except ImportError as error:
        room = module.partition(".")[0]
        if room not in _NEEDS:
            raise
        raise UsageError(f"{_NEEDS[room]} ({error}): pip install 'schedopt[{room}]'") from error


def check_options(model: str, options: ImportOptions) -> None:
    """Raise UsageError if an option is set that has no use for this kind of model."""
    importer = IMPORTERS[kind_by_name(model) or kind_of(model)]
    for name in options.changed:
        if name not in importer.options:
            able = " or ".join(other.what for other in IMPORTERS.values() if name in other.options)
            raise UsageError(f"{model} is {importer.what}, which has no use for {_flag(name)}; it is for {able}")
    for name, given in options.shapes.items():
        if importer is not IMPORTERS["onnx"] and not isinstance(given, int):
            shape = f"--shape {name}={size_text(given)}"
            raise UsageError(f"{model}: {shape} is for ONNX models; here a shape is one number")


def _flag(option: str) -> str:
    return "--shape" if option == "shapes" else flag_of(option)


def kind_by_name(model: str) -> str | None:
    """Return the kind in `IMPORTERS` that the name of a model tells, whether there is such a file or not."""
    if _FUNCTION.fullmatch(model):
        return "pytorch"
    if model.lower().endswith((".pickle.gz", ".pkl.gz")):
        return "snapshot"
    return _BY_SUFFIX.get(Path(model).suffix.lower())


def kind_of(model: str) -> str:
    """Return the name in `IMPORTERS` of a model's kind, by its suffix or else its content."""
    path = Path(model)
    if path.is_dir():
        return "inductor"
    kind = kind_by_name(model)
    if not path.exists() and not (kind == "pytorch" and ":" in model):
        raise FormatError(f"{model}: no such file or folder; a Python function is written module:function")
    if kind is not None:
        return kind
    if model.endswith(tuple(SUFFIXES)):
        raise FormatError(f"{model}: a CostGraphDef needs no import; solve, show and convert read it as it is")
    return _kind_by_content(path)


def _kind_by_content(path: Path) -> str:
    head = read_raw(path, _LOOKED_AT)
    if re.match(rb"\x80[\x02-\x05]", head):
        return "snapshot"
    if re.match(rb"(\xef\xbb\xbf)?\s*[{\[]|\x1f\x8b", head):
        return _kind_of_json(path)
    if re.match(rb"[A-Z]\d{4} \d\d:\d\d:\d\d", head):
        return "inductor"
    at = 0
    while found := _COMMENT.match(head, at):  # comment by comment, so that none is looked at twice
        at = found.end()
    if re.match(rb"(strict|digraph|graph)\b", head[at:], re.IGNORECASE):
        return "dot"
    raise FormatError(f"{path}: no model that can be imported; give {_READABLE}")


def _kind_of_json(path: Path) -> str:
    """Tell apart two kinds of JSON by the names of their members, so that a truncated file is told by its reader."""
    data = read_bytes(path)
    try:
        document: Any = json.loads(data)
        names = set(document) if isinstance(document, dict) else set()
    except (ValueError, RecursionError):
        names = set(re.findall(r'"(\w+)"\s*:', data.decode("utf-8", errors="replace")))
    if "workflow" in names and "nodes" not in names:
        return "workflow"
    if "schema" in names and "nodes" in names:
        return "execution-trace"
    if "buffers" in names or "buffer_names" in names:
        return "inductor"
    if "steps" in names:
        raise FormatError(f"{path}: a schedule, not a model; import the model that it was made for")
    if "nodes" in names or "links" in names or "edges" in names:
        return "node-link"
    what = "JSON, but neither networkx node-link (nodes, edges), Inductor's (nodes, buffers) nor WfCommons'"
    raise FormatError(f"{path}: {what}")


_PROGRAM_OPTIONS: dict[str, type] = {"training": str, "shapes": dict, "device": str}
"""The options that identify the program, and their types."""


def with_imported(graph: CostGraph, model: str, options: ImportOptions) -> CostGraph:
    """Return a graph that names its model, and the options that are not the default."""
    given = {name: dict(value) if isinstance(value, Mapping) else value for name, value in options.changed.items()}
    return replace(graph, annotations=replace(graph.annotations, imported={"model": model, **given}))


def options_for(schedules: Sequence[str], given: Mapping[str, Any], note: Callable[[str], None]) -> ImportOptions:
    """Return the options with which the graph of schedule files was imported, unless others are given."""
    taken, said_by = dict(given), dict[str, str]()
    for path in schedules:
        stored = read_imported(path)
        if not stored:
            continue
        for name, kind in _PROGRAM_OPTIONS.items():
            flag, default = _flag(name), getattr(ImportOptions(), name)
            value = _checked(path, name, kind, stored.get(name, default))
            if name in given:
                if value != given[name]:
                    said = f"with {flag} {_text(value)}" if value != default else f"without {flag}"
                    note(f"{path}: its graph was imported {said}; {flag} {_text(given[name])} is used, as given")
            elif name in said_by and taken[name] != value:
                raise UsageError(
                    f"{said_by[name]} is of a graph imported with {flag} {_text(taken[name]) or 'none'}, {path} of one "
                    f"with {flag} {_text(value) or 'none'}; measure them apart, or give {flag}"
                )
            else:
                taken[name] = value
                said_by[name] = path
    return ImportOptions(**taken)


def _checked(path: str, name: str, kind: type, value: Any) -> Any:
    """Return the value of an option that a schedule file holds."""
    is_right = isinstance(value, kind)
    if name == "shapes" and is_right:
        value = {key: tuple(size) if isinstance(size, list) else size for key, size in value.items()}
        sizes = [size for given in value.values() for size in (given if isinstance(given, tuple) else [given])]
        is_right = all(type(size) is int and size > 0 for size in sizes)
    if not is_right:
        raise FormatError(f"{path}: the field 'imported' has '{name}' {value!r}, which is no value of {name}")
    return value


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={size_text(size)}" for name, size in value.items())
    return str(value)


def is_model(name: str) -> bool:
    """Whether a name is that of a model rather than of a CostGraphDef file, `-` or a folder."""
    is_named = kind_by_name(name) is not None and not (":" in name and Path(name).exists())
    return is_named or name.endswith((".json", ".json.gz"))


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
    options = kinds.get(kind_by_name(name) or "", "--default-size, --reverse, --graph")
    note(f"{name} is imported with default options; {command} takes others ({options})")
    return graph
