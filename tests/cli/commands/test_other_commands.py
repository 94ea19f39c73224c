import json

import pytest
from schedopt.core.files.costgraph import read_graph


@pytest.mark.parametrize("suffix", [".pb", ".pb.gz", ".pbtxt.gz", ".pbtxt"])
def test_convert_keeps_the_graph(run, diamond_file, diamond, tmp_path, suffix):
    target = tmp_path / f"copy{suffix}"
    assert run("convert", diamond_file, target).exit_code == 0
    assert read_graph(target) == diamond


def test_convert_writes_text_to_standard_output(run, diamond_file):
    assert run("convert", diamond_file).stdout == diamond_file.read_text()


def test_convert_refuses_an_unknown_suffix_before_reading(run, diamond_file, tmp_path):
    result = run("convert", diamond_file, tmp_path / "copy.onnx")
    assert result.exit_code == 2
    assert ".pbtxt" in result.stderr
    assert not (tmp_path / "copy.onnx").exists()


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


def test_check_names_the_broken_rule(run, diamond_file, tmp_path):
    output = tmp_path / "schedule.json"
    run("solve", diamond_file, "--output", output)
    document = json.loads(output.read_text())
    document["steps"].append(document["steps"].pop(0))
    output.write_text(json.dumps(document))
    result = run("check", diamond_file, output)
    assert result.exit_code == 1
    assert "without its input 'start:0'" in result.stderr
    answer = json.loads(run("check", diamond_file, output, "--json").stdout)
    assert answer["valid"] is False
    assert "start:0" in answer["broken_rule"]


def test_check_wants_a_schedule(run, diamond_file):
    result = run("check", diamond_file, diamond_file)
    assert result.exit_code == 2
    assert "not a JSON file" in result.stderr
