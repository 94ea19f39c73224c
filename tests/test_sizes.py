"""What a reader can hold in mind: how long files and functions are, and how many parameters they take."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = [ROOT / name for name in ("cli", "core", "policies", "datasets")]
FILES = [ROOT / "__init__.py", *(path for room in ROOMS for path in sorted(room.rglob("*.py")))]
MOST_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 800, 70, 9


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
    return path.is_relative_to(ROOT / "core" / "api") and not function.name.startswith("_")


def too_long(path):
    """Say what of a file is too long."""
    if path.read_text().count("\n") > MOST_LINES:
        yield f"{path.relative_to(ROOT)}: more than {MOST_LINES} lines"
    for function in functions(path):
        where = f"{path.relative_to(ROOT)}, {function.name}"
        lines = function.end_lineno - function.lineno + 1
        page = function.body[0]
        if is_command(path, function):
            lines = function.end_lineno - page.end_lineno  # what follows the options and the help text
        elif is_public_verb(path, function):
            lines -= page.end_lineno - page.lineno + 1
        elif function.name != "__init__" and len(parameters(function)) > MOST_PARAMETERS:  # as dataclasses may have
            yield f"{where}: {len(parameters(function))} parameters"
        if lines > MOST_FUNCTION_LINES:
            yield f"{where}: {lines} lines"


def test_files_and_functions_are_short():
    assert len(FILES) > 200
    assert [said for path in FILES for said in too_long(path)] == []


def test_what_is_too_long_is_found(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    many = ", ".join("abcdefghij")
    (tmp_path / "long.py").write_text(f"def wide({many}):\n    pass\n\n\ndef long():\n" + "    pass\n" * 800)
    assert list(too_long(tmp_path / "long.py")) == [
        "long.py: more than 800 lines",
        "long.py, wide: 10 parameters",
        "long.py, long: 801 lines",
    ]
