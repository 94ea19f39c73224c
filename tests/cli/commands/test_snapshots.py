"""`schedopt show` and `import` of memory snapshots."""

import json
import pickle

from models.allocator_traces import FRAMES, MIB, recorded, small_snapshot
from schedopt import GraphBuilder, write_graph
from schedopt.core.graph.annotations import Annotations
from schedopt.core.programs.graphs.snapshot import read_snapshot


def test_show_tells_what_is_reserved_and_what_was_refused(run, tmp_path):
    document = small_snapshot()
    oom = {"action": "oom", "addr": 0, "size": 2**31, "stream": 0, "device_free": 2**20, "frames": FRAMES}
    document["device_traces"][1].append(oom)
    (tmp_path / "s.pickle").write_bytes(pickle.dumps(document))
    result = run("show", tmp_path / "s.pickle")
    assert result.exit_code == 0, result.stderr
    assert "reserved and unused then" in result.stdout
    assert "4 of 4" in result.stdout
    assert "refused: 2.00 GiB at model.py:31, event 6; the device had 1.00 MiB left" in result.stdout
    assert json.loads(run("show", tmp_path / "s.pickle", "--json").stdout)["allocations"] == 4
    assert run("import", tmp_path / "s.pickle", "--output", tmp_path / "g.pb").exit_code == 0
    assert run("solve", tmp_path / "g.pb", "--quiet").exit_code == 0


def test_two_snapshots_and_a_plan_are_compared_by_line(run, tmp_path):
    smaller = recorded([0, 1, ~0, 2, 3, ~1], [5 * MIB, 3 * MIB, 100, 5 * MIB], [0] * 4, first=0)
    for name, document in (("a", small_snapshot()), ("b", smaller)):
        (tmp_path / f"{name}.pickle").write_bytes(pickle.dumps(document))
    document = json.loads(run("diff", tmp_path / "a.pickle", tmp_path / "b.pickle", "--json").stdout)
    assert [schedule["memory"] for schedule in document["schedules"]] == [10 * MIB + 512, 8 * MIB + 512]
    assert document["schedules"][0]["reserved"] == 22 * MIB
    builder, graph = GraphBuilder("plan"), tmp_path / "plan.pb"
    builder.add_op("wide", outputs=[3 * MIB])
    write_graph(builder.build(Annotations(lines=("model.py:31",))), graph)
    result = run("diff", tmp_path / "a.pickle", "input", "--graph", graph)
    lines = [" ".join(line.replace("│", " ").split()) for line in result.stdout.splitlines()]
    assert "model.py:31 <0.01 MiB 3.00 MiB" in lines, result.stdout


def test_a_picture_and_a_page_have_both_curves(run, tmp_path):
    (tmp_path / "s.pickle").write_bytes(pickle.dumps(small_snapshot()))
    timeline = read_snapshot(str(tmp_path / "s.pickle")).timeline()
    assert timeline.reserved.tolist() == [20 * MIB, 20 * MIB, 22 * MIB, 22 * MIB]
    assert timeline.simulation.peak == 10 * MIB + 512
    for ending in ("svg", "html"):
        assert run("plot", tmp_path / "s.pickle", "--output", tmp_path / f"s.{ending}", "--quiet").exit_code == 0
    assert "reserved by the allocator" in (tmp_path / "s.svg").read_text()
    assert '"reserved":23068672' in (tmp_path / "s.html").read_text()
