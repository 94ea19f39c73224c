"""A graph whose output is not named: standard output, but a file of its own where that is a terminal."""

import os
import pty
import subprocess
import sys
from types import SimpleNamespace

import pytest
from schedopt.cli import options
from schedopt.core.files.costgraph import read_graph


@pytest.fixture
def on_terminal(monkeypatch, tmp_path):
    monkeypatch.setattr(options, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["gen", "layered", "--nodes", 12], ["layered.pb.gz", "layered-2.pb.gz"]),
        (["gen", "synthetic", "--nodes", 12, "--format", "pbtxt"], ["synthetic.pbtxt", "synthetic-2.pbtxt"]),
        (["gen", "architecture", "unet"], ["unet.pb.gz", "unet-2.pb.gz"]),
        (["gen", "augment", "diamond.pbtxt", "--copies", 1], ["diamond-copy.pb.gz", "diamond-copy-2.pb.gz"]),
        (["convert", "diamond.pbtxt"], ["diamond.pb.gz", "diamond-2.pb.gz"]),
        (["import", "small.dot"], ["small.pb.gz", "small-2.pb.gz"]),
    ],
)
def test_on_a_terminal_each_writes_a_new_file_and_says_which(run, on_terminal, diamond_file, tmp_path, words, names):
    (tmp_path / "small.dot").write_text('digraph { a [size="4MiB"]; b [size="1MiB"]; a -> b }')
    for name in names:
        result = run(*words)
        assert result.exit_code == 0, result.output
        assert result.stdout == ""
        assert f"note: wrote {name}" in result.stderr
    assert read_graph(names[0]) == read_graph(names[1])
    assert run(*words, *(["-o"] if words[0] == "import" or "augment" in words else []), "-").stdout_bytes, (
        "- still pours"
    )


def test_several_graphs_on_a_terminal_are_a_new_folder(run, on_terminal, diamond_file):
    for words, folder in (("gen layered -n 2 --nodes 12", "layered"), ("gen augment diamond.pbtxt", "diamond-copy")):
        for name in (folder, f"{folder}-2"):
            result = run(*words.split())
            assert (result.exit_code, result.stdout) == (0, ""), result.output
            assert f"note: wrote {name}: " in result.stderr


def test_json_on_a_terminal_names_the_file(run, on_terminal, diamond_file):
    assert '"output": "diamond.pb.gz"' in run("convert", diamond_file, "--json").stdout


@pytest.mark.parametrize(("name", "file"), [("a/b c", "a-b-c.pb"), ("..", "graph.pb"), ("ünï", "ünï.pb")])
def test_the_name_of_a_file_stays_in_this_folder(on_terminal, name, file):
    assert options.output_of(None, name, ".pb") == file


@pytest.mark.slow
def test_a_real_terminal(diamond_file, tmp_path):
    terminal, side = pty.openpty()
    command = [sys.executable, "-m", "schedopt", "convert", diamond_file]
    subprocess.run(command, stdout=side, stderr=side, cwd=tmp_path, check=True)
    os.close(side)
    assert b"note: wrote diamond.pb.gz" in os.read(terminal, 1000)
    os.close(terminal)
    assert (tmp_path / "diamond.pb.gz").is_file()
