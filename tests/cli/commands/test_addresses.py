"""`solve --addresses` and what reads it, and `pack`, in the shell."""

import json

import pytest


@pytest.fixture
def files(tmp_path, diamond):
    from schedopt.core.files.costgraph import write_graph

    graph, plan = tmp_path / "diamond.pbtxt", tmp_path / "plan.json"
    write_graph(diamond, graph)
    return graph, plan


@pytest.mark.slow
def test_solve_writes_what_check_show_and_plot_read(run, files, tmp_path):
    graph, plan = files
    done = run("solve", graph, "--addresses", "--align", "16", "--evaluations", "20", "--output", plan)
    assert done.exit_code == 0, done.stderr
    assert "alive at once, the bound" in done.stdout
    assert run("check", graph, plan).exit_code == 0
    shown = run("show", graph, plan)
    assert "address" in shown.stdout
    assert "arena of device 0: 48 B (48 bytes), optimal for this order" in shown.stdout
    assert json.loads(run("show", graph, plan, "--json").stdout)["arenas"][0]["bytes"] == 48
    for name in ("arena.svg", "arena.png"):
        drawn = run("plot", graph, plan, "--kind", "arena", "--output", tmp_path / name)
        assert drawn.exit_code == 0, drawn.stderr
    assert "no byte more than live at once" in (tmp_path / "arena.svg").read_text()
    assert run("plot", graph, "input", plan, "--output", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert '"arenas":[[48,48]]' in page


def test_pack_writes_what_its_check_reads(run, tmp_path):
    path, placed = tmp_path / "buffers.csv", tmp_path / "placed.csv"
    path.write_text("id,lower,upper,size\na,0,2,3\nb,1,3,5\n")
    done = run("pack", path, "--output", placed, "--time-limit", "1s")
    assert done.exit_code == 0, done.stderr
    assert "optimal" in done.stdout
    assert placed.read_text().startswith("id,lower,upper,size,offset\n")
    assert "valid, 2 buffers in 8 B" in run("pack", placed, "--check").stdout
    assert json.loads(run("pack", path, "--json").stdout)["arena"] == 8
    assert run("pack", path, "--check").exit_code == 2
    placed.write_text("id,lower,upper,size,offset\na,0,2,3,0\nb,1,3,5,2\n")
    wrong = run("pack", placed, "--check")
    assert wrong.exit_code == 1
    assert "overlaps" in wrong.stderr
