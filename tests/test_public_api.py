"""The front door: which names there are, what they load, their types, their examples, and what they print."""

import doctest
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import schedopt
from models.small_graphs import chain_of

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "dgl", "numba", "ortools", "tensorboard", "scipy", "matplotlib", "numpy", "rich", "networkx", "typer"}
ERRORS = [name for name in schedopt.__all__ if name.endswith("Error")]
SHORT = 2000


def test_the_public_names():
    """Removing one of these breaks the programs of users."""
    assert dir(schedopt) == sorted(schedopt.__all__)
    assert set(schedopt.__all__) == {
        *("Machine", "Device", "read_machine"),
        *("CostGraph", "GraphBuilder", "Problem", "Schedule", "Result", "Comparison"),
        *("read_graph", "write_graph", "read_schedule", "from_networkx", "to_networkx", "import_model"),
        *("solve", "compare", "verify", "optimize", "inductor", "methods", "fit", "diff", "pareto", "__version__"),
        *("pack", "PackedBuffers"),
        *("Method", "Parameters", "Search", "parameter"),
        *("SchedoptError", "UsageError", "GraphError", "FormatError", "UnknownNameError", "OtherGraphError"),
        *("ScheduleError", "TrainingError", "ProgramError"),
    }


@pytest.mark.parametrize("name", [name for name in schedopt.__all__ if name != "__version__"])
def test_each_name_is_there_and_documented(name):
    value = getattr(schedopt, name)
    assert value.__name__ == name
    assert inspect.getdoc(value)
    if name not in ERRORS:
        assert "Parameters\n----------" in inspect.getdoc(value) or not inspect.signature(value).parameters
        examples = doctest.DocTestFinder(recurse=False).find(value, name)
        assert any(test.examples for test in examples), "an example that runs"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'schedopt' has no attribute 'nothing'"):
        _ = schedopt.nothing


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_of_one_family(name):
    assert issubclass(getattr(schedopt, name), schedopt.SchedoptError)


@pytest.mark.slow
def test_import_loads_nothing_and_every_name_is_found_in_a_new_process():
    code = (
        "import sys, schedopt; before = set(sys.modules); dir(schedopt)\n"
        f"assert not {HEAVY!r} & before, before\n"
        "own = {name for name in before if name.startswith('schedopt.')}\n"
        "assert own == {'schedopt.version', 'schedopt.testing'}, own\n"
        "from schedopt import *\n"
        "print(*(name for name in schedopt.__all__ if name not in globals()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr


def test_python_m_schedopt_is_the_command():
    done = subprocess.run([sys.executable, "-m", "schedopt", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"schedopt {schedopt.__version__}\n"


TYPED = """
import schedopt
result = schedopt.solve("graph.pb.gz", task="memory", time_limit="10s")
peak: int = result.peak_memory
names: tuple[str, ...] = result.order
graph: schedopt.CostGraph = schedopt.read_graph("graph.pb")
"""


MISTYPED = """
import schedopt
schedopt.nothing
schedopt.solve("graph.pb", task="speed")
schedopt.solve(42)
schedopt.GraphBuilder("graph").add_op("op", runtme=1.0)
"""


@pytest.mark.slow
def test_mypy_knows_the_names_and_their_types(tmp_path):
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "schedopt").symlink_to(ROOT)  # whatever the checkout is called, and however it is installed

    def errors(code):
        (tmp_path / "code.py").write_text(code)
        command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "code.py"]
        env = {**os.environ, "MYPYPATH": str(tmp_path / "path")}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        return [line for line in done.stdout.splitlines() if ": error:" in line]

    assert errors(TYPED) == []
    found = "\n".join(errors(MISTYPED))
    assert 'Module has no attribute "nothing"' in found
    assert 'Argument "task" to "solve" has incompatible type' in found
    assert 'Argument 1 to "solve" has incompatible type "int"' in found
    assert 'Unexpected keyword argument "runtme"' in found


def documented():
    for name in schedopt.__all__:
        value = getattr(schedopt, name)
        yield from doctest.DocTestFinder(recurse=False).find(value, name, globs={"schedopt": schedopt})


@pytest.mark.slow
@pytest.mark.parametrize("test", [test for test in documented() if test.examples], ids=lambda test: test.name)
def test_examples_in_docstrings_run(test, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = []
    failed = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(test, out=said.append)
    assert failed.failed == 0, "".join(said)


def test_what_is_printed_is_short():
    graph = chain_of(2000)
    problem = schedopt.Problem(graph, memory_limit=10**6)
    result = schedopt.solve(problem, "input")
    comparison = schedopt.compare(graph, ["input", "dfs"])
    for value in (graph, problem, result, result.schedule, comparison):
        assert len(repr(value)) < SHORT
    assert repr(graph) == "CostGraph('chain': 2,000 ops, 2,000 tensors)"
    assert repr(result.schedule) == "Schedule(2,000 ops on 1 device)"
    two = schedopt.Schedule.from_steps([0, ~0, 1], [0, 0, 1], [0, 1, 1])
    assert repr(two) == "Schedule(2 ops and 1 transfer on 2 devices)"


def test_methods_are_listed_with_their_parameters():
    methods = {method.name: method for method in schedopt.methods()}
    assert {"auto", "brkga", "cp-sat", "topoformer", "regal"} <= methods.keys()
    assert methods["brkga"].parameters["elites"].default == 20
    assert all(method.summary and method.source for method in methods.values())
    assert all(name in repr(schedopt.methods()) for name in methods)
