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
    builder.add_op("join", inputs=[(op, 0) for op in narrow], outputs=[8], is_final=True)
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


def test_long_names_break_where_their_parts_are_joined():
    methods = "input,brkga:evaluations=100,order-search:time_limit=100ms,brkga-tuned:evaluations=20"
    comparison = schedopt.compare(branches("graph", 64), methods)
    wide, narrow = shown(comparison, 150), shown(comparison, 80)
    assert "order-search:time_limit=100ms" in wide
    lines = [line.split()[0] for line in narrow.splitlines() if line[:1].isalnum() or line.startswith("order")]
    for part in ("brkga:", "evaluations=", "100", "order-", "search:", "time_limit=", "100ms", "brkga-tuned:"):
        assert part in lines, narrow


def test_without_methods_the_input_order_is_compared_with_auto():
    assert schedopt.compare(branches("graph", 64)).methods == ("input", "auto")


def test_methods_without_room_beside_each_other_have_rows_and_values_stay_whole():
    methods = [f"brkga:chromosomes={size}:elites=2:mutants=1:evaluations=30" for size in (4, 5, 6, 7)]
    table = shown(schedopt.compare([branches("g", 2**20)], ["input", *methods]), 60).partition("* the best")[0]
    rows = [line.split() for line in table.splitlines()]
    assert sum(cells[-2:-1] != [] and cells[-1] in ("MiB", "MiB*") for cells in rows) == 2 + len(methods)
    assert sum(cells[:1] == ["g"] for cells in rows) == 1
