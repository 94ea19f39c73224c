"""What a reader can hold in mind: how long files and functions are, and how many parameters they take."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    ROOT / "__init__.py",
    *(p for d in ("cli", "core", "policies", "datasets") for p in sorted((ROOT / d).rglob("*.py"))),
]
MOST_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 400, 60, 8


def functions(path):
    return [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def parameters(function):
    arguments = function.args
    named = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in named if name not in ("self", "cls")]


def is_command(path, function):
    """Whether Typer calls it: its parameters are the options of a subcommand, which a page documents."""
    return path.is_relative_to(ROOT / "cli" / "commands") and not function.name.startswith("_")


def is_public_verb(path, function):
    """Whether users call it: its parameters are those of its subcommand, and its docstring is its page."""
    return path.is_relative_to(ROOT / "core" / "front_door") and not function.name.startswith("_")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path):
    assert path.read_text().count("\n") <= MOST_LINES
    for function in functions(path):
        lines = function.end_lineno - function.lineno + 1
        if is_command(path, function):
            body = function.end_lineno - function.body[0].end_lineno  # what follows the options and the help text
            assert body <= MOST_FUNCTION_LINES, f"{function.name}: {body} lines"
            continue
        if is_public_verb(path, function):
            page = function.body[0]
            assert lines - (page.end_lineno - page.lineno + 1) <= MOST_FUNCTION_LINES, f"{function.name}: {lines} lines"
            continue
        assert lines <= MOST_FUNCTION_LINES, f"{function.name}: {lines} lines"
        assert len(parameters(function)) <= MOST_PARAMETERS, f"{function.name}: {len(parameters(function))} parameters"
