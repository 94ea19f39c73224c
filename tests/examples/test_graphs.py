"""The graphs in `examples/graphs` are those that the scripts make, and a schedule saves memory in the imported ones."""

import re

import pytest
from models.examples import EXAMPLES, EXPERIMENTS, run
from schedopt import Problem, read_graph
from schedopt.core.model.simulator import input_peak
from schedopt.core.solve.solve import solve


@pytest.mark.slow
def test_make_graphs_makes_the_shipped_graphs_again(tmp_path):
    run(EXAMPLES / "make_graphs.sh", tmp_path)
    made, shipped = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in (tmp_path, EXAMPLES / "graphs"))
    assert made == {name: graph for name, graph in shipped.items() if name not in imported_graphs()}


def imported_graphs():
    """Return the names of the graphs that `import_graphs.sh` makes; its libraries are not needed here."""
    return re.findall(r"(?m)^schedopt import .*/(.*)\"$", (EXPERIMENTS / "real" / "import_graphs.sh").read_text())


@pytest.mark.slow
def test_a_schedule_saves_memory_in_each_imported_graph():
    saved = {}
    for name in imported_graphs():
        problem = Problem(read_graph(EXAMPLES / "graphs" / name))
        before, persistent = input_peak(problem.graph), int(problem.graph.persistent.sum())
        saved[name] = (before - solve(problem, "auto", evaluations=10).value) / (before - persistent)
    assert len(saved) == 6 and min(saved.values()) > 0.15
