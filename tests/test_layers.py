"""The house: which folder imports which, who knows methods by name, who catches everything, and what is loaded late."""

import ast
import collections
import functools
import re
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest
from models.small_graphs import sketch
from schedopt import Problem, Search
from schedopt.core.search.registry import METHODS

ROOT = Path(__file__).parents[1]
LAYERS = {
    "core": {"core"},
    "datasets": {"core", "datasets"},
    "policies": {"core", "datasets", "policies"},
    "cli": {"core", "datasets", "policies", "cli"},
}
FILES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
ROOMS = [
    *("base", "graph", "problem", "kernels", "model", "bounds", "addresses", "files", "search", "solvers"),
    *("report", "solve", "experiments", "programs", "api"),
]
"""The rooms of core, from the ground up."""
MOST_LINES = {
    **{"base": 985, "graph": 850, "problem": 1200, "kernels": 6780, "model": 1540, "bounds": 1235, "addresses": 445},
    **{"files": 2005, "search": 1820, "solvers": 4910, "report": 2555, "solve": 580, "experiments": 1625},
    **{"programs": 11445, "api": 2205, "__init__.py": 1, "cli": 3660, "datasets": 1250, "policies": 4940},
}
"""Of each room; who needs more changes it here, on purpose."""
CROWDED = {"core/programs/pytorch": 16, "cli/commands": 18}
"""Files of the folders with more than 14: a command each, and what is still to be made simpler."""
ENGLISH = {"annealing", "auto", "gas", "input", "random"}
"""Methods whose names are words of other meaning, too: a text names them if it is the name, or quotes it."""
HEAVY = {"numpy", "torch", "dgl", "numba", "ortools", "tensorboard", "scipy", "matplotlib", "onnx", "onnxruntime"}


def name_of(path):
    return str(path.relative_to(ROOT))


def room_of(path):
    return path.relative_to(ROOT / "core").parts[0]


@functools.cache
def nodes(path):
    return list(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imports(path):
    """Every imported module as `(absolute name, is relative, names)`; relative ones are resolved."""
    return list(_imports(path))


def _imports(path):
    package = ["schedopt", *path.relative_to(ROOT).parent.parts]
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, False, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *(node.module or "").split(".")]).rstrip(".")
            yield module, node.level > 0, [alias.name for alias in node.names]


def imported_files(path):
    """Every file of the package that a file imports, wherever in it: as a module, or as the module of a name."""
    for module, relative, names in imports(path):
        if relative:
            folder = ROOT.joinpath(*module.split(".")[1:])
            files = [folder / f"{name}.py" for name in names] + [folder / name / "__init__.py" for name in names]
            found = [file for file in files if file.is_file()]
            yield from found or [folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")]


def methods_named(text):
    """Every method that a text names, as a word of its own and not as part of a path or a module."""
    for name in METHODS:
        word = rf"['\"`]{name}['\"`:]" if name in ENGLISH else rf"(?<![\w./-]){name}(?![\w/-]|\.\w)"
        if text == name or re.search(word, text):
            yield name


def test_a_folder_imports_only_those_below_it():
    """Relative imports inside the package, and none upwards; methods above core are named by strings alone."""
    assert len(FILES) > 200
    for path in FILES:
        allowed = LAYERS[path.relative_to(ROOT).parts[0]]
        for module, relative, names in imports(path):
            first, *rest = module.split(".")
            if not relative:
                assert first != "schedopt", f"{name_of(path)}: {module} is imported absolutely"
                assert first not in {*LAYERS, "tests", "naive"}, f"{name_of(path)}: {module} would be a second copy"
            else:
                assert first == "schedopt", f"{name_of(path)}: {module} is outside the package"
                for folder in rest[:1] or names:
                    assert folder in allowed | {"version"}, f"{name_of(path)} imports {folder}"


def test_no_file_imports_itself_through_others():
    """Imports within functions and for type checking count, too."""
    house = nx.DiGraph((path, other) for path in [ROOT / "__init__.py", *FILES] for other in imported_files(path))
    assert house.has_edge(ROOT / "core" / "solve" / "solve.py", ROOT / "core" / "search" / "search.py")
    assert house.has_edge(ROOT / "core" / "search" / "options.py", ROOT / "core" / "search" / "registry.py")
    circles = [sorted(map(name_of, circle)) for circle in nx.strongly_connected_components(house) if len(circle) > 1]
    assert circles == []


def test_rooms_of_core_import_downwards():
    """A room imports only itself and the rooms listed before it; orders know nothing of placements."""
    assert {room_of(path) for path in FILES if path.is_relative_to(ROOT / "core")} == {*ROOMS, "__init__.py"}
    for path in FILES:
        if not path.is_relative_to(ROOT / "core") or path.parent == ROOT / "core":
            continue
        for other in imported_files(path):
            if other.parent == ROOT / "core" or not other.is_relative_to(ROOT / "core"):
                continue
            above = ROOMS.index(room_of(other)) > ROOMS.index(room_of(path))
            assert not above, f"{name_of(path)} imports {name_of(other)}"
            sideways = "orders" in path.parts and "placements" in other.parts
            assert not sideways, f"{name_of(path)} imports {name_of(other)}"


def test_the_verifiers_share_nothing_with_what_they_check():
    """All that they import, and these import, is a noun: no kernel, no simulator, no bound, no solver."""
    seen, left = set(), [ROOT / "core" / "model" / "verifier.py"]
    while left:
        seen.add(path := left.pop())
        left += [other for other in imported_files(path) if other not in seen and other != ROOT / "version.py"]
    found = {room_of(path) if room_of(path) != "model" else path.stem for path in seen}
    assert found <= {"base", "graph", "problem", "verifier"}


def test_rooms_keep_to_their_sizes():
    """A folder has at most 14 files, but for those named; a room of core has at most so many lines."""
    files = collections.Counter(path.parent for path in FILES if path.name != "__init__.py")
    assert {name_of(room): count for room, count in files.items() if count > 14} == CROWDED
    lines = collections.Counter()
    for path in FILES:
        lines[room_of(path) if path.is_relative_to(ROOT / "core") else path.relative_to(ROOT).parts[0]] += len(
            path.read_text().splitlines()
        )
    assert {room: count for room, count in lines.items() if count > MOST_LINES.get(room, 0)} == {}


@pytest.mark.parametrize(
    "path",
    [ROOT / "core" / "solve" / "solve.py", *(path for path in FILES if path.is_relative_to(ROOT / "cli"))],
    ids=name_of,
)
def test_methods_are_named_in_the_registry_alone(path):
    """Texts and docstrings of the command line and of `solve` ask the registry for the names they need."""
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert list(methods_named(node.value)) == [], f"line {node.lineno}"


RENAMED = """
from schedopt.core.search import registry
others = {f"method{at}": m._replace(training="trained") for at, m in enumerate(registry.METHODS.values())}
registry.METHODS.clear()
registry.METHODS.update(others)
registry.FLAGS.update(dict.fromkeys(registry.FLAGS, "help"))
registry.DEFAULT_METHOD, registry.INPUT_METHOD = "method0", "method1"
registry.EXAMPLE = registry.BUDGET_EXAMPLE = "method2:parameter=value"

import typer
from typer.testing import CliRunner
from schedopt.cli.main import app

def show(command, words):
    print(CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "500"}).output)
    for name, subcommand in getattr(command, "commands", {}).items():
        show(subcommand, [*words, name])

show(typer.main.get_command(app), [])
"""


@pytest.mark.slow
def test_help_texts_name_no_method_that_the_registry_does_not():
    """With the methods renamed, no help text of any subcommand has a name of before."""
    done = subprocess.run([sys.executable, "-c", RENAMED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "method0" in done.stdout
    assert list(methods_named(done.stdout)) == []


def test_kernels_are_compiled_in_their_folder_only():
    """What imports numba, or its wrapper `kernels.jit`, lives under core/kernels."""
    for path in FILES:
        if path.is_relative_to(ROOT / "core" / "kernels"):
            continue
        for module, _, names in imports(path):
            assert module.split(".")[0] != "numba", name_of(path)
            assert not module.endswith("kernels.jit"), name_of(path)
            assert not {"njit", "jit", "kernel", "inlined"} & set(names), name_of(path)


@pytest.mark.slow
def test_broad_excepts_are_around_the_code_of_others():
    """Few handlers catch everything: the shell's last, a method's run, an engine, a model's own code."""
    broad = [
        name_of(path)
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or {"Exception", "BaseException"} & {getattr(n, "id", "") for n in ast.walk(node.type)})
        and not (isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None)
    ]
    assert sorted(broad) == [
        "cli/start.py",
        "core/base/parallel.py",
        *["core/experiments/clusters.py"] * 2,
        "core/experiments/comparison.py",
        "core/programs/pytorch/optimize.py",
        *["core/programs/pytorch/recorder.py"] * 2,
        "core/programs/pytorch/tracing.py",
        "core/programs/tflite/interpreter.py",
        "core/search/registry.py",
    ]


def test_a_search_changes_its_own_fields_alone():
    """Methods spend, note, offer and take parts; the fields of a `Search` are written in its own file."""
    fields = set(vars(Search(Problem(sketch("op -> 1")))))
    for path in FILES:
        if path == ROOT / "core" / "search" / "search.py":
            continue
        for node in nodes(path):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) else ():
                for part in ast.walk(target):
                    if isinstance(part, ast.Attribute) and part.attr in fields:
                        owner = ast.unparse(part.value).rpartition(".")[2]
                        assert owner not in {"search", "inner", "branch"}, f"{name_of(path)}, line {node.lineno}"


def test_every_package_folder_is_installed():
    """A package that the list lacks would work when editable and be missing from the wheel."""
    text = (ROOT / "pyproject.toml").read_text()
    listed = ast.literal_eval(text.split("\npackages = ", 1)[1].split("]", 1)[0] + "]")
    found = {".".join(("schedopt", *path.parent.relative_to(ROOT).parts)) for path in FILES}
    assert sorted(found | {"schedopt"}) == sorted(listed)
    for package in found:
        assert ROOT.joinpath(*package.split(".")[1:], "__init__.py").is_file()
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(LAYERS)


def test_every_file_that_a_package_reads_is_installed():
    """Data that no pattern names would work when editable and be missing from the wheel."""
    text = (ROOT / "pyproject.toml").read_text().split("[tool.setuptools.package-data]\n", 1)[1].split("\n\n", 1)[0]
    patterns = [line.split(" = ", 1) for line in text.splitlines()]
    listed = {
        path
        for package, globs in patterns
        for pattern in ast.literal_eval(globs)
        for path in ROOT.joinpath(*package.strip('"').split(".")[1:]).glob(pattern)
    }
    folders = [folder for layer in LAYERS for folder in (ROOT / layer).rglob("*") if "__pycache__" not in folder.parts]
    data = {path for path in folders if path.is_file() and path.suffix != ".py"}
    assert data == listed - {ROOT / "py.typed"}
    for suffix in ("safetensors", "yaml"):
        assert f"weights/*.{suffix}" in text


@pytest.mark.parametrize(
    "code",
    [
        "import schedopt",
        "import sys; sys.argv = ['schedopt', '--help']; from schedopt.cli.start import main; main()",
        "import sys; sys.argv = ['schedopt', 'solve', '--help']; from schedopt.cli.start import main; main()",
        "import sys; sys.argv = ['schedopt', 'import', '--help']; from schedopt.cli.start import main; main()",
        "import sys; sys.argv = ['schedopt', '--version']; from schedopt.cli.start import main; main()",
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code):
    report = "import atexit, sys; atexit.register(lambda: print('loaded', *sys.modules, file=sys.stderr)); "
    done = subprocess.run([sys.executable, "-c", report + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = done.stderr.split()
    assert "schedopt" in loaded
    assert not HEAVY & set(loaded)
