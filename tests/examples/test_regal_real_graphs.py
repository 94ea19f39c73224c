"""The scripts of REGAL on real graphs: the room that BRKGA leaves, who takes it, and what oracles would."""

import csv
import re

import pytest
from models.examples import EXAMPLES, run


@pytest.mark.slow
def test_the_room_is_what_the_best_of_all_rows_leaves(few, tmp_path):
    """On two graphs with values by hand; only what has room is copied, with its noisy copies."""
    values = {"unet": (100, 90, 80), "layered-50": (100, 100, 110)}
    with (tmp_path / "runs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["graph", "method", "status", "value"])
        for graph, found in values.items():
            for method, value in zip(("brkga", "regal", "auto"), found, strict=True):
                writer.writerow([graph, method, "feasible", value])
    (few / "unet-copy-001.pb.gz").symlink_to(EXAMPLES / "graphs" / "unet.pb.gz")
    printed = run("regal/room.py", tmp_path / "runs.csv", "--graphs", few, "--copy", tmp_path / "kept")
    assert "runs.csv, all graphs: 2, room above brkga +10.00" in printed
    assert "runs.csv, graphs with 1% of room: 1, room above brkga +20.00" in printed
    assert re.search(r"  regal: \+10.00 ± 0.00%, 50% of the room, no worse on 1 of 1", printed)
    assert re.search(r"  auto: \+5.00 ± .*%, 50% of the room, no worse on 1 of 2", printed)
    assert {file.name for file in (tmp_path / "kept").iterdir()} == {"unet.pb.gz", "unet-copy-001.pb.gz"}
    above = run("regal/room.py", tmp_path / "runs.csv", "--reference", "auto", "--least", 50)
    assert "graphs with 50% of room: 0, room above auto none" in above


@pytest.mark.slow
def test_real_graphs_prints_the_room_of_the_test_set(few, tmp_path):
    graphs = EXAMPLES / "graphs"
    named = [graphs / f"{name}.pb.gz" for name in ("resnet50-training", "watts-strogatz-100", "nasnet-a-mobile")]
    printed = run("regal/real_graphs.sh", "runtime", tmp_path / "out", few, *named)
    assert "test.csv, all graphs: 1, room above brkga" in printed
    assert "room above input" in printed
    with (tmp_path / "out" / "test.csv").open() as file:
        methods = {row["method"] for row in csv.DictReader(file)}
    assert {"brkga", "regal:weights=regal-runtime-real", "direct", "heft", "auto:evaluations=2000"} <= methods
