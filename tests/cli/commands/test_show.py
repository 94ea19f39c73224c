"""`schedopt show`: a graph and a folder in numbers, and who holds the peak of a schedule."""

import json

import pytest
from schedopt import read_graph
from schedopt.datasets.filters import topology_hash


def test_show_counts_by_hand(run, diamond_file):
    shown = json.loads(run("show", diamond_file, "--json").stdout)
    assert shown["ops"] == 6
    assert shown["edges"] == 6
    assert shown["depth"] == 4
    assert shown["width"] == 2
    assert shown["tensor_bytes"] == 29
    assert shown["input_peak"] == 26
    assert shown["memory_bound"] == 18  # each wide op alone could come first: 10 + 8
    assert shown["critical_path"] == 5
    assert "largest antichain" in run("show", diamond_file).stdout


def test_show_names_who_holds_the_peak(run, diamond_file, tmp_path):
    output = tmp_path / "schedule.json"
    run("solve", diamond_file, "--method", "input", "--output", output)
    peak = json.loads(run("show", diamond_file, output, "--json").stdout)
    assert (peak["memory"], peak["runs"], peak["step"]) == (26, "wide2", 3)
    assert [(h["name"], h["size"], h["waiting"]) for h in peak["holders"]] == [
        ("start:0", 10, ["wide2"]),
        ("wide1:0", 8, ["narrow1"]),
        ("wide2:0", 8, ["narrow2"]),
    ]
    table = run("show", diamond_file, output, "--top", 1).stdout
    assert "step 3 of 6, running wide2" in table
    assert "2 more" in table


@pytest.fixture
def annotated(run, tmp_path):
    """Return the files of a training step of PyTorch, and of its own order."""
    graph, order = tmp_path / "step.pb.gz", tmp_path / "order.json"
    run("import", "models.torch_models:attention", "--training", "adam", "--output", graph)
    run("solve", graph, "--method", "input", "--output", order)
    return graph, order


@pytest.mark.slow
def test_show_splits_persistent_bytes_by_role(run, annotated):
    graph, _ = annotated
    shown = json.loads(run("show", graph, "--json").stdout)
    assert set(shown["persistent_by_role"]) == {"parameters", "inputs", "optimizer state"}
    assert sum(shown["persistent_by_role"].values()) == shown["persistent_bytes"]
    assert "  optimizer state" in run("show", graph).stdout


def test_show_splits_the_peak_by_role_module_and_phase(run, annotated):
    peak = json.loads(run("show", *annotated, "--json").stdout)
    assert sum(peak["roles"].values()) == sum(peak["modules"].values()) == peak["memory"]
    assert [phase["phase"] for phase in peak["phases"]] == ["forward", "backward", "update"]
    assert max(phase["memory"] for phase in peak["phases"]) == peak["memory"]
    assert "saved activations" in peak["roles"]
    assert "self_attn" in peak["modules"]
    table = run("show", *annotated, "--top", 2).stdout
    for text in ("the peak by role", "the peak by module", "the peak of each phase", "saved activations", "self_attn"):
        assert text in table


def test_a_folder_as_a_list(run, diamond_file):
    printed = run("show", diamond_file.parent, "--list").stdout
    assert "diamond.pbtxt │   6 │     6 │" in printed
    assert printed.count(topology_hash(read_graph(diamond_file))) == 1
    (row,) = map(json.loads, run("show", diamond_file.parent, "--json").stdout.splitlines())
    assert row["topology"] == topology_hash(read_graph(diamond_file))
