"""The tables of a comparison: their units, and names that are too long for a line."""

import io
import re

import pytest
import schedopt
from rich.console import Console


def branches(name, size):
    """Return a graph whose input order, both wide ops first, needs more than the other order."""
    builder = schedopt.GraphBuilder(name)
    start = builder.add_op("start", outputs=[size])
    wide = [builder.add_op(f"wide{i}", inputs=[(start, 0)], outputs=[size]) for i in range(2)]
    narrow = [builder.add_op(f"narrow{i}", inputs=[(op, 0)], outputs=[size // 8]) for i, op in enumerate(wide)]
    builder.add_op("join", inputs=[(op, 0) for op in narrow], outputs=[8], final=True)
    return builder.build()


def shown(comparison, width=100):
    console = Console(width=width, file=io.StringIO())
    for part in comparison.report(per_graph=True):
        console.print(part)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("sizes", "units"),
    [((2**20, 2**24), {"MiB"}), ((2**10, 2**31), {"KiB", "GiB"})],
    ids=["one shows what differs", "one would show small graphs as zeros"],
)
def test_graphs_are_in_one_unit_where_it_shows_what_differs(sizes, units):
    graphs = [branches(f"g{size}", size) for size in sizes]
    comparison = schedopt.compare(graphs, "input,dfs")
    table = shown(comparison).partition("*")[0]
    rows = [line.split() for line in shown(comparison).splitlines() if re.match(r"g\d", line)]
    assert {cell.strip("*") for row in rows for cell in row if cell.endswith(("iB", "iB*"))} == units, table
    assert all(len({row[at].strip("*") for at in (4, 6)}) == 2 for row in rows), "what differs reads differently"


def test_without_methods_the_input_order_is_compared_with_auto():
    assert schedopt.compare(branches("graph", 64)).methods == ("input", "auto")
