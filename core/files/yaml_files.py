"""YAML files: read with one sentence for each way to be wrong, written whole or not at all."""

import math
import re
from pathlib import Path
from typing import Any

import yaml

from ..base.errors import FormatError
from .atomic import write_atomically
from .reading import read_bytes

_MOST_VALUES, _DEEPEST, _LONGEST_NUMBER = 1_000_000, 100, 100
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_MERGE = "tag:yaml.org,2002:merge"


def read_yaml(path: str | Path) -> Any:
    """Return a file's content, None if it is empty."""
    try:
        return parse_yaml(read_bytes(path).decode("utf-8-sig"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise not_yaml(path, error) from error


def not_yaml(path: str | Path, error: Exception) -> FormatError:
    """Return the error of a file that is not YAML, with the line where that shows, if it is known."""
    mark = getattr(error, "problem_mark", None)
    where = str(path) if mark is None else f"{path}, line {mark.line + 1}"
    said = getattr(error, "problem", None) or " ".join(str(error).split())
    return FormatError(f"{where}: is not YAML: {said}")


def parse_yaml(text: str) -> Any:
    """Return a text's content."""
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", text):  # of which the parser takes seconds to say that they are too deep
        depth += 1 if bracket in "[{" else -1
        if depth > _DEEPEST:
            raise ValueError(f"brackets are nested more than {_DEEPEST} deep")
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        _check_keys(node, set())
        values = None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()
    _check_size(values)
    return values


def _check_keys(node: yaml.Node | None, seen: set[int]) -> None:
    """Refuse a key that a mapping has twice, of which the parser takes the last one without a word."""
    if node is None or id(node) in seen or isinstance(node, yaml.ScalarNode):
        return
    seen.add(id(node))
    keys: set[Any] = set()
    for part in node.value:
        key, value = part if isinstance(node, yaml.MappingNode) else (None, part)
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            if (key.tag, key.value) in keys:
                raise yaml.MarkedYAMLError(problem=f"'{key.value}' is there twice", problem_mark=key.start_mark)
            keys.add((key.tag, key.value))
        _check_keys(value, seen)


class _Loader(yaml.SafeLoader):
    """Plain values, but no numbers to base 60 (`1:30` is 90), none that take seconds, no `<<` that fills the memory."""

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Return the text of a value; of a number 1:1:1:... the parser would make one with as many digits, slowly."""
        if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise ValueError(f"line {node.start_mark.line + 1} has a number of {len(node.value):,} letters")
        if node.tag in _NUMBERS and ":" in node.value:
            said = f"{node.value} would be a number to base 60; write it out, or in quotes"
            raise yaml.MarkedYAMLError(problem=said, problem_mark=node.start_mark)
        return super().construct_scalar(node)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Copy the mappings of `<<` into a mapping: each level of aliases may be many times the level before."""
        for key, value in node.value:
            parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
            merged = [part for part in parts if key.tag == _MERGE and isinstance(part, yaml.MappingNode)]
            for part in merged:
                self.flatten_mapping(part)
            if sum(len(part.value) for part in merged) > _MOST_VALUES:
                raise ValueError(f"its << merges expand to more than {_MOST_VALUES:,} values")
        super().flatten_mapping(node)


def _check_size(values: Any) -> None:
    """Refuse documents that aliases make large: each mention of a value counts all that it holds."""
    sizes: dict[int, float] = {}

    def size(value: Any) -> float:
        if not isinstance(value, (dict, list)):
            return 1
        if id(value) not in sizes:
            sizes[id(value)] = math.inf  # until it is known: what holds itself has no end
            sizes[id(value)] = 1 + sum(map(size, value.values() if isinstance(value, dict) else value))
        return sizes[id(value)]

    if size(values) > _MOST_VALUES:
        raise ValueError(f"its aliases expand to more than {_MOST_VALUES:,} values")


def write_yaml(path: str | Path, values: Any) -> None:
    """Write plain values in the order in which they are."""
    write_atomically(path, yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120))
