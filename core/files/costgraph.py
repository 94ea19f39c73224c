"""CostGraphDef, the field's own file format: text or binary, plain or gzip, a file or a pipe; and hashes of graphs."""

import codecs
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import compress, count, filterfalse
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..base.arrays import INT32_MAX, INT64_MAX
from ..base.errors import FormatError, UsageError
from ..base.speed import without_gc
from ..graph.annotations import NO_ANNOTATIONS
from ..graph.builder import GraphBuilder
from ..graph.graph import CostGraph
from .atomic import write_out
from .costgraph_remarks import REMARKS, remarks_of, with_remarks
from .reading import read_raw, unzipped

FINAL_MARK = "schedopt/final"
"""The `device` of an op that only says which tensor is final."""

_COSTS = ("compute_cost", "temporary_memory_size", "persistent_memory_size")
_NODE_INTEGERS = {"id": INT32_MAX, **dict.fromkeys(_COSTS, INT64_MAX)}
_BLOCKS = {
    "input_info {": ("input_info", "preceding_node", "preceding_port", INT32_MAX),
    "output_info {": ("output_info", "size", "alias_input_port", INT64_MAX),
}
"""The field that holds the blocks of a name, their two members, and the largest value."""
_PLAIN_TEXT = re.compile(r'"([ !#-\[\]-~]*(?:\\["\\\'][ !#-\[\]-~]*)*)"')


def _integer(value: str, largest: int) -> int:
    """Parse a decimal integer; raises ValueError for whatever only the full parser should judge."""
    value = value.strip()
    digits = value.removeprefix("-")
    if not (digits.isdigit() and digits.isascii()) or (digits[0] == "0" and digits != "0"):
        raise ValueError(value)
    number = int(value)
    if not -largest - 1 <= number <= largest:
        raise ValueError(value)
    return number


def parse_lines(text: str, prefix: str) -> Any:
    """Read text laid out one field a line, several times as fast as protobuf; None if it is any other."""
    from .messages import CostGraphDef

    message = CostGraphDef()
    lines = iter(text.split("\n"))
    try:
        for line in lines:
            block = line.strip()
            if block in ("node {", "node: {"):
                _parse_node(lines, message.node.add())
            elif block in ("cost {", "cost: {"):
                message.cost.add(dimension=_parse_cost(lines, prefix))
            elif block:
                return None
    except (ValueError, StopIteration):
        return None
    return message


def _parse_node(lines: Iterator[str], node: Any) -> None:
    """Fill a node from the lines up to its end."""
    seen: set[str] = set()
    while True:
        key, colon, value = next(lines).partition(":")
        key = key.strip()
        if not colon:
            if key in _BLOCKS:
                blocks, first, second, largest = _BLOCKS[key]
                getattr(node, blocks).add(**_parse_block(lines, first, second, largest))
            elif key == "}":
                return
            elif key:
                raise ValueError(key)
        elif key == "control_input":
            node.control_input.append(_integer(value, INT32_MAX))
        elif key in seen:
            raise ValueError(key)
        elif key in _NODE_INTEGERS:
            setattr(node, key, _integer(value, _NODE_INTEGERS[key]))
        elif key == "name":
            name = value.strip()
            if len(name) < 2 or name[0] != '"' or name[-1] != '"' or "\\" in name or '"' in name[1:-1]:
                raise ValueError(name)
            node.name = name[1:-1]
        elif key == "is_final":
            if value.strip() not in ("true", "false"):
                raise ValueError(value)
            node.is_final = value.strip() == "true"
        elif key == "device" and value.strip() == f'"{FINAL_MARK}"':
            node.device = FINAL_MARK
        else:
            raise ValueError(key)
        seen.add(key)


def _parse_cost(lines: Iterator[str], prefix: str) -> str:
    key, _, value = next(lines).partition(":")
    quoted = _PLAIN_TEXT.fullmatch(value.strip())
    if key.strip() != "dimension" or next(lines).strip() != "}" or quoted is None:
        raise ValueError(key)
    parts = quoted[1].split("\\\\")
    dimension = "\\".join(part.replace('\\"', '"').replace("\\'", "'") for part in parts)
    if not dimension.startswith(prefix):
        raise ValueError(dimension)
    return dimension


def _parse_block(lines: Iterator[str], first: str, second: str, largest: int) -> dict[str, int]:
    members: dict[str, int] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        key = key.strip()
        if colon:
            if key not in (first, second) or key in members:
                raise ValueError(key)
            members[key] = _integer(value, largest)
        elif key == "}":
            return members
        elif key:
            raise ValueError(key)
    raise ValueError("the block does not end")


Encoding = Literal["text", "binary"]
SUFFIXES: dict[str, tuple[Encoding, bool]] = {
    ".pbtxt": ("text", False),
    ".pb": ("binary", False),
    ".pbtxt.gz": ("text", True),
    ".pb.gz": ("binary", True),
}
DROPPED_NODE_FIELDS = (
    *("host_temp_memory_size", "device_temp_memory_size", "device_persistent_memory_size"),
    *("compute_time", "memory_time", "inaccurate"),
)
_dropped_of = attrgetter(*DROPPED_NODE_FIELDS)
_preceding_node, _preceding_port = attrgetter("preceding_node"), attrgetter("preceding_port")


def graph_name(path: str | Path) -> str:
    """Return the file's name without folder and format suffix; `stdin` for `-`."""
    if str(path) == "-":
        return "stdin"
    return re.sub(r"(\.(pbtxt|pb|txt))?(\.gz)?$", "", Path(path).name) or Path(path).name


def read_graph(path: str | Path, note: Callable[[str], None] = lambda text: None) -> CostGraph:
    """Read a CostGraphDef file, text or binary, plain or gzip; `-` reads standard input.

    Parameters
    ----------
    path
        The file, or `-`.
    note
        Called with each remark worth showing, such as fields that were dropped.

    Raises
    ------
    FormatError
        If the file cannot be read, or is not a CostGraphDef, or is truncated.
    GraphError
        If the graph breaks a rule; the message names the op.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("small")
    >>> op = builder.add_op("op", outputs=[1024])
    >>> schedopt.write_graph(builder.build(), "small.pbtxt")
    >>> schedopt.read_graph("small.pbtxt")
    CostGraph('small': 1 ops, 1 tensors)
    """
    return parse_graph(read_raw(path), graph_name(path), note, str(path))


@without_gc()
def parse_graph(
    data: bytes, name: str, note: Callable[[str], None] = lambda text: None, path: str | None = None
) -> CostGraph:
    """Parse the bytes of a CostGraphDef; see `read_graph`."""
    where = path or name
    data = unzipped(data, where).removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise FormatError(f"{where}: the file is empty")
    if _looks_like_text(data):
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{where}: not UTF-8 text at byte {error.start}") from error
        message = parse_lines(text, REMARKS)
        message = _parse_text(text, where) if message is None else message
    else:
        message = _parse_binary(data, where)
    if not message.node:
        raise FormatError(f"{where}: the graph is empty: a CostGraphDef without nodes")
    remarks = [cost.dimension for cost in message.cost if cost.dimension.startswith(REMARKS)]
    graph = with_remarks(_build(message.node, name, where, note), remarks, where, note)
    dropped = _dropped(message)
    said = [f"fields that schedopt does not use were dropped: {', '.join(sorted(dropped))}"] if dropped else []
    devices = {node.id: node.device for node in message.node if node.device != FINAL_MARK}
    if any(devices.values()):
        said.append("device is used only with --pins from-graph")
        named = tuple(devices.get(id_, "") for id_ in graph.op_ids.tolist())
        graph = replace(graph, annotations=replace(graph.annotations, devices=named))
    if said:
        note(f"{name}: {'; '.join(said)}")
    return graph


def _dropped(message: Any) -> set[str]:
    """Return the fields of a message that the model does not hold."""
    dropped = {"cost" for cost in message.cost if not cost.dimension.startswith(REMARKS)}
    for node in message.node:
        dropped.update(compress(DROPPED_NODE_FIELDS, _dropped_of(node)))
        dropped.update("dtype" for output in node.output_info if output.dtype)
        dropped.update("shape" for output in node.output_info if output.HasField("shape"))
        if node.is_final and not node.output_info:
            dropped.add("is_final of an op without outputs")
    return dropped


def _build(nodes: Sequence[Any], name: str, where: str, note: Callable[[str], None]) -> CostGraph:
    """Return the graph of the nodes, by the format's convention of what is an alias (docs/concepts/formats.md)."""
    nodes, final_ports = _without_marks(nodes)
    uses_aliases = any(output.alias_input_port for node in nodes for output in node.output_info)
    if not uses_aliases and any(node.output_info and node.input_info for node in nodes):
        note(
            f"{where}: no output has a non-zero alias_input_port, so nothing is read as an alias; "
            "write -1 for outputs that are no alias"
        )
    builder = GraphBuilder(name, where)
    for node in nodes:
        marked = final_ports.get(node.id, ())
        builder.add_op(
            node.name,
            op_id=node.id,
            control=node.control_input,
            outputs=[output.size for output in node.output_info],
            aliases=[output.alias_input_port for output in node.output_info] if uses_aliases else None,
            final=[node.is_final or port in marked for port in range(len(node.output_info))],
            runtime=node.compute_cost,
            workspace=node.temporary_memory_size,
            persistent=node.persistent_memory_size,
        )
        reads = node.input_info[:]
        builder.add_reads(list(map(_preceding_node, reads)), list(map(_preceding_port, reads)))
    return builder.build()


def _without_marks(nodes: Sequence[Any]) -> tuple[Sequence[Any], dict[int, set[int]]]:
    """Return the model's own nodes, and the ports that the others mark as final, by the id of their op."""
    if not any(node.device == FINAL_MARK for node in nodes):
        return nodes, {}
    ports = {node.id: len(node.output_info) for node in nodes}
    read = {op for node in nodes for op in (*(i.preceding_node for i in node.input_info), *node.control_input)}
    final_ports: dict[int, set[int]] = {}
    kept = []
    for node in nodes:
        if node.id not in read and _is_mark(node):
            (source,) = node.input_info
            if 0 <= source.preceding_port < ports.get(source.preceding_node, 0):
                final_ports.setdefault(source.preceding_node, set()).add(source.preceding_port)
                continue
        kept.append(node)
    return kept, final_ports


def _is_mark(node: Any) -> bool:
    """Whether a node marks a tensor as final: a final op that makes a view of it without bytes, at no cost."""
    has_costs = node.compute_cost or node.temporary_memory_size or node.persistent_memory_size or node.control_input
    views = [(output.size, output.alias_input_port) for output in node.output_info]
    is_final_view = node.is_final and len(node.input_info) == 1 and views == [(0, 0)]
    return node.device == FINAL_MARK and is_final_view and not has_costs


def _looks_like_text(data: bytes) -> bool:
    head = data[:4096]
    return not re.search(rb"[\x00-\x08\x0e-\x1f]", head) and bool(
        re.match(rb"(\s|#[^\n]*\n)*(node|cost)\s*[:{<\[]", head)
        or (data.isascii() and not data.startswith(b"\n"))  # with which binary files begin
    )


def _parse_text(text: str, where: str) -> Any:
    from google.protobuf import text_format

    from .messages import CostGraphDef

    try:
        return text_format.Parse(text, CostGraphDef())
    except (text_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        if found := _of_tensorflow(lambda empty: text_format.Parse(text, empty, allow_unknown_field=True), where):
            return found
        said = str(error).replace('"schedopt.', '"').splitlines()[0]
        said = re.sub(r"\d{50,}", lambda number: f"a number of {len(number[0]):,} digits", said)
        said = re.sub(r"^(\d+):(\d+) : (?:'.*': )?", r"line \1, column \2: ", said)  # without the line that it quotes
        raise FormatError(f"{where}: not a CostGraphDef text file, or truncated: {said}") from error


def _parse_binary(data: bytes, where: str) -> Any:
    from google.protobuf.message import DecodeError

    from .messages import CostGraphDef

    reason = ": it has fields that the format does not know"
    try:
        message = CostGraphDef.FromString(data)
        if _is_known(message):
            return message
    except DecodeError as error:
        reason = f", or truncated ({error})"
    if found := _of_tensorflow(lambda empty: type(empty).FromString(data), where):
        return found
    raise FormatError(f"{where}: not a CostGraphDef{reason}")


def _is_known(message: Any) -> bool:
    """Drop the fields of a message that the format does not know; return whether it has none."""
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return bool(message.ByteSize() == size)


def _of_tensorflow(parse: Callable[[Any], Any], where: str) -> Any:
    """Return the CostGraphDef in a RunMetadata of TensorFlow, None if it is none; refuse a GraphDef by its name."""
    from google.protobuf.message import DecodeError
    from google.protobuf.text_format import ParseError

    from .messages import GraphDef, RunMetadata

    nodes: Any = ()
    with suppress(DecodeError, ParseError, UnicodeDecodeError, RecursionError):
        nodes = parse(GraphDef()).node
    if nodes and all(node.name and node.op for node in nodes):
        raise FormatError(
            f"{where}: a GraphDef of TensorFlow, which says neither sizes nor times; give the RunMetadata of a run "
            "with graph_options.build_cost_model=1"
        )
    with suppress(DecodeError, ParseError, UnicodeDecodeError, RecursionError):
        found = parse(RunMetadata()).cost_graph
        return found if found.node and _is_known(found) else None
    return None


def _message(graph: CostGraph) -> Any:
    """Return the CostGraphDef that stands for `graph`."""
    from .messages import CostGraphDef

    of_ops = (graph.op_ids, graph.output_ptr, graph.read_ptr, graph.read_tensor)
    of_tensors = (graph.tensor_producer, graph.tensor_size, graph.alias_of, graph.is_control, graph.is_final)
    ids, output_ptr, read_ptr, reads = (column.tolist() for column in of_ops)
    producer, sizes, aliases, control, final = (column.tolist() for column in of_tensors)
    runtime = [min(int(value), INT64_MAX) for value in np.rint(graph.runtime).tolist()]
    devices = graph.annotations.devices or ("",) * graph.num_ops
    pinned: list[int] = []
    message = CostGraphDef()

    def read(node: Any, tensor: int) -> None:
        op = producer[tensor]
        node.input_info.add(preceding_node=ids[op], preceding_port=tensor - output_ptr[op])

    for op, name in enumerate(graph.op_names):
        arguments = [t for t in reads[read_ptr[op] : read_ptr[op + 1]] if not control[t]]
        waits = [t for t in reads[read_ptr[op] : read_ptr[op + 1]] if control[t]]
        ports = [t for t in range(output_ptr[op], output_ptr[op + 1]) if not control[t]]
        all_final = bool(ports) and all(final[t] for t in ports)
        pinned += [t for t in ports if final[t] and not all_final]
        node = message.node.add(
            name=name,
            device=devices[op],
            id=ids[op],
            temporary_memory_size=int(graph.workspace[op]),
            persistent_memory_size=int(graph.persistent[op]),
            compute_cost=runtime[op],
            is_final=all_final,
            control_input=[ids[producer[t]] for t in waits],
        )
        for tensor in arguments:
            read(node, tensor)
        for tensor in ports:
            alias = arguments.index(aliases[tensor]) if aliases[tensor] >= 0 else -1
            node.output_info.add(size=sizes[tensor], alias_input_port=alias)
    free_ids = filterfalse(set(ids).__contains__, count())
    for free_id, tensor in zip(free_ids, pinned, strict=False):
        name = f"{graph.op_names[producer[tensor]]}:{tensor - output_ptr[producer[tensor]]}/final"
        mark = message.node.add(name=name, device=FINAL_MARK, id=free_id, is_final=True)
        read(mark, tensor)
        mark.output_info.add()
    if remarks := remarks_of(graph):
        message.cost.add(dimension=remarks)
    return message


def format_graph(graph: CostGraph, encoding: Encoding = "text", compress: bool = False) -> bytes:
    """Return the graph with all that it holds as CostGraphDef bytes, the same for the same graph."""
    from google.protobuf.text_format import MessageToString

    message, is_text = _message(graph), encoding == "text"
    text = MessageToString(message, as_utf8=True) if is_text else ""
    data = text.encode() if is_text else message.SerializeToString(deterministic=True)
    return gzip.compress(data, mtime=0) if compress else data


def encoding_of(path: str | Path) -> tuple[Encoding, bool]:
    """Return the encoding and compression that a file's name asks for; text for `-`."""
    if str(path) == "-":
        return "text", False
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if str(path).endswith(suffix):
            return SUFFIXES[suffix]
    raise FormatError(f"{path}: the name must end in {', '.join(SUFFIXES)}")


def write_graph(graph: CostGraph, path: str | Path, encoding: Encoding | None = None) -> None:
    """Write a graph as CostGraphDef, text or binary, plain or gzip; reading it gives the same graph.

    Parameters
    ----------
    graph
        The graph.
    path
        The file, whose suffix chooses the format: `.pbtxt`, `.pb`, `.pbtxt.gz` or `.pb.gz`; `-` is standard output.
    encoding
        `text` or `binary`, whatever the suffix; by default it chooses.

    Raises
    ------
    FormatError
        If the suffix is none of these, or the file cannot be written.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("small")
    >>> op = builder.add_op("op", outputs=[1024])
    >>> schedopt.write_graph(builder.build(), "small.pb.gz")
    >>> schedopt.read_graph("small.pb.gz") == builder.build()
    True
    """
    if not isinstance(graph, CostGraph):
        raise UsageError(f"a CostGraph is written, not {type(graph).__name__}")
    chosen, compress = encoding_of(path) if encoding is None else (encoding, False)
    write_out(path, format_graph(graph, chosen, compress))


def find_graphs(paths: Iterable[str | Path]) -> list[Path]:
    """Return the graph files among files and folders (searched through), in order, folders sorted by name."""
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.name.endswith(tuple(SUFFIXES)) and p.is_file())
            if not inside:
                raise FormatError(f"{path}: the folder holds no graph ({', '.join(SUFFIXES)})")
            found.extend(inside)
        elif path.exists() or str(path) == "-":
            found.append(path)
        else:
            raise FormatError(f"{path}: no such file or folder")
    return found


def graph_hash(graph: CostGraph) -> str:
    """Return the SHA-256 of a graph's content, without its name."""
    rounded = np.round(graph.runtime)
    digest = hashlib.sha256(format_graph(replace(graph, runtime=rounded, annotations=NO_ANNOTATIONS), "binary"))
    if np.any(graph.runtime != rounded):
        digest.update(graph.runtime.tobytes())
    return digest.hexdigest()


def structure_hash(graph: CostGraph) -> str:
    """Return the SHA-256 by which a schedule file names its graph: of all that an order and its memory rest on."""
    digest = hashlib.sha256(json.dumps(graph.op_names).encode())
    of_tensors = (graph.output_ptr, graph.tensor_size, graph.alias_of, graph.is_final, graph.is_control)
    for values in (*of_tensors, graph.read_ptr, graph.read_tensor, graph.persistent):
        digest.update(values.astype("<i8").tobytes())
    return digest.hexdigest()
