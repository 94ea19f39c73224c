"""The sizes that a user gives: of symbolic dimensions, of whole inputs, and the values of whole numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx import GraphProto, TensorProto, TypeProto, ValueInfoProto

from ...base.errors import ProgramError, UsageError
from ..options import Size, size_text

NAMELESS = {"", "?", "-1", "None"}
"""What exporters write for a size that they do not know: two of them are two sizes."""
WHOLE = {TensorProto.INT32, TensorProto.INT64}


def give_sizes(path: str, graph: GraphProto, shapes: Mapping[str, Size]) -> dict[str, int]:
    """Write the sizes of unknown dimensions into the inputs' types; return the values that inputs have.

    `shapes` has a size by a dimension's name (`INPUT.AXIS` if it has none), or all sizes or the value of an input.
    """
    inputs = {value.name: value for value in graph.input}
    standing = {name: shown(value) for name, value in inputs.items()}
    elements = {name: value.type.tensor_type.elem_type for name, value in inputs.items()}
    _give_missing_shapes(path, graph, shapes)
    dimensions = {name: dimension_names(value) for name, value in inputs.items()}
    wanted = list(dict.fromkeys(have for names in dimensions.values() for have in names if isinstance(have, str)))
    sizes: dict[str, int] = {}
    values = dict[str, int]()

    def give(dimension: str, size: int, by: str) -> None:
        if sizes.setdefault(dimension, size) != size:
            raise UsageError(
                f"{path}: --shape {by} makes dimension '{dimension}' {size}, another one {sizes[dimension]}"
            )

    for name, given in shapes.items():
        if isinstance(given, range):
            raise UsageError(f"{path}: --shape {name}={size_text(given)} is a range, which only optimize takes")
        if name in wanted and isinstance(given, int):
            give(name, given, f"{name}={given}")
        elif name in inputs and isinstance(given, int) and not dimensions[name] and elements[name] in WHOLE:
            values[name] = given
        elif name in inputs:
            for unknown, size in _matched(path, name, given, dimensions[name], standing[name]):
                give(unknown, size, f"{name}={size_text(given)}")
        else:
            have = f"it has {', '.join(wanted)}" if wanted else "all its dimensions have sizes"
            raise UsageError(f"{path}: the model has no symbolic dimension '{name}'; {have}")
    if missing := [name for name in wanted if name not in sizes]:
        raise UsageError(_missing(path, missing, dimensions, standing))
    for value in graph.input:
        for axis, known in enumerate(dimensions[value.name]):
            value.type.tensor_type.shape.dim[axis].dim_value = known if isinstance(known, int) else sizes[known]
    return values


def shown(value: ValueInfoProto) -> str:
    """Return an input as it stands in the file, as `[batch, 3, ?, ?]`."""
    if not value.type.tensor_type.HasField("shape"):
        return "[...]"
    sizes = (_size(dimension) for dimension in value.type.tensor_type.shape.dim)
    return f"[{', '.join('?' if size in NAMELESS else str(size) for size in sizes)}]"


def dimension_names(value: ValueInfoProto) -> list[int | str]:
    """Return per axis its size, or the name of what has none: its own, or `INPUT.AXIS`."""
    sizes = [_size(dimension) for dimension in value.type.tensor_type.shape.dim]
    return [f"{value.name}.{axis}" if size in NAMELESS else size for axis, size in enumerate(sizes)]


def kind_of_type(type_: TypeProto) -> str:
    """Return what a value is that is no tensor."""
    return (type_.WhichOneof("value") or "unknown").removesuffix("_type").replace("_", " ")


def _size(dimension: TypeProto.ShapeProto.Dimension) -> int | str:  # type: ignore[name-defined]
    if dimension.HasField("dim_value"):
        return int(dimension.dim_value) if dimension.dim_value >= 0 else "?"
    return str(dimension.dim_param)


def _give_missing_shapes(path: str, graph: GraphProto, shapes: Mapping[str, Size]) -> None:
    for value in graph.input:
        if not value.type.HasField("tensor_type"):
            kind = kind_of_type(value.type)
            raise ProgramError(f"{path}: input '{value.name}' is no tensor but {kind}, which has no size")
        element = value.type.tensor_type.elem_type
        if element in (TensorProto.UNDEFINED, TensorProto.STRING) or element not in TensorProto.DataType.values():
            what = "is text" if element == TensorProto.STRING else f"is of the unknown type {element}"
            raise ProgramError(f"{path}: input '{value.name}' {what}, which has no fixed size")
        if not value.type.tensor_type.HasField("shape"):
            given = shapes.get(value.name)
            if given is None or isinstance(given, int):
                raise ProgramError(f"{path}: input '{value.name}' has no shape; give --shape {value.name}=1x3x224x224")
            for size in given:
                value.type.tensor_type.shape.dim.add(dim_value=size)


def _matched(path: str, name: str, given: Size, names: Sequence[int | str], standing: str) -> Iterator[tuple[str, int]]:
    """Yield the sizes that the shape of an input gives to its dimensions without one."""
    sizes = [given] if isinstance(given, int) else list(given)
    pairs = list(zip(names, sizes, strict=False))
    if len(sizes) != len(names) or any(isinstance(have, int) and have != size for have, size in pairs):
        raise UsageError(f"{path}: --shape {name}={size_text(given)} does not fit input {name}: {standing}")
    yield from ((have, size) for have, size in pairs if isinstance(have, str))


def _missing(
    path: str, missing: Sequence[str], dimensions: Mapping[str, Sequence[int | str]], standing: Mapping[str, str]
) -> str:
    without = [name for name, names in dimensions.items() if any(dimension in missing for dimension in names)]
    inputs = ", ".join(f"{name}: {standing[name]}" for name in without)
    options = " ".join(f"--shape {name}=VALUE" for name in missing)
    example = "x".join("1" if isinstance(size, str) else str(size) for size in dimensions[without[0]])
    return (
        f"{path}: some dimensions of {inputs} have no size; give {options}, or all sizes of an input, as in "
        f"--shape {without[0]}={example}"
    )
