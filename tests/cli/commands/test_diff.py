"""`schedopt diff` from the command line."""

import json

import pytest


@pytest.fixture
def best(run, diamond_file, tmp_path):
    path = tmp_path / "best.json"
    assert run("solve", diamond_file, "-o", path).exit_code == 0
    return path


def lines_of(done):
    assert done.exit_code == 0, done.stderr
    return [" ".join(line.replace("│", " ").split()) for line in done.stdout.splitlines()]


def test_two_schedules(run, diamond_file, best):
    lines = lines_of(run("diff", "input", best, "--graph", diamond_file))
    assert lines[:3] == [
        "diamond",
        "input: peak 26 B at step 3, wide2",
        f"best: peak 19 B at step {lines[2].split()[6].rstrip(',')}, {lines[2].split()[-1]}",
    ]
    assert lines[-2] == "peak 26 B 19 B"
    assert any(line.startswith("tensors held at both") for line in lines)
    document = json.loads(run("diff", "input", best, "--graph", diamond_file, "--json").stdout)
    assert [schedule["memory"] for schedule in document["schedules"]] == [26, 19]


def test_two_graphs(run, diamond_file, tmp_path):
    larger = tmp_path / "larger.pbtxt"
    larger.write_text(diamond_file.read_text().replace("size: 8", "size: 80"))
    lines = lines_of(run("diff", diamond_file, larger))
    assert lines[0] == "diamond and larger: 0 ops added, 0 removed"
    assert "wide1:0 8 B 80 B +72 B" in lines
    assert "peak in program order 26 B 170 B +144 B" in lines
    document = json.loads(run("diff", diamond_file, larger, "--json").stdout)
    assert [change["change"] for change in document["changes"]] == [72, 72]
    assert "1 more 8 B 80 B +72 B" in lines_of(run("diff", diamond_file, larger, "--top", 1))


def test_no_line_is_wider_than_a_terminal(run, diamond_file, best):
    for arguments in (("input", best, "--graph", diamond_file), (diamond_file, diamond_file)):
        assert max(map(len, run("diff", *arguments).stdout.splitlines())) <= 80
