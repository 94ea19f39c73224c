"""Nodes of an ONNX graph: their names, what they read, what is inside of them, and which draw random numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, defs

RANDOM_OPS = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
_LATEST = 10_000
OFFICIAL_DOMAINS = {"", "ai.onnx", "ai.onnx.ml"}
VIEWS = {"Flatten", "Reshape", "Squeeze", "Unsqueeze"}


def node_names(graph: GraphProto) -> list[str]:
    """Return a unique name per node: its own, or `OP_INDEX`; a repeated one gets `#INDEX` from the second on."""
    taken = {node.name for node in graph.node}
    names: list[str] = []
    seen: set[str] = set()
    for index, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{index}"
        while name in seen or (name in taken and name != node.name):
            name += f"#{index}"
        seen.add(name)
        names.append(name)
    return names


def default_order(graph: GraphProto, functions: Collection[tuple[str, str]]) -> list[int]:
    """Return the nodes of a graph in the order in which ONNX Runtime runs them by default: depth first from the ends.

    Of several the last comes first. Calls of the model's functions count as last: loading puts their nodes there.
    """
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    place = [((node.domain, node.op_type) in functions, index) for index, node in enumerate(graph.node)]
    read = [{makers[name] for name in reads(node) if name in makers} for node in graph.node]
    stack = sorted(set(range(len(read))).difference(*read), key=place.__getitem__)
    order, seen = list[int](), set[int]()
    while stack:
        index = stack.pop()
        if index < 0:  # all that it reads has run
            order.append(~index)
        elif index not in seen:
            seen.add(index)
            stack += [~index, *sorted(read[index], key=place.__getitem__)]
    return [*order, *(index for index in range(len(read)) if index not in seen)]


def reads(node: NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, repeats included; what its graphs take from outside comes last, once."""
    yield from (name for name in node.input if name)
    captured = dict.fromkeys(name for graph in subgraphs(node) for name in _captured(graph))
    yield from (name for name in captured if name not in node.input)


def is_view(node: NodeProto) -> bool:
    """Whether the output of a node is its input's buffer."""
    return node.op_type in VIEWS and node.domain in OFFICIAL_DOMAINS


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs that are attributes of a node: the branches of an If, the body of a Loop or Scan."""
    for entry in node.attribute:
        if entry.type == AttributeProto.GRAPH:
            yield entry.g
        elif entry.type == AttributeProto.GRAPHS:
            yield from entry.graphs


def has_subgraphs(node: NodeProto) -> bool:
    """Whether graphs are attributes of a node."""
    return next(subgraphs(node), None) is not None


def node_tensors(node: NodeProto) -> Iterator[TensorProto]:
    """Yield the tensors that a node holds, inner graphs included."""
    yield from own_tensors(node)
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from node_tensors(inner)


def own_tensors(node: NodeProto) -> Iterator[TensorProto]:
    """Yield the tensors that a node holds itself: its attributes, and the initialisers of the graphs in it."""
    for entry in node.attribute:
        yield from (*entry.tensors, *([entry.t] if entry.HasField("t") else ()))
    for graph in subgraphs(node):
        yield from graph.initializer


def opaque_in(model: ModelProto) -> Callable[[NodeProto], bool]:
    """Return what tells whether ONNX does not say what a node does: control flow, functions, custom and unknown ops."""
    functions = set(functions_of(model))
    versions = {opset.domain: opset.version for opset in model.opset_import}

    def is_opaque(node: NodeProto) -> bool:
        is_own = ("" if node.domain == "ai.onnx" else node.domain, node.op_type) in functions
        is_official = node.domain in OFFICIAL_DOMAINS and is_known(node, versions)
        return is_own or has_subgraphs(node) or not is_official

    return is_opaque


def is_known(node: NodeProto, versions: Mapping[str, int]) -> bool:
    """Whether ONNX has an op of this name and domain, at the version that a model imports."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = versions.get(domain, versions.get(node.domain, 1))
    return bool(defs.has(node.op_type, max_inclusive_version=max(1, min(version, _LATEST)), domain=domain))


def functions_of(model: ModelProto) -> dict[tuple[str, str], FunctionProto]:
    """Return a model's own functions, by domain and name."""
    return {(function.domain, function.name): function for function in model.functions}


def random_in(model: ModelProto) -> Callable[[NodeProto], bool]:
    """Return what tells whether a node draws random numbers, in its graphs or functions perhaps."""
    functions = functions_of(model)
    seen: set[tuple[str, str]] = set()

    def is_random(node: NodeProto) -> bool:
        key = (node.domain, node.op_type)
        if key in functions and key not in seen:
            seen.add(key)
            found = any(map(is_random, functions[key].node))
            seen.remove(key)
            return found
        inner = any(is_random(other) for graph in subgraphs(node) for other in graph.node)
        drops = node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2])
        return inner or drops or node.op_type in RANDOM_OPS

    return is_random


def renamed(node: NodeProto, name: str, values: Mapping[str, str]) -> NodeProto:
    """Return a copy of a node with this name, in which it and the graphs inside of it read and give other values."""
    copy = type(node)()
    copy.CopyFrom(node)
    copy.name = name
    _rename(copy, values)
    return copy


def _rename(node: NodeProto, values: Mapping[str, str]) -> None:
    for names in (node.input, node.output):
        names[:] = [values.get(value, value) for value in names]
    for graph in subgraphs(node):
        outer = {value: values[value] for value in _captured(graph) if value in values}
        for inner in graph.node:
            _rename(inner, outer)
        for result in graph.output:
            result.name = outer.get(result.name, result.name)


def _captured(graph: GraphProto) -> Iterator[str]:
    """Yield what a graph inside of a node takes from outside."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    yield from (name for node in graph.node for name in reads(node) if name not in own)
    yield from (value.name for value in graph.output if value.name not in own)
