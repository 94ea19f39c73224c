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
    assert "line 1 is 'node {', which is no op of diamond; a schedule is JSON, or op names, " in result.stderr


def test_what_format_order_prints_is_a_schedule_to_every_command(run, diamond_file, tmp_path):
    order = tmp_path / "order.txt"
    order.write_text(run("solve", diamond_file, "--method", "approximate-dp", "--format", "order", "-q").stdout)
    assert run("check", diamond_file, order).stdout == f"{order}: valid, 6 steps, peak 19 B (19 bytes), makespan 8 us\n"
    assert json.loads(run("show", diamond_file, order, "--json").stdout)["memory"] == 19
    drawn = json.loads(run("plot", diamond_file, order, "-o", tmp_path / "x.svg", "--json").stdout)
    assert drawn["schedules"][0]["peak_memory"] == 19
    budget = ("-m", "local-search", "--evaluations", 1)
    solved = json.loads(run("solve", diamond_file, *budget, "--initial", order, "--json").stdout)
    assert solved["peak_memory"] == 19


def test_steps_alone_are_checked(run, diamond_file, tmp_path):
    plan = tmp_path / "plan.json"
    steps = [{"op": name, "device": 0} for name in ("start", "wide1", "narrow1", "wide2", "narrow2", "join")]
    plan.write_text(json.dumps({"steps": steps}))
    answer = json.loads(run("check", diamond_file, plan, "--json").stdout)
    assert answer == {"schedule": str(plan), "valid": True, "peak_memory_per_device": [19], "runtime_us": 8.0}


@pytest.mark.parametrize("command", ["check", "show", "plot", "solve"])
def test_a_schedule_of_another_graph_is_taken_by_force_alone(run, diamond, diamond_file, tmp_path, command):
    """The other graph has the same ops, edges and orders, and a tensor of another size."""
    schedule, other, picture = tmp_path / "schedule.json", tmp_path / "other.pbtxt", tmp_path / "x.svg"
    assert run("solve", diamond_file, "--method", "input", "-o", schedule).exit_code == 0
    other.write_text(diamond_file.read_text().replace("size: 10", "size: 11"))
    arguments = {
        "check": ("check", other, schedule),
        "show": ("show", other, schedule),
        "plot": ("plot", other, schedule, "-o", picture),
        "solve": ("solve", other, "-m", "local-search", "--evaluations", 1, "--initial", schedule),
    }[command]
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {schedule}: made for another graph than other: its graph_sha256 is ")
    assert result.stderr.endswith("--force takes it all the same\n")
    forced = run(*arguments, "--force")
    if command in ("show", "solve"):
        assert forced.exit_code == 0
    else:
        assert forced.exit_code == {"check": 1, "plot": 2}[command]
        assert "claims peaks of [26] bytes, but takes [27]" in forced.stderr


def test_check_names_a_claim_that_does_not_hold(run, diamond_file, tmp_path):
    output = tmp_path / "schedule.json"
    run("solve", diamond_file, "--method", "input", "--output", output)
    document = json.loads(output.read_text())
    document["steps"][2]["start_us"] += 1
    output.write_text(json.dumps(document))
    result = run("check", diamond_file, output)
    assert result.exit_code == 1
    assert "step 2, op 'wide2', starts at 3.0 us, but the schedule claims 4.0 us" in result.stderr
    output.write_text(json.dumps({**document, "format": 7}))
    result = run("check", diamond_file, output)
    assert result.exit_code == 2
    assert result.stderr == f"error: {output}: format 7 is not known; this version reads 1 and 2\n"
