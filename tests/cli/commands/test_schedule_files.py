"""Schedules as every command that takes one reads them: orders, and files of another graph."""

import json

import pytest


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
