"""`schedopt plot`, and the pictures of `solve` and `compare`: what is written, what is said, what is refused."""

import json
import re

import pytest
from models.small_graphs import sketch
from schedopt import write_graph

PNG = b"\x89PNG"


@pytest.fixture
def schedules(run, diamond_file, tmp_path):
    """Return files of schedules of the diamond: on one device, and on two."""
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert run("solve", diamond_file, "--method", "approximate-dp", "-o", one, "-q").exit_code == 0
    assert run("solve", diamond_file, "--method", "brkga", "--task", "runtime", "-o", two, "-q").exit_code == 0
    return one, two


def page_data(path):
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)[1])


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".html", ".json"])
def test_the_ending_chooses_what_is_drawn(run, diamond_file, schedules, tmp_path, suffix):
    target = tmp_path / f"drawn{suffix}"
    result = run("plot", diamond_file, "input", *schedules, "-o", target)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("input: peak 26 B at step 3 of 6, wide2\none: peak 19 B at step 3 of 6, narrow1\n")
    assert result.stderr.strip() == f"note: wrote {target}"
    start = {".png": PNG, ".svg": b"<?xml", ".pdf": b"%PDF", ".html": b"<!DOCTYPE html>", ".json": b'{"display'}
    assert target.read_bytes().startswith(start[suffix])


@pytest.mark.slow
def test_without_schedule_and_file_the_input_order_is_drawn_here(run, diamond_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("plot", diamond_file)
    assert result.stdout == "input: peak 26 B at step 3 of 6, wide2\n"
    assert (tmp_path / "diamond.png").read_bytes().startswith(PNG)


@pytest.mark.slow
def test_schedules_whose_files_share_a_name_are_told_apart(run, diamond_file, schedules, tmp_path):
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "one.json"
    other.write_bytes(schedules[0].read_bytes())
    printed = json.loads(run("plot", diamond_file, schedules[0], other, "-o", tmp_path / "x.png", "--json").stdout)
    assert [schedule["label"] for schedule in printed["schedules"]] == [str(schedules[0]), str(other)]


def test_damaged_files_are_refused(run, diamond_file, schedules, tmp_path):
    """As of check: a file that is read, and whose schedule breaks the rules, exits 1."""
    target, damaged = tmp_path / "x.png", tmp_path / "damaged.json"
    whole = schedules[0].read_text()
    for text, code, said in (
        (whole[:-20], 2, "not a JSON file, or truncated"),
        (re.sub(r'\{"op": "start", .*\},', "", whole), 1, ""),
    ):
        damaged.write_text(text)
        result = run("plot", diamond_file, damaged, "-o", target)
        assert (result.exit_code, result.stdout) == (code, "")
        assert f"{damaged}: {said}" in result.stderr
        assert not target.exists()


@pytest.mark.slow
def test_solve_draws_its_result_beside_the_input_order(run, diamond_file, tmp_path):
    target = tmp_path / "solved.html"
    result = run("solve", diamond_file, "--method", "approximate-dp", "--plot", target)
    assert result.exit_code == 0
    assert f"wrote {target}" in result.stderr
    drawn = [(schedule["label"], schedule["peak"]) for schedule in page_data(target)["schedules"]]
    assert drawn == [("input", 26), ("approximate-dp", 19)]
    assert run("solve", diamond_file, "--method", "input", "--plot", target).exit_code == 0
    assert [schedule["label"] for schedule in page_data(target)["schedules"]] == ["input"]
    assert run("solve", diamond_file, "--task", "runtime", "--plot", tmp_path / "s.png", "-q").exit_code == 0
    assert (tmp_path / "s.png").read_bytes().startswith(PNG)


@pytest.mark.slow
def test_compare_draws_new_and_resumed_runs(run, diamond_file, tmp_path):
    arguments = ("compare", diamond_file, "-m", "input,approximate-dp", "--resume", tmp_path / "runs.jsonl")
    targets = [tmp_path / "new.svg", tmp_path / "resumed.svg"]
    for target in targets:
        result = run(*arguments, "--plot", target)
        assert result.exit_code == 0
        assert f"wrote {target}" in result.stderr
    assert "2 of 2 runs are taken" in result.stderr
    assert targets[0].read_bytes() == targets[1].read_bytes()
    for text in ("performance profile", "over input, %", "approximate-dp: 1 better", "quality against time"):
        assert text in targets[0].read_text()


@pytest.mark.slow
def test_weights_may_be_left_out(run, tmp_path):
    write_graph(sketch("a -> 2048 keep=1000000; b: a -> 1024", "net"), tmp_path / "net.pbtxt")
    result = run("plot", tmp_path / "net.pbtxt", "--without-weights", "-o", tmp_path / "x.svg")
    assert result.stdout == "input, without weights: peak 3.00 KiB at step 2 of 2, b\n"
    picture = (tmp_path / "x.svg").read_text()
    assert "net: input, without weights" in picture
    assert "persistent" not in picture


def test_the_input_order_beside_a_plan_is_on_the_devices_of_the_plan(run, diamond_file, tmp_path):
    plan = tmp_path / "plan.json"
    assert run("solve", diamond_file, "--devices", 2, "--method", "heft", "--output", plan).exit_code == 0
    drawn = json.loads(run("plot", diamond_file, "input", plan, "-o", tmp_path / "both.svg", "--json").stdout)
    assert [len(schedule["peak_memory_per_device"]) for schedule in drawn["schedules"]] == [2, 2]
