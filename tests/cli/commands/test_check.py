"""`schedopt check`: the broken rule and the claim that does not hold, by name."""

import json


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
    assert "step 2, op 'wide2', starts at 3.0 us, but the schedule claims 4.0 us" in result.stderr
    output.write_text(json.dumps({**document, "format": 7}))
    result = run("check", diamond_file, output)
    assert result.exit_code == 2
    assert result.stderr == f"error: {output}: format 7 is not known; this version reads 2\n"


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


def test_a_schedule_whose_own_machine_cannot_be_read_is_checked_on_another(run, diamond_file, tmp_path):
    machine, output = tmp_path / "pair.yaml", tmp_path / "plan.json"
    machine.write_text("devices: [{name: a, memory: 1MB}, {name: b, memory: 1MB}]\ndefault_link: {latency: 1us}\n")
    run("solve", diamond_file, "--task", "runtime", "--machine", machine, "--evaluations", 50, "--output", output)
    document = json.loads(output.read_text())
    document["machine"]["devices"][0]["speed"] = -1
    output.write_text(json.dumps(document))
    assert run("check", diamond_file, output).exit_code == 2
    assert run("check", diamond_file, output, "--machine", machine).exit_code == 0
