"""`schedopt show`: a graph and a folder in numbers, and who holds the peak of a schedule."""

import json


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
    assert (peak["memory"], peak["runs"], peak["step"]) == (26, "wide2", 2)
    assert [(h["name"], h["size"], h["waiting"]) for h in peak["holders"]] == [
        ("start:0", 10, ["wide2"]),
        ("wide1:0", 8, ["narrow1"]),
        ("wide2:0", 8, ["narrow2"]),
    ]
    table = run("show", diamond_file, output, "--top", 1).stdout
    assert "step 3 of 6, running wide2" in table
    assert "2 more" in table


def test_show_draws_histograms_of_a_folder(run, tmp_path):
    run("gen", "layered", tmp_path / "graphs", "--nodes", 20, "--count", 3)
    rows = [json.loads(line) for line in run("show", tmp_path / "graphs", "--json").stdout.splitlines()]
    assert [row["ops"] for row in rows] == [20, 20, 20]
    text = run("show", tmp_path / "graphs").stdout
    assert "ops, 3 graphs" in text
    assert "diameter, 3 graphs" in text
    assert "16 to 31" in text
