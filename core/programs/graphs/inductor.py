"""Buffer graphs of PyTorch Inductor (`torch._inductor.memory.export_graph_for_simulator`).

`torch.compile` writes one per compiled graph to the folder that `TORCH_TRACE` names, if
`torch._inductor.config.reorder_for_peak_memory_debug` is set. An op here is one of Inductor's nodes (kernels, after
fusion), in the order before Inductor reorders them; the peak in this order is that of its `estimate_peak_memory`:

- Inputs that can be freed are ports of one op `inputs`, which everything waits for.
- A buffer of several parts is freed part by part: a port per part, of which the op that unpacks it returns a view.
- A buffer written in place goes on under a new name of no bytes. The file does not say which order Inductor enforces:
  an op that writes in place gets a control edge from every earlier reader of its inputs.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...base.errors import FormatError
from ...files.reading import parse_json, read_json, read_raw, shown
from ...graph.builder import GraphBuilder
from ...graph.graph import CostGraph
from ..options import ImportOptions

# An artifact of `torch._logging.trace_structured`: its announcement, then the lines of its JSON, each after a tab
_ARTIFACT = re.compile(
    r'^[VDIWE]\d{4} [^\]\n]*\] \{"artifact": ?\{"name": ?"([^"\n]*)_fused"[^\n]*\}\s*\n((?:\t[^\n]*\n?)*)', re.MULTILINE
)
_Value = TypeVar("_Value", bool, int, list[Any])


class _Buffer(NamedTuple):
    """A buffer as written; `reads` are those that the node that makes it needs."""

    name: str
    allocated: int
    freed: int
    is_input: bool
    is_output: bool
    reads: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it is the result of an op with several outputs, which are freed one by one."""
        return self.allocated > 0 and self.freed == 0

    @property
    def is_renamed(self) -> bool:
        """Whether it is a buffer written in place, under its new name, or the result of an op without results."""
        return self.allocated == 0 and self.freed == 0

    @property
    def is_part(self) -> bool:
        """Whether it is one of several outputs, allocated with the others."""
        return self.allocated == 0 and self.freed > 0


def read(model: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Read a buffer graph: its JSON, a `TORCH_TRACE` log, or a folder of logs."""
    if Path(model).is_dir() or not read_raw(model, 4096).lstrip().startswith(b"{"):
        traced = dict(_traced_graphs(Path(model)))
        name = _chosen(list(traced), model, options.graph)
        where = f"{model}: graph '{name}'"
        document = parse_json(traced[name], lambda what: f"{where}: the log is truncated or damaged there ({what})")
    else:
        name, where = _chosen([Path(model).stem], model, options.graph), model
        document = read_json(model)
    graph = buffer_graph(document, name, where)
    others = "weights and the caller's inputs"
    note(f"{where}: Inductor writes no runtimes, so every op takes 0 us; {others} are left out")
    return replace(graph, annotations=replace(graph.annotations, left_out=(others,)))


def _chosen(names: list[str], model: str, wanted: str | None) -> str:
    if not names:
        raise FormatError(
            f"{model}: no buffer graph of Inductor in it; set torch._inductor.config.reorder_for_peak_memory_debug = "
            "True and compile with TORCH_TRACE=FOLDER and TORCHINDUCTOR_FORCE_DISABLE_CACHES=1"
        )
    if wanted is None and len(names) > 1:
        raise FormatError(f"{model}: it holds {len(names)} graphs; choose one by --graph: {', '.join(names)}")
    if wanted is not None and wanted not in names:
        raise FormatError(f"{model}: it holds no graph '{wanted}'; choose from {', '.join(names)}")
    return wanted or names[0]


def _traced_graphs(model: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the JSON of each buffer graph in a log, or in all logs of a folder."""
    counts = Counter[str]()
    for log in sorted(model.rglob("*.log")) if model.is_dir() else [model]:
        for name, payload in _ARTIFACT.findall(read_raw(log).decode("utf-8", errors="replace")):
            counts[name] += 1
            yield (name if counts[name] == 1 else f"{name}#{counts[name]}"), payload


def buffer_graph(document: Any, name: str, where: str, after: Mapping[str, Collection[str]] | None = None) -> CostGraph:
    """Return the graph of a buffer graph document."""
    nodes, buffers = _parsed(document, where)
    wholes = _wholes(nodes, buffers, where)
    inputs = [buffer.name for buffer in buffers.values() if buffer.is_input]
    first = 1 if inputs else 0
    made_by = [*([inputs] if inputs else ()), *nodes.values()]
    ports = [_ports(made, buffers, wholes) for made in made_by]
    place = {port.name: (op, at) for op, each in enumerate(ports) for at, port in enumerate(each)}
    maker = {buffer: op for op, made in enumerate(made_by) for buffer in made}
    number = {node: op for op, node in enumerate(nodes, start=first)}
    builder = GraphBuilder(name, where)
    if inputs:
        sizes, final = [port.size for port in ports[0]], [port.is_final for port in ports[0]]
        builder.add_op("inputs", outputs=sizes, final=final, once=True)
    readers: defaultdict[str, list[int]] = defaultdict(list)
    for op, (node, made) in enumerate(nodes.items(), start=first):
        own, needed = ports[op], [buffer for buffer in buffers[made[0]].reads if buffer not in made]
        views = [port.view_of for port in own if port.view_of]
        reads = views + [buffer for buffer in needed if not buffers[buffer].is_whole]
        control = {maker[buffer] for buffer in needed if buffers[buffer].is_whole}
        control -= {place[view][0] for view in views}
        if after is not None:
            control.update(number[earlier] for earlier in after[node])
        elif any(buffers[buffer].is_renamed for buffer in made):
            control.update(reader for buffer in needed for reader in readers[buffer])
        if inputs and not reads and not control:
            control.add(0)
        builder.add_op(
            node,
            inputs=[place[buffer] for buffer in reads],
            control=sorted(control),
            outputs=[port.size for port in own],
            aliases=[views.index(port.view_of) if port.view_of else -1 for port in own],
            final=[port.is_final for port in own],
            once=True,  # the file does not say which kernels draw random numbers or write in place
        )
        for buffer in needed:
            readers[buffer].append(op)
    return builder.build()


class _Port(NamedTuple):
    name: str
    size: int
    is_final: bool = False
    view_of: str = ""


def _ports(made: list[str], buffers: Mapping[str, _Buffer], wholes: Mapping[str, str]) -> list[_Port]:
    """Return the ports of the op that makes some buffers; those for parts that other ops unpack have names of both."""
    ports = []
    for name in made:
        buffer, whole = buffers[name], wholes.get(name)
        if buffer.is_whole:
            parts = [part for part, of in wholes.items() if of == name and part not in made]
            ports += [_Port(f"{name}/{part}", buffers[part].freed) for part in parts]
        else:
            view_of = f"{whole}/{name}" if whole is not None and whole not in made else ""
            ports.append(_Port(name, buffer.freed, buffer.is_output, view_of))
    return ports


def _wholes(nodes: Mapping[str, list[str]], buffers: Mapping[str, _Buffer], where: str) -> dict[str, str]:
    """Return for each part its whole."""
    made_with = {buffer: made for made in nodes.values() for buffer in made}
    wholes: dict[str, str] = {}
    sizes: defaultdict[str, int] = defaultdict(int)
    for name, buffer in buffers.items():
        if not buffer.is_part:
            continue
        candidates = [other for other in {*buffer.reads, *made_with.get(name, ())} if buffers[other].is_whole]
        if len(candidates) != 1:
            what = f"is freed but never allocated, and is a part of {len(candidates)} buffers"
            raise FormatError(f"{where}: buffer '{name}' {what}")
        wholes[name] = candidates[0]
        sizes[candidates[0]] += buffer.freed
    for name, buffer in buffers.items():
        if buffer.is_whole and sizes[name] != buffer.allocated:
            what = f"allocates {buffer.allocated} bytes, but its parts free {sizes[name]}"
            raise FormatError(f"{where}: buffer '{name}' {what}")
        if not (buffer.is_whole or buffer.is_part) and buffer.allocated != buffer.freed:
            raise FormatError(f"{where}: buffer '{name}' allocates {buffer.allocated} bytes but frees {buffer.freed}")
    return wholes


def _of_type(kind: type[_Value], entry: dict[str, Any], field: str) -> _Value:
    """Return a field of a buffer: no number for a truth, no infinity for a size."""
    value = entry[field]
    if type(value) is not kind:
        raise ValueError(f"{field} is {shown(value)}")
    return value


def _parsed(document: Any, where: str) -> tuple[dict[str, list[str]], dict[str, _Buffer]]:
    """Return the buffers that each node makes, by its name in the given order, and the buffers by name."""
    try:
        buffers = {
            str(entry["name"]): _Buffer(
                str(entry["name"]),
                _of_type(int, entry, "size_alloc"),
                _of_type(int, entry, "size_free"),
                _of_type(bool, entry, "is_input"),
                _of_type(bool, entry, "is_output"),
                tuple(map(str, _of_type(list, entry, "deps"))),
            )
            for entry in document["buffers"]
        }
        nodes = {
            str(entry["name"]): [name for name in map(str, entry["buffer_names"]) if name in buffers]
            for entry in document["nodes"]
        }
        is_unique = len(nodes) == len(document["nodes"]) and len(buffers) == len(document["buffers"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise FormatError(f"{where}: not a buffer graph of Inductor, or of another version: {reason}") from error
    made = Counter(buffer for each in nodes.values() for buffer in each)
    if not is_unique or made.total() > len(made):
        raise FormatError(f"{where}: a node or a buffer is there twice")
    for node, names in nodes.items():
        if not names:
            raise FormatError(f"{where}: node '{node}' has no buffers, so the file does not say what it needs")
    for name, buffer in buffers.items():
        if not buffer.is_input and name not in made:
            raise FormatError(f"{where}: no node makes the buffer '{name}'")
        for needed in buffer.reads:
            if needed not in buffers:
                raise FormatError(f"{where}: buffer '{name}' needs '{needed}', which is not in the file")
    return nodes, buffers
