"""`schedopt check`: the broken rule and the claim that does not hold, by name."""

import json

import pytest


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


def test_steps_alone_are_checked(run, diamond_file, tmp_path):
    plan = tmp_path / "plan.json"
    steps = [{"op": name, "device": 0} for name in ("start", "wide1", "narrow1", "wide2", "narrow2", "join")]
    plan.write_text(json.dumps({"steps": steps}))
    answer = json.loads(run("check", diamond_file, plan, "--json").stdout)
    assert answer == {"schedule": str(plan), "valid": True, "peak_memory_per_device": [19], "runtime_us": 8.0}


def test_check_names_a_claim_that_does_not_hold(run, diamond_file, tmp_path):
    output = tmp_path / "schedule.json"
    run("solve", diamond_file, "--method", "input", "--output", output)
    document = json.loads(output.read_text())
    document["steps"][2]["start_us"] += 1
    output.write_text(json.dumps(document))
    result = run("check", diamond_file, output)
    assert result.exit_code == 1
    assert f"error: {output}: diamond: step 3, op 'wide2', starts at 3.0 us, but" in result.stderr
    output.write_text(json.dumps({**document, "format": 7}))
    result = run("check", diamond_file, output)
    assert result.exit_code == 2
    assert result.stderr == f"error: {output}: format 7 is not known; this version reads 2 and 3\n"


@pytest.mark.slow
def test_pins_that_do_not_count_are_spoken_of(run, diamond_file, tmp_path):
    devices = "devices: [{name: a, memory: 1MB}, {name: b, memory: 1MB}]\ndefault_link: {latency: 1us}\n"
    pinned, free, output = tmp_path / "pinned.yaml", tmp_path / "free.yaml", tmp_path / "plan.json"
    pinned.write_text(devices + "pins: {start: b}\n")
    free.write_text(devices)
    run("solve", diamond_file, "--task", "runtime", "--machine", pinned, "--evaluations", 50, "--output", output)
    said = "was made with other pins or groups"
    assert said in run("check", diamond_file, output, "--machine", free).stderr
    assert said not in run("check", diamond_file, output, "--machine", pinned).stderr
    assert said not in run("check", diamond_file, output).stderr


@pytest.mark.slow
def test_a_schedule_whose_own_machine_cannot_be_read_is_checked_on_another(run, diamond_file, tmp_path):
    machine, output = tmp_path / "pair.yaml", tmp_path / "plan.json"
    machine.write_text("devices: [{name: a, memory: 1MB}, {name: b, memory: 1MB}]\ndefault_link: {latency: 1us}\n")
    run("solve", diamond_file, "--task", "runtime", "--machine", machine, "--evaluations", 50, "--output", output)
    document = json.loads(output.read_text())
    document["machine"]["devices"][0]["speed"] = -1
    output.write_text(json.dumps(document))
    assert run("check", diamond_file, output).exit_code == 2
    assert run("check", diamond_file, output, "--machine", machine).exit_code == 0


@pytest.mark.slow
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
    assert result.stderr.endswith("--force, in Python read_schedule(..., force=True), takes it all the same\n")
    forced = run(*arguments, "--force")
    if command in ("show", "solve"):
        assert forced.exit_code == 0
    else:
        assert forced.exit_code == 1
        assert "claims peaks of [26] bytes, but takes [27]" in forced.stderr
